"""Whatever comes, the webhook answers or says why it cannot; never an error of ours, never a wish let through.

5,000 reviews here, 200,000 by `make bench ONLY=fuzz`. The seed of a failure is in its message.
"""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import names
from tests.builders import raw_pod
from tests.policies.odd_pods import pods
from tests.webhook.fuzz import Fuzzer, faults
from tests.webhook.reviews import CLUSTER, review
from webhook.errors import MalformedReview
from webhook.review import mutate, validate

FOREIGN = (names.GPU_SHARED,)  # nobody shares by time in that cluster


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_review_is_answered_and_no_wish_is_let_through(seed):
    """W34: never `allowed` for what is not understood."""
    fuzzer = Fuzzer(seed)
    for number in range(1000):
        call, written, sound = fuzzer.next()
        found = faults(call, written, CLUSTER, sound=sound, foreign=FOREIGN)
        assert not found, f"seed {seed}, review {number}: {found}\n{json.dumps(written)}"


@given(pods, st.sampled_from(["team-a", "strict", "lent", "broken", "one", "ruled", "faulty"]))
def test_odd_pods_are_answered_too(pod, namespace):
    written = json.loads(review(pod, namespace=namespace))
    assert faults(mutate, written, CLUSTER, sound=True, foreign=FOREIGN) == []


def test_the_same_seed_gives_the_same_reviews():
    one, other = Fuzzer(7), Fuzzer(7)
    assert [one.next()[1] for _ in range(50)] == [other.next()[1] for _ in range(50)]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({"limits": {"nvidia.com/gpu": "500m"}}, id="a share"),
        pytest.param({"limits": {"nvidia.com/gpu-10g": "1"}}, id="a near miss of a resource"),
        pytest.param({"annotations": {"nos.nebuly.com/gpu-fractoin": "0.5"}}, id="a near miss of an annotation"),
        pytest.param({"annotations": {names.FRACTION: "0.5"}}, id="an annotation without a record"),
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, id="a slice without a record"),
    ],
)
def test_the_fuzzer_sees_what_a_careless_webhook_lets_through(found):
    """The twin: a webhook that allows everything."""

    def careless(_body, _cluster):
        return b'{"response":{"uid":"7b2e","allowed":true}}'

    written = json.loads(review(raw_pod(**found)))
    unanswered, last_look = faults(careless, written, CLUSTER, sound=True)
    assert unanswered.startswith("unanswered: ")
    assert last_look == "the last look denies what was admitted"


_BITS = (
    b"\\ud800",
    b"\xff",
    b"\xed\xa0\x80",
    b'"',
    b"{",
    b"[[[[",
    b"\\u0000",
    b"1e999",
    b"null",
    b",",
    b"-",
    b"\\",
    b"}",
)


def damaged(body, some):
    """Return a body with some bytes of it lost, changed, or put between."""
    at = some.randrange(len(body))
    match some.randrange(4):
        case 0:
            return body[:at] + body[at + some.randrange(1, 20) :]
        case 1:
            return body[:at] + some.choice(_BITS) + body[at:]
        case 2:
            return body[:at] + bytes([some.randrange(256)]) + body[at + 1 :]
        case _:
            return body[:at]


def test_a_damaged_body_is_answered_or_malformed():
    some, fuzzer, malformed = random.Random(1), Fuzzer(1), 0
    for _ in range(2000):
        call, written, _ = fuzzer.next()
        try:
            call(damaged(json.dumps(written).encode(), some), CLUSTER)
        except MalformedReview:
            malformed += 1
    assert malformed > 1000


@pytest.mark.parametrize("call", [mutate, validate])
@pytest.mark.parametrize("depth", [100, 900, 1_000, 100_000])
@pytest.mark.parametrize(
    "where", [b'"options": {"kind": "CreateOptions"}', b'"image": "registry.k8s.io/pause:3.10"', b'"name": "main"']
)
def test_deep_json_is_answered_or_malformed(call, depth, where):
    """And never the end of the process: nothing here recurses in C without a limit."""
    pod = raw_pod(annotations={names.FRACTION: "0.5"})
    key = where.partition(b":")[0]
    body = review(pod, pod, operation="UPDATE").replace(where, key + b": " + b"[" * depth + b"]" * depth)
    assert body.count(b"[[") > 0
    try:
        answer = json.loads(call(body, CLUSTER))["response"]
    except MalformedReview:
        assert depth > 100
    else:
        assert answer["allowed"] is (where != b'"name": "main"')


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(raw_pod("lent/x", requests={"cpu": "1/0"}), id="no quantity"),
        pytest.param(raw_pod("lent/x", created="yesterday"), id="no time"),
        pytest.param(raw_pod("lent/x", created="0001-01-01T00:00:00"), id="a time before all others"),
    ],
)
def test_an_amount_or_a_time_that_is_none_is_denied(pod):
    """The API server lets none pass; who calls besides is told what is wrong with it."""
    answer = json.loads(mutate(review(pod, namespace="lent"), CLUSTER))["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 422)
