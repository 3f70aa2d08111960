"""A node without hardware: a driver and a kubelet that live in memory and keep the rules of the real ones.

They take the same time as real ones, if asked (`Latency`), and fail as real ones do, where a test says so. What
hardware remembers over a restart of the agent is taken from the node's own report (`memory`).
"""
