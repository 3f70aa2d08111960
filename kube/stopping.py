"""How our processes are told to end: SIGTERM, as the kubelet sends it, or SIGINT sets an event for which any thread may wait."""

import signal
import threading
from queue import SimpleQueue


def stop_on_signals() -> threading.Event:
    """Return an event that is set soon after the first SIGTERM or SIGINT from now on. Call it in the main thread.

    The handler does not set it itself: it runs in the main thread between any two steps of it, and if that is inside the
    event's `wait`, which holds the lock that `set` needs, it would wait for itself for ever. `SimpleQueue.put` may be
    interrupted by itself.
    """
    stop = threading.Event()
    told: SimpleQueue[int] = SimpleQueue()

    def pass_on() -> None:
        told.get()
        stop.set()

    threading.Thread(target=pass_on, name="stopping", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.put(number))
    return stop
