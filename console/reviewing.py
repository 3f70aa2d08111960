"""Admission of pods that stand in files: the webhook's own decision, and the pod that comes of it."""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Self

import jsonpatch
import msgspec
from msgspec.structs import replace

from console.manifests import Manifest, Manifests
from console.submitted import Raw
from policies.admission import Admission, admit
from policies.estimate import Standings
from policies.governing import view_quota
from policies.gpupolicy import Policies, view_policy
from policies.inventory import Inventory
from policies.ledger import Ledger
from policies.model import GpuPolicy, Pod
from policies.policy import PolicyView
from policies.settings import DEFAULTS
from policies.view import NodeView, View, view_node, view_pod

Labels = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by name."""


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """What the webhook answers.

    Attributes:
        admitted: the object after the patch; None if it is denied.
        patch: JSON patch, as data.
        warnings: as the person who creates it sees them.
        reasons: why it is changed as it is, and by which rule it was judged.
        denied: every fault, one a line; None if it is admitted.
    """

    admitted: Raw | None
    patch: list[Raw]
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    denied: str | None = None


class Reviewer(msgspec.Struct, frozen=True, kw_only=True):
    """What the webhook would know of a cluster, and answers from it.

    Attributes:
        nodes: its nodes.
        inventory: what can be had of them.
        standings: its quotas, and what its pods use of them now.
        policies: its policies.
        labels: those of its namespaces.
    """

    nodes: tuple[NodeView, ...]
    inventory: Inventory
    standings: Standings
    policies: Policies
    labels: Labels

    @classmethod
    def of(cls, view: View, labels: Labels) -> Self:
        """Return the reviewer of a cluster."""
        return cls(
            nodes=view.nodes,
            inventory=Inventory.of(view.nodes),
            standings=_standings(view),
            policies=Policies(view.policies),
            labels=labels,
        )

    def later(self, view: View) -> Self:
        """Return the reviewer of the cluster as it has become. What is known of the nodes is kept if they are the same."""
        same = len(view.nodes) == len(self.nodes) and all(map(is_, view.nodes, self.nodes))
        return replace(
            self,
            nodes=view.nodes,
            inventory=self.inventory if same else Inventory.of(view.nodes),
            standings=_standings(view),
            policies=Policies(view.policies),
        )

    def review(self, pod: Manifest[Pod]) -> Reviewed:
        """Return what the webhook answers to the creation of a pod."""
        admission = admit(
            pod.value,
            namespace=pod.namespace,
            labels=self.labels.get(pod.namespace, {}),
            inventory=self.inventory,
            settings=DEFAULTS,
            policy=self.policies.governing(pod.namespace),
            standings=self.standings,
        )
        return answered(pod.raw, admission)


def in_turn(
    reviewer: Reviewer, whole: Callable[[View], View] = lambda seen: seen
) -> Callable[[Manifest[Pod], View], Reviewed]:
    """Return what reviews pods one after another in a cluster that changes meanwhile.

    Args:
        reviewer: of the cluster before.
        whole: the cluster, of what is seen of it when a pod comes.
    """

    def admit(pod: Manifest[Pod], seen: View) -> Reviewed:
        nonlocal reviewer
        reviewer = reviewer.later(whole(seen))
        return reviewer.review(pod)

    return admit


def _standings(view: View) -> Standings:
    statuses = Ledger(view, DEFAULTS.quota).statuses() if view.quotas else ()
    return Standings.of(view.quotas, {f"{status.kind} {status.key}": status.used for status in statuses})


def answered(raw: Raw, admission: Admission) -> Reviewed:
    """Return the answer on an object that stands in a file."""
    if admission.faults:
        return Reviewed(admitted=None, patch=[], reasons=admission.reasons, denied="\n".join(admission.faults))
    patch = msgspec.to_builtins(admission.patch)
    # As JSON, where a YAML alias is no longer one object in two places, of which a patch of one would change both.
    sent = msgspec.json.decode(msgspec.json.encode(raw))
    return Reviewed(
        admitted=jsonpatch.apply_patch(sent, patch),
        patch=patch,
        warnings=admission.warnings,
        reasons=admission.reasons,
    )


def overlaid(below: View, above: View) -> View:
    """Return a cluster with the objects of another one added, in place of those of the same name."""
    return replace(
        below,
        nodes=tuple(({node.name: node for node in (*below.nodes, *above.nodes)}).values()),
        pods=tuple(({pod.key: pod for pod in (*below.pods, *above.pods)}).values()),
        quotas=tuple(({quota.title: quota for quota in (*below.quotas, *above.quotas)}).values()),
        policies=tuple(({policy.title: policy for policy in (*below.policies, *above.policies)}).values()),
        budgets=tuple(({budget.key: budget for budget in (*below.budgets, *above.budgets)}).values()),
    )


def namespace_labels(manifests: Manifests) -> dict[str, Mapping[str, str]]:
    """Return the labels of every namespace in the input."""
    return {item.name: item.value.metadata.labels or {} for item in manifests.namespaces}


def written(manifests: Manifests) -> View:
    """Return the cluster as it stands in the input: pods that are placed use quota, all others are yet to be created."""
    pods = (view_pod(item.value) for item in manifests.pods)
    return View(
        nodes=tuple(view_node(item.value) for item in manifests.nodes),
        pods=tuple(pod for pod in pods if pod.node),
        quotas=tuple(view_quota(item.value) for item in manifests.quotas),
        policies=tuple(map(written_policy, manifests.policies)),
    )


def written_policy(item: Manifest[GpuPolicy]) -> PolicyView:
    """Return a policy as the API server keeps it: in a namespace."""
    return replace(view_policy(item.value), namespace=item.namespace)
