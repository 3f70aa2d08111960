"""Mutation of workloads: shares in their templates become annotations."""

from policies.templates import Kind, admit_template
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, answered, decode, invalid


def mutate_template(kind: Kind, request: Request, _cluster: Cluster) -> bytes:
    """Return the answer for a workload that is created or updated; subresources have no template."""
    if request.sub_resource:
        return allowed(request)
    new, faults = decode(request.object, kind.model)
    old, older = decode(request.old_object, kind.model) if request.operation == "UPDATE" else (None, ())
    if new is None or older:
        return invalid(request, (*faults, *older))
    return answered(request, admit_template(kind, new, old))
