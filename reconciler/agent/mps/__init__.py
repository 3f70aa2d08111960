"""MPS: one control daemon per board, whether it serves, what its clients get, and what they use.

`site` says where everything lies, `control` speaks to a daemon, `process` starts one or finds the one that runs, `daemon`
keeps the one of a board, `supervisor` those of a node. `shares` says what a slice is worth and what its container gets;
`memory` and
`usage` tell pods that use more. docs/mps.md says what all this guarantees, and what it does not.
"""
