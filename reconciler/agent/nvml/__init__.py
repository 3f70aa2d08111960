"""The GPU driver of a real node, by NVML: boards and their profiles as it knows them, MIG mode, instances, XID events.

Nothing of it is in a table of ours: what a board can do is asked of the driver. These modules are the only importers of
`pynvml` (NVIDIA's `nvidia-ml-py`, extra `agent`); a node without library or driver is a DriverError, and asked again.
"""

from reconciler.agent.nvml.driver import NvmlDriver

__all__ = ["NvmlDriver"]
