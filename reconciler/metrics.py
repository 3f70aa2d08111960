"""What the reconciler counts, for Prometheus."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LEADING: Final = Gauge("apportion_leading", "1 while this process holds the lease and acts, else 0.")
WRITES: Final = Counter(
    "apportion_writes", "Writes to the API server by what they do and how they ended.", ["what", "outcome"]
)
CYCLE: Final = Histogram(
    "apportion_cycle_seconds",
    "Seconds that a part of a cycle took: observe, settle, apply.",
    ["part"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
WAITING: Final = Gauge("apportion_waiting_pods", "Pods that wait, by the code of their reason.", ["reason"])
