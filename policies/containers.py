"""The containers of a pod in which a device may be asked for, and where each stands."""

from collections.abc import Iterator

import msgspec

from policies.model import Container, Pod


class Place(msgspec.Struct, frozen=True):
    """A container of a pod, and where it stands."""

    field: str  # containers | initContainers
    index: int
    container: Container

    @property
    def path(self) -> str:
        """Return the path as messages write it."""
        return f"spec.{self.field}[{self.index}]"

    @property
    def lasting(self) -> bool:
        """Return whether it runs for as long as the pod does: an app container or a sidecar."""
        return self.field == "containers" or self.container.restart_policy == "Always"


def places(pod: Pod) -> Iterator[Place]:
    """Yield every container that may hold a device: init containers (sidecars among them), then app containers."""
    for index, container in enumerate(pod.spec.init_containers or ()):
        yield Place("initContainers", index, container)
    for index, container in enumerate(pod.spec.containers):
        yield Place("containers", index, container)
