"""Admission of pods that stand in files: the webhook's own decision, and the pod that comes of it."""

from collections.abc import Mapping

import jsonpatch
import msgspec

from console.manifests import Manifest, Manifests
from console.submitted import Raw
from policies.admission import admit
from policies.estimate import UNGOVERNED, Standings
from policies.governing import view_quota
from policies.inventory import Inventory
from policies.ledger import Ledger
from policies.model import Pod
from policies.settings import DEFAULTS
from policies.view import View, view_node, view_pod


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """What the webhook answers.

    Attributes:
        admitted: the pod after the patch; None if it is denied.
        patch: JSON patch, as data.
        warnings: as the person who creates the pod sees them.
        reasons: why it is changed as it is.
        denied: every fault, one a line; None if it is admitted.
    """

    admitted: Raw | None
    patch: list[Raw]
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    denied: str | None = None


def namespace_labels(manifests: Manifests) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of every namespace in the input."""
    return {item.name: item.value.metadata.labels or {} for item in manifests.namespaces}


def standings(view: View) -> Standings:
    """Return what the webhook would know of the quotas of a cluster: what its pods use now."""
    statuses = Ledger(view, DEFAULTS.quota).statuses()
    return Standings.of(view.quotas, {f"{status.kind} {status.key}": status.used for status in statuses})


def written(manifests: Manifests) -> View:
    """Return the cluster as it stands in the input: pods that are placed use quota, all others are yet to be created."""
    pods = (view_pod(item.value) for item in manifests.pods)
    return View(
        nodes=tuple(view_node(item.value) for item in manifests.nodes),
        pods=tuple(pod for pod in pods if pod.node),
        quotas=tuple(view_quota(item.value) for item in manifests.quotas),
    )


def review(
    pod: Manifest[Pod],
    inventory: Inventory,
    namespaces: Mapping[str, Mapping[str, str]],
    standings: Standings = UNGOVERNED,
) -> Reviewed:
    """Return what the webhook answers to the creation of a pod."""
    admission = admit(
        pod.value,
        namespace=pod.namespace,
        labels=namespaces.get(pod.namespace, {}),
        inventory=inventory,
        settings=DEFAULTS,
        standings=standings,
    )
    if admission.faults:
        return Reviewed(admitted=None, patch=[], denied="\n".join(admission.faults))
    patch = msgspec.to_builtins(admission.patch)
    # As JSON, where a YAML alias is no longer one object in two places, of which a patch of one would change both.
    sent = msgspec.json.decode(msgspec.json.encode(pod.raw))
    return Reviewed(
        admitted=jsonpatch.apply_patch(sent, patch),
        patch=patch,
        warnings=admission.warnings,
        reasons=admission.reasons,
    )
