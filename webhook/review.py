"""AdmissionReviews in, answers out: who answers which kind. Each kind has a line here.

A review is answered from memory, and all that stays of one is what `webhook.tally` remembers for seconds. What is decided
is `policies`' matter.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from policies import names
from policies.model import CompositeElasticQuota, ElasticQuota
from policies.templates import KINDS
from webhook.cluster import Cluster
from webhook.envelope import GroupResource, Request, allowed, invalid, read
from webhook.errors import MalformedReview
from webhook.guard import guard_binding, guard_namespace, guard_pod
from webhook.objects import validate_policy, validate_quota
from webhook.pods import mutate_pod
from webhook.templates import mutate_template

Reviewer = Callable[[Request, Cluster], bytes]

MUTATING: Final[Mapping[GroupResource, Reviewer]] = {
    ("", "pods"): mutate_pod,
    **{(kind.group, kind.plural): partial(mutate_template, kind) for kind in KINDS},
}
VALIDATING: Final[Mapping[GroupResource, Reviewer]] = {
    ("", "pods"): guard_pod,
    ("", "bindings"): guard_binding,
    ("", "namespaces"): guard_namespace,
    (names.API_GROUP, "elasticquotas"): partial(validate_quota, ElasticQuota),
    (names.API_GROUP, "compositeelasticquotas"): partial(validate_quota, CompositeElasticQuota),
    (names.API_GROUP, "gpupolicies"): validate_policy,
}


def mutate(body: bytes, cluster: Cluster) -> bytes:
    """Return the answer of the mutating webhook. Raises MalformedReview."""
    return _review(body, cluster, MUTATING)


def validate(body: bytes, cluster: Cluster) -> bytes:
    """Return the answer of the validating webhook. Raises MalformedReview."""
    return _review(body, cluster, VALIDATING)


def _review(body: bytes, cluster: Cluster, reviewers: Mapping[GroupResource, Reviewer]) -> bytes:
    try:
        request = read(body)
        reviewer = reviewers.get(request.group_resource)
        if reviewer is None:
            known = ", ".join(plural for _, plural in reviewers)
            raise MalformedReview(f"{request.resource.resource}: not reviewed here, only {known}")
        return _answer(request, reviewer, cluster)
    except RecursionError as error:  # no object of the API is: somebody else calls
        raise MalformedReview("it is nested more deeply than can be read") from error
    except msgspec.DecodeError as error:  # text in an object that is none
        raise MalformedReview(str(error)) from error


def _answer(request: Request, reviewer: Reviewer, cluster: Cluster) -> bytes:
    if not request.judged:
        return allowed(request)
    try:
        return reviewer(request, cluster)
    except msgspec.ValidationError as error:  # an amount or a time that is none: the API server lets none pass
        return invalid(request, (f"{request.resource.resource}: {error}",))
