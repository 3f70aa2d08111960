"""Benchmarks: what the design promises, measured on this machine. `make bench`, or `make bench ONLY=path` for a part."""
