"""Evictions: what is said of each, and who has to go because what it holds is not there any more (docs/adr/0023)."""

from collections.abc import Iterator, Mapping, Sequence

from policies import names
from policies.decision import Evict
from policies.governing import QuotaView
from policies.ledger import Ledger
from policies.occupancy import tally
from policies.settings import QuotaSettings
from policies.view import NodeView, PodView


def eviction(
    pod: PodView,
    quota: QuotaView | None,
    settings: QuotaSettings,
    reason: str,
    message: str,
    *,
    claimant: PodView | None = None,
) -> Evict:
    """Return the eviction of a pod for a claimant of a quota; or for nobody, its own quota being that."""
    return Evict(
        pod=pod.key,
        uid=pod.uid,
        version=pod.version,
        claimant=claimant.key if claimant else "",
        claimant_uid=claimant.uid if claimant else "",
        quota=quota.key if quota else "",
        grace_s=min(pod.grace_s, settings.max_grace_s),
        reason=reason,
        message=message,
    )


def stale_holders(
    nodes: Sequence[NodeView],
    bound: Mapping[str, Sequence[PodView]],
    ledger: Ledger,
    settings: QuotaSettings,
    now: float,
) -> Iterator[Evict]:
    """Return the evictions, for nobody, of pods that their node's agent reports as holding what is not there any more.

    A pod of the same name that was made again is another pod, and stays.

    Args:
        nodes: the nodes.
        bound: node -> the pods that hold something there.
        ledger: the books, which know whose pods they are.
        settings: of quota.
        now: seconds since the epoch.
    """
    for node in nodes:
        if not (reported := tally(node.boards).stale):
            continue
        pods = {pod.uid: pod for pod in bound[node.name] if not pod.terminating and pod.refused_until <= now}
        for uid, (gpu, item) in reported.items():
            if pod := pods.get(uid):
                why = (
                    f"GPU {gpu} of node {node.name} was reset or the node restarted, and {item.profile} was made anew: the "
                    "pod was given a device that is not there any more, and each restart would be given it again"
                )
                yield eviction(pod, ledger.quota(pod), settings, names.DEVICE_REPLACED, why)
