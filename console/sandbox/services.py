"""Our own processes on a sandbox: what is applied before they start, and how each is started.

They run as in production, as processes of this machine instead of pods. To add one that serves a port, name it in
`SERVED`; to add any, return its command from `install`. The supervisor starts it, waits until it is ready, starts it
again if it ends, and ends it before the control plane.
"""

from collections.abc import Mapping
from typing import Final

from console.sandbox.controlplane import ControlPlane
from console.sandbox.processes import Command

# Names of commands that serve a port of 127.0.0.1; each is given one.
SERVED: Final[tuple[str, ...]] = ()


def install(plane: ControlPlane, ports: Mapping[str, int]) -> tuple[Command, ...]:
    """Apply what our processes need to a ready control plane and return their commands, in the order of starting.

    `ports` has one for each name in `SERVED`. The manifests are those of production, changed only in how the API
    server reaches the webhook: by `clientConfig.url` with its port. Raises SandboxError if they cannot be applied.
    """
    del plane, ports
    return ()
