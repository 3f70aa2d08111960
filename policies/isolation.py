"""What of a pod keeps it from a mode, and what may not stand beside a slice because it would reach beyond it.

An MPS client needs the uid of its daemon, one daemon, the host's shared memory, and (unless the policy does without)
hostIPC. Environment variables and privilege that show a container the whole board defeat every mode.
"""

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Final

from policies import names
from policies.asked import at
from policies.containers import Place
from policies.faults import fault
from policies.model import Container, EnvVar, Pod
from policies.placement import bin_gb, profile_of
from policies.policy import Rule
from policies.requests import Slice, Wish
from policies.settings import Settings

_SHARED_MEMORY: Final = ["", "dev", "shm"]
_NO_HOST_IPC: Final = ("baseline", "restricted")  # Pod Security Standards, control "Host Namespaces"
_BLIND: Final = ("none", "void")  # values of NVIDIA_VISIBLE_DEVICES that show no device


def barred_modes(
    pod: Pod, wish: Wish, *, namespace: str, labels: Mapping[str, str], rule: Rule, settings: Settings
) -> Mapping[str, tuple[str, ...]]:
    """Return the modes by which a wish cannot be answered in this pod, each with its faults. `labels` are the namespace's."""
    mps = (
        *_several(wish, "an MPS client talks to one daemon"),
        *_other_user(pod, wish.place, settings.mps.user_id),
        *_users_of_its_own(pod, settings.mps.user_id),
        *_hidden_shared_memory(wish.place),
        *(_no_host_ipc(namespace, labels) if rule.host_ipc else ()),
    )
    turns = tuple(_several(wish, "a container takes turns on one board"))
    return {mode: faults for mode, faults in ((names.MPS, mps), (names.TIMESLICING, turns)) if faults}


def beyond_reach(
    path: str, container: Container, rule: Rule, *, slices: bool, own: bool, ours: Mapping[str, str] = {}
) -> Iterator[str]:
    """Yield the faults of a container that would see more of GPUs than its pod is given.

    Args:
        path: where it stands.
        container: the container.
        rule: what holds for its pod.
        slices: whether the pod has slices, beyond which nothing of it may reach.
        own: whether the policy is the namespace's own, which holds for pods that ask for nothing too.
        ours: variables that we set ourselves, by name, with their values.
    """
    if slices:
        yield from _reaching(path, container, rule, ours)
    elif own:
        yield from _showing(path, container, rule)


# ---------------------------------------------------------------------------------------------------------------------


def _showing(path: str, container: Container, rule: Rule) -> Iterator[str]:
    """Yield the faults of a container that would see GPUs for which its pod does not ask."""
    for index, variable in enumerate(() if rule.visible_devices else container.env or ()):
        if _shows_devices(variable):
            yield fault(
                f"{path}.env[{index}]",
                f"{variable.name}={variable.value or ''}",
                "would show GPUs that the pod has not been given, and the policy denies it (visibleDevices): "
                "leave it out, it is set where the pod runs",
            )


def _reaching(path: str, container: Container, rule: Rule, ours: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of a container that would see more than the slices of its pod.

    `ours` are the variables that we set, by name, with their values.
    """
    for index, variable in enumerate(() if rule.visible_devices else container.env or ()):
        if variable.name in ours and variable.value == ours[variable.name]:
            continue
        if _shows_devices(variable) or variable.name.startswith(names.MPS_VARIABLES):
            yield fault(
                f"{path}.env[{index}]",
                f"{variable.name}={variable.value or ''}",
                "would reach beyond the slices of this pod: leave it out, it is set where the pod runs",
            )
    context = container.security_context
    if not rule.privileged and context and context.privileged:
        yield fault(
            f"{path}.securityContext.privileged",
            "true",
            "sees every board of the node, so it may not stand in a pod with a slice: leave it out",
        )


def _shows_devices(variable: EnvVar) -> bool:
    return variable.name == names.VISIBLE_DEVICES and variable.value not in _BLIND


def _several(wish: Wish, why: str) -> Iterator[str]:
    if wish.count == 1:
        return
    larger = ""
    if isinstance(wish.ask, Slice) and wish.ask.mode == names.MPS:
        gigabytes = bin_gb(profile_of(wish.ask.resource)) or 0
        larger = f" ({names.mps_resource(gigabytes * wish.count)})"
    key = next((key for key in wish.asked if key.startswith(names.COUNT)), None)
    yield fault(
        at(key) if key else wish.path,
        wish.count,
        f"{why}, so a container gets one slice: ask for one larger slice{larger}, or give each a container of its own",
    )


def _other_user(pod: Pod, place: Place, user_id: int) -> Iterator[str]:
    for path, context in ((place.path, place.container.security_context), ("spec", pod.spec.security_context)):
        if context and context.run_as_user is not None:
            if context.run_as_user != user_id:
                yield fault(
                    f"{path}.securityContext.runAsUser",
                    context.run_as_user,
                    f"an MPS client must run as the user of its daemon, {user_id}, or it hangs: write {user_id}, "
                    "leave it out, or ask for MIG",
                )
            return  # the container's own setting wins over the pod's


def _users_of_its_own(pod: Pod, user_id: int) -> Iterator[str]:
    if pod.spec.host_users is False:
        yield fault(
            "spec.hostUsers",
            "false",
            f"in a user namespace no client of MPS is the user of its daemon, {user_id}, and hostIPC is forbidden: "
            "leave it out, or ask for MIG",
        )


def _hidden_shared_memory(place: Place) -> Iterator[str]:
    for index, mount in enumerate(place.container.volume_mounts or ()):
        if normpath(f"/{mount.mount_path.lstrip('/')}").split("/") == _SHARED_MEMORY:
            yield fault(
                f"{place.path}.volumeMounts[{index}].mountPath",
                mount.mount_path,
                "hides the shared memory by which an MPS client talks to its daemon: mount it elsewhere, or ask for MIG",
            )


def _no_host_ipc(namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
    level = labels.get(names.POD_SECURITY_LABEL, "")
    if level in _NO_HOST_IPC:
        yield fault(
            "spec.hostIPC",
            "true",
            f"MPS needs it, and {names.POD_SECURITY_LABEL}={level} of namespace {namespace} forbids it: ask for MIG, "
            "or have the policy say mps.hostIPC: false",
        )
