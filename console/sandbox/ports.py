"""Free TCP ports of 127.0.0.1 that stay free until the program that is given them listens.

Ports come from below the range from which the kernel serves outgoing connections (32768 and up by default), so that
none of those takes one in the seconds between choice and use.
"""

import random
import socket
from collections.abc import Set as AbstractSet
from typing import Final

_RANGE: Final = range(20000, 32000)


def free_ports(count: int, taken: AbstractSet[int], chance: random.Random) -> list[int]:
    """Return `count` ports on which nothing listens and that are not in `taken`.

    Raises OSError if there are not as many.
    """
    ports: list[int] = []
    for port in chance.sample(_RANGE, len(_RANGE)):
        if port not in taken and is_free(port):
            ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(f"no {count} free ports from {_RANGE.start} to {_RANGE.stop - 1} on 127.0.0.1")


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port now."""
    with socket.socket() as probe:
        # As Go's servers do: connections of a former server that still linger (TIME_WAIT) are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
        return True
