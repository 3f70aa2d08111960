"""The node agent: cuts the boards of one node and announces their slices.

The steps (`apply`) know two Protocols, `GpuDriver` and `Kubelet`. Behind them stand the real driver and
kubelet, or the simulated ones; nothing else differs between a real node and a simulated one.
"""
