"""Fixed layouts: boards that a person has divided by a file of NVIDIA's or nebuly's, and that the planner leaves alone.

`pluginconfig` and `migparted` read the files, `layout` says from them what each board of a node is to be, `steps` how it
gets there without the leader, `layouts` keeps what held last while a file cannot be read (docs/adr/0024).
"""
