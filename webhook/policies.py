"""Validation of policies: everything that the schema cannot see is refused when they are written."""

from policies.gpupolicy import view_policy
from policies.model import GpuPolicy
from policies.policyrules import judge_policy
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, decode, invalid


def validate_policy(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a GpuPolicy."""
    policy, faults = decode(request.object, GpuPolicy)
    if policy is None:
        return invalid(request, faults)
    old = decode(request.old_object, GpuPolicy)[0] if request.operation == "UPDATE" else None
    if old and (policy.metadata.deletion_timestamp or policy.spec == old.spec):
        return allowed(request)  # a finalizer that goes, for one: what stands there already is not judged again
    judged = judge_policy(view_policy(policy), cluster.policies.views, cluster.inventory.products)
    if judged.faults:
        return invalid(request, judged.faults)
    return allowed(request, warnings=judged.warnings)
