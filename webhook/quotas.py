"""Validation of quotas: everything that can be seen beforehand is refused when they are written."""

from policies.governing import view_quota
from policies.model import CompositeElasticQuota, ElasticQuota
from policies.quotarules import judge_quota
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, decode, invalid


def validate_elastic(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for an ElasticQuota."""
    return _validate(request, ElasticQuota, cluster)


def validate_composite(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a CompositeElasticQuota."""
    return _validate(request, CompositeElasticQuota, cluster)


# ---------------------------------------------------------------------------------------------------------------------


def _validate(request: Request, kind: type[ElasticQuota | CompositeElasticQuota], cluster: Cluster) -> bytes:
    quota, faults = decode(request.object, kind)
    if quota is None:
        return invalid(request, faults)
    old = decode(request.old_object, kind)[0] if request.operation == "UPDATE" else None
    if old and (quota.metadata.deletion_timestamp or quota.spec == old.spec):
        return allowed(request)  # a finalizer that goes, for one: what stands there already is not judged again
    judged = judge_quota(view_quota(quota), cluster.quotas, view_quota(old) if old else None, exists=cluster.knows)
    if judged.faults:
        return invalid(request, judged.faults)
    return allowed(request, warnings=judged.warnings)
