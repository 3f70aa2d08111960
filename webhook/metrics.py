"""What the webhook reports to Prometheus, in single-process mode: one worker serves all, so one registry knows all."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

MUTATE: Final = "mutate"
VALIDATE: Final = "validate"

# Outcomes of a review.
ALLOWED: Final = "allowed"
DENIED: Final = "denied"
MALFORMED: Final = "malformed"  # HTTP 4xx: failurePolicy decides
FAILED: Final = "failed"  # HTTP 500: failurePolicy decides
UNSYNCED: Final = "unsynced"  # HTTP 500: the caches are not filled yet

RESULTS: Final = (ALLOWED, DENIED, MALFORMED, FAILED, UNSYNCED)

# Around the promised 8 ms, up to the 5 s after which the API server gives up.
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 5.0)


class Metrics:
    """The metrics of one server process; counting is thread-safe and costs microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        reviews = Counter(
            "apportion_webhook_reviews",
            "Admission reviews answered, by webhook and result.",
            ["webhook", "result"],
            registry=self.registry,
        )
        seconds = Histogram(
            "apportion_webhook_review_seconds",
            "Time from a review's headers being read to its answer.",
            ["webhook"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "apportion_webhook_reviews_in_flight", "Reviews being answered now.", registry=self.registry
        )
        # Children are looked up once: finding one by its labels costs as much as counting.
        self.reviews = {
            (webhook, result): reviews.labels(webhook, result) for webhook in (MUTATE, VALIDATE) for result in RESULTS
        }
        self.seconds = {webhook: seconds.labels(webhook) for webhook in (MUTATE, VALIDATE)}

    def watch_load(self, busy: Callable[[], int], threads: int) -> None:
        """Report the server's load: `busy` connections, being served or waiting for one of so many threads."""
        self._gauge("apportion_webhook_threads", "Connections that can be served at once.", lambda: threads)
        self._gauge(
            "apportion_webhook_saturation",
            "Connections being served or waiting to be, over threads; above 1 some wait.",
            lambda: busy() / threads,
        )

    def watch_certificate(self, expires_at: Callable[[], float | None]) -> None:
        """Report when the served certificate expires; 0 while there is none."""
        self._gauge(
            "apportion_webhook_certificate_expiry_timestamp_seconds",
            "End of the served certificate's validity, in seconds since the epoch.",
            lambda: expires_at() or 0.0,
        )

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        Gauge(name, documentation, registry=self.registry).set_function(value)
