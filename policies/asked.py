"""What the annotations of a pod ask for, container by container, with every fault found.

`gpu-fraction`, `gpu-memory` and `gpu-count` concern the container that `gpu-container` names (default: the first app
container); with `.<container>` behind them they concern that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from policies import names
from policies.containers import places
from policies.faults import fault
from policies.model import Pod
from policies.shares import MEMORY_RULE, SHARE_RULE, Memory, Share, read_memory, read_share
from policies.spelling import OUR_KEYS, USER_KEYS, nearest

_PER_CONTAINER: Final = (names.FRACTION, names.MEMORY, names.COUNT)
_COUNT_RULE: Final = "a count is a whole number of at least 1"
_MODE_RULE: Final = f"a mode is one of {', '.join(names.MODES)}; several, in order of preference, with commas"
_SWITCH: Final = ("true", "false")
_SWITCH_RULE: Final = 'a pod with "true" borrows nothing and is never evicted; write that, or "false"'
_MOST_DIGITS: Final = 6  # of a count


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What annotations ask for one container.

    Attributes:
        written: the annotations that concern it, with their full keys.
        ask: what each device must be; None if that is missing or faulty.
        count: how many devices.
    """

    written: dict[str, str]
    ask: Share | Memory | None = None
    count: int = 1

    @property
    def asks(self) -> bool:
        """Return whether a share or memory is asked for, be it readable or not."""
        return _split(self.first[0])[0] != names.COUNT

    @property
    def first(self) -> tuple[str, str]:
        """Return the annotation that says most: the share or memory, else the count."""
        return min(self.written.items(), key=lambda item: _PER_CONTAINER.index(_split(item[0])[0]))


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """What all annotations of a pod say.

    Attributes:
        containers: what is asked for each container; only containers that the pod has.
        asks: whether a share or memory is asked for at all, be it readable or not.
        modes: those that the pod names, in its order; None if it names none, or not readably.
        faults: everything that is wrong.
        warnings: what deserves notice.
    """

    containers: Mapping[str, Asked] = {}
    asks: bool = False
    modes: tuple[str, ...] | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


_NONE: Final = Annotations()


def read_annotations(pod: Pod) -> Annotations:
    """Return what the annotations of a pod ask for."""
    ours = {key: value for key, value in (pod.metadata.annotations or {}).items() if key.startswith(names.PREFIX)}
    if not ours:
        return _NONE
    containers = [place.container.name for place in places(pod)]
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    faults: list[str] = []
    warnings: list[str] = []
    if (stays := ours.get(names.NON_PREEMPTIBLE, "true")) not in _SWITCH:
        faults.append(fault(at(names.NON_PREEMPTIBLE), stays, _SWITCH_RULE))
    target = ours.get(names.CONTAINER)
    if target is not None and target not in containers:
        faults.append(_no_container(names.CONTAINER, target, containers))
    elif target is not None and not any(key in ours for key in _PER_CONTAINER):
        warnings.append(f"{names.CONTAINER} chooses nothing: no {names.FRACTION} or {names.MEMORY} stands beside it")
    groups: dict[str, dict[str, str]] = {}
    for key, value in ours.items():
        kind, suffix = _split(key)
        if kind not in _PER_CONTAINER:
            if key not in OUR_KEYS:
                _unknown(key, value, faults, warnings)
            continue
        container = suffix if suffix is not None else target if target is not None else first
        groups.setdefault(container, {})[key] = value
        if container not in containers and container != target:
            faults.append(_no_container(key, value, containers))
    asked = {container: _read(written, faults) for container, written in groups.items()}
    return Annotations(
        asks=any(found.asks for found in asked.values()),
        containers={container: found for container, found in asked.items() if container in containers},
        modes=_modes(ours, faults),
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


def mislaid(pod: Pod) -> Iterator[str]:
    """Yield a warning for each label that is meant for an annotation: as a label it says nothing."""
    annotations = pod.metadata.annotations or {}
    for key, value in (pod.metadata.labels or {}).items():
        if key.startswith(names.PREFIX) and key not in annotations and _split(key)[0] in USER_KEYS:
            yield f'{key} is a label here and says nothing; write it as an annotation: {key}: "{value}"'


def at(key: str) -> str:
    """Return the path of an annotation as messages write it."""
    return f"metadata.annotations[{key}]"


# ---------------------------------------------------------------------------------------------------------------------


def _split(key: str) -> tuple[str, str | None]:
    """Return a key without the container behind it, and that: `.../gpu-fraction.main` is `.../gpu-fraction`, `main`."""
    kind, dot, container = key.removeprefix(names.PREFIX).partition(".")
    return names.PREFIX + kind, container if dot else None


def _no_container(key: str, value: str, containers: Sequence[str]) -> str:
    return fault(at(key), value, f"no container has that name: the pod has {', '.join(containers) or 'none'}")


def _unknown(key: str, value: str, faults: list[str], warnings: list[str]) -> None:
    """Tell of a key under our prefix that is none of ours: refused where it is clear what was meant."""
    kind, container = _split(key)
    if kind in OUR_KEYS:
        faults.append(fault(at(key), value, f"{kind} holds for the whole pod: leave .{container} out"))
    elif meant := nearest(kind):
        suffix = f".{container}" if container is not None and meant in _PER_CONTAINER else ""
        faults.append(fault(at(key), value, f"there is no such key: write {meant}{suffix}"))
    else:
        warnings.append(f"{key} is no key of Apportion and asks for nothing")


def _read(written: dict[str, str], faults: list[str]) -> Asked:
    """Return what the annotations of one container ask for; every one of them is read, whatever the others say."""
    asks: list[Share | Memory | None] = []
    counts: list[int] = []
    for key, value in written.items():
        match _split(key)[0]:
            case names.FRACTION:
                asks.append(share := read_share(value))
                faults += [] if share else [fault(at(key), value, SHARE_RULE)]
            case names.MEMORY:
                asks.append(memory := read_memory(value))
                faults += [] if memory else [fault(at(key), value, MEMORY_RULE)]
            case _:
                sound = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS and int(value) > 0
                counts.append(int(value) if sound else 1)
                faults += [] if sound else [fault(at(key), value, _COUNT_RULE)]
    if len(asks) > 1 or len(counts) > 1:
        keys = " and ".join(written)
        faults.append(
            fault("metadata.annotations", keys, "one container asks once, for a share or for memory: keep one of them")
        )
    return Asked(written=written, ask=asks[0] if asks else None, count=counts[0] if counts else 1)


def _modes(ours: Mapping[str, str], faults: list[str]) -> tuple[str, ...] | None:
    text = ours.get(names.MODE)
    if text is None:
        return None
    modes = tuple(dict.fromkeys(mode.strip() for mode in text.split(",")))
    if all(mode in names.MODES for mode in modes):
        return modes
    faults.append(fault(at(names.MODE), text, _MODE_RULE))
    return None
