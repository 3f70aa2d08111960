"""Mutation of pods: a new one gets its slices, an updated one keeps them."""

from typing import Final

from policies.admission import Admission, admit
from policies.model import Pod
from policies.outstanding import Outstanding
from policies.readmission import readmit
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, answered, decode, invalid

_MIRROR: Final = "kubernetes.io/config.mirror"  # the API's shadow of a static pod, which the kubelet runs anyway


def mutate_pod(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a pod that is created or updated; subresources are none of ours to change."""
    if request.sub_resource:
        return allowed(request)
    pod, faults = decode(request.object, Pod)
    if pod is None:
        return invalid(request, faults)
    if is_mirror(pod, request):
        return allowed(request)
    if request.operation == "UPDATE":
        old, faults = decode(request.old_object, Pod)
        return invalid(request, faults) if old is None else answered(request, readmit(pod, old))

    def decide(taken: Outstanding) -> Admission:
        return admit(
            pod,
            namespace=request.namespace,
            labels=cluster.labels_of(request.namespace),
            inventory=cluster.inventory,
            settings=cluster.settings,
            policy=cluster.policies.governing(request.namespace),
            standings=cluster.standings,
            taken=taken,
        )

    return answered(request, cluster.tally.answer(decide, counts=not request.dry_run))


def is_mirror(pod: Pod, request: Request) -> bool:
    """Return whether a pod is the mirror of a static one. Anyone may write the annotation, only a node is believed."""
    return _MIRROR in (pod.metadata.annotations or {}) and request.by_node
