"""Writes what is said on objects, where it differs from what stands there; what is said is for people and the webhook.

Runs beside the loop on a thread of its own, once in a while, so that it never delays a grant. Nothing is remembered of
what was written: a restart repeats nothing, and what somebody changes is mended. A write that fails is tried again
later, at growing intervals, and holds up no other; without an answer the rest of a round need not be tried.
"""

import math
import threading
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unreachable
from reconciler.metrics import WRITES
from reconciler.patches import Body

AGAIN: Final = Backoff(base_s=1.0, cap_s=60.0)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A patch that makes one object say what it should.

    Attributes:
        path: of the object, or its status.
        patch: content type of the patch.
        body: its body.
        written: takes the answer once it is done, to lay it over and to tell people; may raise msgspec.DecodeError.
    """

    path: str
    patch: str
    body: Body
    written: Callable[[bytes], None]


class Scribe:
    """Writes the differences of one kind during one term of leadership; `held` tells whether the lease is still ours."""

    def __init__(
        self,
        client: Client,
        what: str,
        differences: Callable[[], Iterable[Difference]],
        *,
        every_s: float,
        at_most: float = math.inf,
        held: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """Ask for `differences` every so many seconds, and write `at_most` so many of them: `what`, for the metrics."""
        self._client, self._what, self._differences = client, what, differences
        self._every_s, self._at_most, self._held, self._clock = every_s, at_most, held, clock
        self._failed: dict[str, tuple[int, float]] = {}  # path -> failures in a row, not again before
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no more writes, and wait for the one under way."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def tick(self) -> None:
        """Write the differences that there are, as many as one round may."""
        now, left = self._clock(), self._at_most
        self._failed = {path: failed for path, failed in self._failed.items() if now < failed[1] + AGAIN.cap_s}
        for difference in self._differences():
            if self._stopped.is_set() or not self._held() or left <= 0:
                return
            if self._failed.get(difference.path, (0, now))[1] <= now:
                left -= 1
                if not self._write(difference):
                    return

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self.tick()

    def _write(self, difference: Difference) -> bool:
        """Send a patch; return whether there was an answer at all."""
        body = msgspec.json.encode(difference.body)
        try:
            answer = self._client.request("PATCH", difference.path, body=body, content_type=difference.patch)
            difference.written(answer)
        except (Conflict, NotFound):
            WRITES.labels(self._what, "stale").inc()  # the watch will tell, and the next round compares again
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            failures = self._failed.get(difference.path, (0, 0.0))[0] + 1
            asked_s = error.retry_after_s if isinstance(error, ApiError) else 0.0
            self._failed[difference.path] = failures, self._clock() + max(asked_s, AGAIN.delay_s(failures, 1.0))
            WRITES.labels(self._what, "refused").inc()
            self._log.warning("not_written", what=self._what, object=difference.path, error=str(error))
            return not isinstance(error, Unreachable)
        else:
            self._failed.pop(difference.path, None)
            WRITES.labels(self._what, "done").inc()
        return True
