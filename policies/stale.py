"""Who has to go because the slice under it was made anew, by a reboot or the reset of a board (docs/adr/0023)."""

from collections.abc import Iterator, Mapping, Sequence

from policies import names
from policies.decision import Evict
from policies.ledger import Ledger
from policies.occupancy import tally
from policies.settings import QuotaSettings
from policies.view import NodeView, PodView


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
                quota = ledger.quota(pod)
                yield Evict(
                    pod=pod.key,
                    uid=uid,
                    version=pod.version,
                    quota=quota.key if quota else "",
                    grace_s=min(pod.grace_s, settings.max_grace_s),
                    reason=names.DEVICE_REPLACED,
                    message=f"GPU {gpu} of node {node.name} was reset or the node restarted, and {item.profile} was made "
                    "anew: the pod was given a device that is not there any more, and each restart would be given it again",
                )
