"""Does many small things several at a time, in order, and begins no more of them once it is told so."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Lanes:
    """So many threads, which start with the first work. For one user at a time."""

    def __init__(self, width: int, name: str) -> None:
        self._width = width
        self._pool = ThreadPoolExecutor(width, thread_name_prefix=name)

    def map(self, do: Callable[[A], R], items: Sequence[A], go_on: Callable[[], bool] = lambda: True) -> list[R]:
        """Return what `do` makes of the items, in any order: of all, or of the first ones, until `go_on` says no.

        What has begun ends before this returns. Raises what `do` raises.
        """
        line = iter(items)  # shared: the interpreter gives each item to one thread

        def drive() -> list[R]:
            return [do(item) for item in takewhile(lambda _: go_on(), line)]

        lanes = [self._pool.submit(drive) for _ in range(min(self._width, len(items)))]
        return [made for lane in lanes for made in lane.result()]

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)
