"""What a namespace allows: the rule by which the wishes of a pod are answered. An argument of every decision."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from policies import names
from policies.shares import Memory, Share


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of what a pod is given, whatever the form of its request; None where there is none.

    Attributes:
        least: of the share of a board that a slice is.
        most: likewise.
        slices: how many slices a pod may have.
    """

    least: Share | None = None
    most: Share | None = None
    slices: int | None = None


class Terms(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What of a rule decides which slices serve a wish.

    Attributes:
        exact: whether a slice must equal what is asked for; else the smallest that holds it is given.
        least: the smallest share of a board that a slice may be; None: any.
        most: the largest.
        models: values of the product label that boards must have; empty: any.
        replicas: parts of a time-sliced board, of which a turn counts as one.
    """

    exact: bool = False
    least: Share | None = None
    most: Share | None = None
    models: tuple[str, ...] = ()
    replicas: int = 1


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule; the defaults are those of the built-in one, which holds where no policy says otherwise.

    Attributes:
        match: labels that a pod must have; without any it fits all.
        modes: in order of preference, for pods that name none.
        nameable: modes that a pod may name, by annotation or by an explicit slice.
        whole_gpu: what each whole GPU that is asked for becomes; None: it is kept.
        gpu_models: values of the product label that boards must have; empty: any.
        exact: whether a slice must equal what is asked for; else the smallest that holds it is given.
        limits: bounds of what is given.
        host_ipc: MPS clients get hostIPC.
        proportional_threads: MPS clients get their slice's share of the compute; else all of it.
        visible_devices: users may set NVIDIA_VISIBLE_DEVICES and CUDA_MPS_* beside a slice.
        privileged: a privileged container, which sees the whole board, may stand beside a slice.
    """

    match: Mapping[str, str] = {}
    modes: tuple[str, ...] = (names.MIG, names.MPS)
    nameable: tuple[str, ...] = names.MODES
    whole_gpu: Share | Memory | Literal["deny"] | None = None
    gpu_models: tuple[str, ...] = ()
    exact: bool = False
    limits: Limits = Limits()
    host_ipc: bool = True
    proportional_threads: bool = False
    visible_devices: bool = False
    privileged: bool = False

    def terms(self, replicas: int) -> Terms:
        """Return what of it decides which slices serve a wish."""
        limits = self.limits
        return Terms(exact=self.exact, least=limits.least, most=limits.most, models=self.gpu_models, replicas=replicas)

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether the rule is for pods with these labels."""
        return all(labels.get(key) == value for key, value in self.match.items())


BUILT_IN: Final = Rule()
ANY: Final = Terms()


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """A GpuPolicy as decisions see it.

    Attributes:
        namespace: where the object stands.
        name: its name; empty for the policy of namespaces for which nobody has written one.
        uid: its uid.
        generation: its generation.
        created: seconds since the epoch; of two in one namespace the older rules.
        rules: in order; none if it has faults.
        gates: whether pods wait for their quota; else they are only labelled.
        faults: what is wrong with it; with any, pods that ask for a GPU where it governs are denied.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    generation: int = 0
    created: int = 0
    rules: tuple[Rule, ...] = ()
    gates: bool = True
    faults: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return kind and namespace/name, which no other policy has."""
        return f"{names.GPU_POLICY} {self.namespace}/{self.name}"

    @property
    def is_default(self) -> bool:
        """Return whether it holds for all namespaces without one of their own."""
        return (self.namespace, self.name) == (names.SYSTEM_NAMESPACE, names.DEFAULT_POLICY)

    def is_own(self, namespace: str) -> bool:
        """Return whether it is a namespace's own, not one that holds where there is none."""
        return bool(self.name) and self.namespace == namespace

    def rule_for(self, labels: Mapping[str, str] | None) -> Rule:
        """Return the first rule that fits a pod with these labels, else the built-in one."""
        return next((rule for rule in self.rules if rule.fits(labels or {})), BUILT_IN)

    def said(self, rule: Rule) -> str:
        """Return which of its rules one is, for people."""
        if rule in self.rules:
            return f"{self.title}, rules[{self.rules.index(rule)}]"
        why = f"no rule of {self.title} fits the pod" if self.name else "no policy governs the namespace"
        return f"the built-in rule, for {why}"


NO_POLICY: Final = PolicyView()
"""What governs where nobody has written a policy."""
