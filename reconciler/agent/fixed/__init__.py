"""Fixed layouts: boards that a person has divided by a file of NVIDIA's or nebuly's, and that the planner leaves alone.

`configmaps` and `files` find the files, `pluginconfig` (with `pluginflags`) and `migparted` read them, `layout` says from them
what each board of a node is to be, `layouts` keeps what held last while a file cannot be read. `target` says where a board is
to get from what is on it, and `announced` by which devices its slices are offered (docs/adr/0024).
"""
