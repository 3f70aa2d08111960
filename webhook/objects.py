"""Validation of our own objects, quotas and policies: what can be seen beforehand is refused when they are written."""

from collections.abc import Callable
from typing import TypeVar

from policies.governing import view_quota
from policies.gpupolicy import view_policy
from policies.judgement import Judgement
from policies.model import CompositeElasticQuota, ElasticQuota, GpuPolicy
from policies.policyrules import judge_policy
from policies.quotarules import judge_quota
from webhook.cluster import Cluster
from webhook.envelope import Request, allowed, decode, invalid

Quota = ElasticQuota | CompositeElasticQuota
T = TypeVar("T", bound=Quota | GpuPolicy)


def validate_quota(kind: type[Quota], request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a quota of one of the two kinds."""

    def judge(quota: Quota, old: Quota | None) -> Judgement:
        return judge_quota(view_quota(quota), cluster.quotas, view_quota(old) if old else None, exists=cluster.knows)

    return _validate(kind, judge, request)


def validate_policy(request: Request, cluster: Cluster) -> bytes:
    """Return the answer for a GpuPolicy."""

    def judge(policy: GpuPolicy, _old: GpuPolicy | None) -> Judgement:
        return judge_policy(view_policy(policy), cluster.policies.views, cluster.inventory.products)

    return _validate(GpuPolicy, judge, request)


# ---------------------------------------------------------------------------------------------------------------------


def _validate(kind: type[T], judge: Callable[[T, T | None], Judgement], request: Request) -> bytes:
    new, faults = decode(request.object, kind)
    if new is None:
        return invalid(request, faults)
    old = decode(request.old_object, kind)[0] if request.operation == "UPDATE" else None
    if old and (new.metadata.deletion_timestamp or new.spec == old.spec):
        return allowed(request)  # a finalizer that goes, for one: what stands there already is not judged again
    judged = judge(new, old)
    return invalid(request, judged.faults) if judged.faults else allowed(request, warnings=judged.warnings)
