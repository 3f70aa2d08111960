"""GpuPolicy objects: read with all their faults, and which of them governs a namespace.

The shape is closed: a field that nobody knows is a fault, for a misspelt limit must not be taken for none. What the
schema of the CRD can say it says too; here everything is said, with paths.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from policies import names
from policies.faults import UnsoundError, fault, misfits
from policies.model import GpuPolicy
from policies.policy import NO_POLICY, Limits, PolicyView, Rule
from policies.shares import MEMORY_RULE, SHARE_RULE, Memory, Share, read_memory, read_share
from policies.timestamps import epoch


def view_policy(policy: GpuPolicy) -> PolicyView:
    """Return what decisions see of a policy. What is wrong with it becomes its faults, never an error."""
    meta = policy.metadata
    seen = PolicyView(
        namespace=meta.namespace or "",
        name=meta.name or "",
        uid=meta.uid or "",
        generation=meta.generation or 0,
        created=epoch(meta.creation_timestamp),
    )
    written = {"spec": _without_nulls(policy.spec)}
    if faults := misfits(written, _Document):
        return msgspec.structs.replace(seen, faults=tuple(faults))
    spec = msgspec.convert(written, _Document).spec
    return msgspec.structs.replace(
        seen, rules=tuple(rule.rule() for rule in spec.rules), gates=spec.quota.admission == "gate"
    )


class Policies:
    """All policies, and which of them governs a namespace. Immutable; any thread may ask.

    Attributes:
        views: all of them, whether they hold or not.
        unready: title -> (reason, message) of policies that do not hold.
    """

    __slots__ = ("_governing", "unready", "views")

    def __init__(self, policies: Iterable[PolicyView] = ()) -> None:
        self.views = tuple(policies)
        self._governing: dict[str, PolicyView] = {}
        self.unready: dict[str, tuple[str, str]] = {}
        for policy in sorted(self.views, key=lambda one: (one.created, one.title)):
            if policy.namespace == names.SYSTEM_NAMESPACE and not policy.is_default:
                self.unready[policy.title] = names.POLICY_UNUSED, _NOWHERE
                continue
            older = self._governing.setdefault(policy.namespace, policy)
            if older is not policy:
                self.unready[policy.title] = names.POLICY_CONFLICT, _beside(older)
            elif policy.faults:
                self.unready[policy.title] = names.POLICY_INVALID, "; ".join(policy.faults)

    def governing(self, namespace: str) -> PolicyView:
        """Return the policy of a namespace: its own, else the default one, else that which nobody has written."""
        return self._governing.get(namespace) or self._governing.get(names.SYSTEM_NAMESPACE, NO_POLICY)


UNWRITTEN: Final = Policies()
"""The policies where nobody has written one."""


# ---------------------------------------------------------------------------------------------------------------------

_NOWHERE: Final = (
    f"pods of {names.SYSTEM_NAMESPACE} are not reviewed, and of its policies only the one called {names.DEFAULT_POLICY} "
    "holds elsewhere: move it to the namespace that it is for"
)

# Labels as the API server takes them: k8s.io/apimachinery, util/validation.
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE_RULE: Final = "is no value of a label: up to 63 letters, digits, - _ and ., at both ends a letter or digit"
_KEY_RULE: Final = "is no key of a label: write for example tier or example.com/tier"

_Mode = Literal["mig", "mps", "timeslicing"]
_Permission = Literal["deny", "allow"]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the object as it is written. What a part alone cannot hold is told by `_unsound`."""

    def __post_init__(self) -> None:
        if found := [*self._unsound()]:
            raise UnsoundError(found)

    def _unsound(self) -> Iterator[str]:
        """Yield the faults of well-formed fields, their paths beginning at this part."""
        yield from ()


class _Match(_Wire, frozen=True):
    match_labels: dict[str, str] = {}

    def _unsound(self) -> Iterator[str]:
        for key, value in self.match_labels.items():
            if not _KEY.fullmatch(key):
                yield fault(f"matchLabels[{key}]", key, _KEY_RULE)
            if not _VALUE.fullmatch(value):
                yield fault(f"matchLabels[{key}]", value, _VALUE_RULE)


class _WholeGpu(_Wire, frozen=True):
    fraction: str | None = None
    memory: str | None = None

    @property
    def ask(self) -> Share | Memory | None:
        """Return what each whole GPU becomes; never None in what has been read."""
        return read_share(self.fraction) if self.fraction is not None else read_memory(self.memory or "")

    def _unsound(self) -> Iterator[str]:
        if (self.fraction is None) == (self.memory is None):
            said = "both" if self.memory is not None else "neither"
            yield fault("fraction", said, "a whole GPU becomes a share or an amount of memory: write one of the two")
        elif not self.ask:
            yield (
                fault("fraction", self.fraction, SHARE_RULE)
                if self.fraction is not None
                else fault("memory", self.memory, MEMORY_RULE)
            )


class _Limits(_Wire, frozen=True):
    min_fraction: str | None = None
    max_fraction: str | None = None
    max_slices_per_pod: int | None = None

    def _unsound(self) -> Iterator[str]:
        bounds = {"minFraction": self.min_fraction, "maxFraction": self.max_fraction}
        shares = {key: read_share(text) for key, text in bounds.items() if text is not None}
        yield from (fault(key, bounds[key], SHARE_RULE) for key, share in shares.items() if share is None)
        least, most = shares.get("minFraction"), shares.get("maxFraction")
        if least and most and least.exact > most.exact:
            yield fault("minFraction", self.min_fraction, f"is more than maxFraction, {self.max_fraction}")
        if self.max_slices_per_pod is not None and self.max_slices_per_pod < 1:
            yield fault("maxSlicesPerPod", self.max_slices_per_pod, "a pod may have at least 1, or leave the field out")


class _Mps(_Wire, frozen=True):
    host_ipc: bool = msgspec.field(default=True, name="hostIPC")
    threads: Literal["unlimited", "proportional"] = "unlimited"


class _Rule(_Wire, frozen=True):
    match: _Match = _Match()
    modes: tuple[_Mode, ...] = ("mig", "mps")
    whole_gpu: Literal["keep", "deny"] | _WholeGpu = "keep"
    gpu_models: tuple[str, ...] = ()
    rounding: Literal["up", "exact"] = "up"
    limits: _Limits = _Limits()
    mps: _Mps = _Mps()
    visible_devices: _Permission = "deny"
    privileged: _Permission = "deny"

    def rule(self) -> Rule:
        """Return what the part means."""
        whole, limits = self.whole_gpu, self.limits
        return Rule(
            match=self.match.match_labels,
            modes=self.modes,
            nameable=self.modes,
            whole_gpu=whole.ask if isinstance(whole, _WholeGpu) else "deny" if whole == "deny" else None,
            gpu_models=self.gpu_models,
            exact=self.rounding == "exact",
            limits=Limits(
                least=read_share(limits.min_fraction or ""),
                most=read_share(limits.max_fraction or ""),
                slices=limits.max_slices_per_pod,
            ),
            host_ipc=self.mps.host_ipc,
            proportional_threads=self.mps.threads == "proportional",
            visible_devices=self.visible_devices == "allow",
            privileged=self.privileged == "allow",
        )

    def _unsound(self) -> Iterator[str]:
        if len(set(self.modes)) != len(self.modes) or not self.modes:
            yield fault("modes", ", ".join(self.modes) or "[]", "name at least one mode, and each once")
        for index, model in enumerate(self.gpu_models):
            if not model or not _VALUE.fullmatch(model):
                rule = f"{_VALUE_RULE}: write what nodes have as {names.PRODUCT_LABEL}"
                yield fault(f"gpuModels[{index}]", model, rule)


class _Quota(_Wire, frozen=True):
    admission: Literal["gate", "label"] = "gate"


class _Spec(_Wire, frozen=True):
    rules: tuple[_Rule, ...] = ()
    quota: _Quota = _Quota()


class _Document(msgspec.Struct, frozen=True):
    spec: _Spec


def _without_nulls(value: object) -> object:
    """Return a value without fields that are null, which the API server drops too where the schema allows none."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _beside(older: PolicyView) -> str:
    return f"{older.title}, which is older, governs the namespace: delete one of them"
