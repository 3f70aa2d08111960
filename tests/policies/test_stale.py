"""Pods on slices that a reboot has made anew under them: their node's agent names them, and they go (docs/adr/0023)."""

import pytest
from msgspec.structs import replace

from policies.settle import settle
from policies.view import view_pod
from tests.builders import A30
from tests.policies.cluster import bound, cluster, gated, node, used
from tests.policies.teams import quota

NOW = 1000.0
STALE = used("2g.12gb", 2) | {"pod": "ml/train", "stale": "uid-1"}


def restarted(**pod):
    """Return a view with a node that was restarted, and two pods on it of which one was told of a device that is gone."""
    fields = {"uid": "uid-1", **pod}
    pods = [bound("ml/train", "n1", "2g.12gb", **fields), bound("ml/other", "n1", "2g.12gb", uid="uid-2")]
    there = node("n1", A30, placements={"0": [used("2g.12gb", 0) | {"pod": "ml/other"}, STALE]})
    return cluster([there], pods, now=NOW)


def test_a_pod_whose_slice_was_made_anew_is_evicted_for_nobody():
    (evict,) = settle(restarted()).evict
    assert (evict.pod, evict.uid, evict.claimant, evict.reason) == ("ml/train", "uid-1", "", "DeviceReplaced")
    assert evict.message == (
        "GPU 0 of node n1 was reset or the node restarted, and 2g.12gb was made anew: the pod was given a device that is "
        "not there any more, and each restart would be given it again"
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"uid": "uid-of-the-next"}, id="made again under its name, while the agent has not reported yet"),
        pytest.param({"node": "n2"}, id="bound elsewhere: an agent has no say on pods of another node"),
        pytest.param({"terminating": True}, id="on its way out already"),
        pytest.param({"refused_until": NOW + 1}, id="refused until later, by a budget"),
    ],
)
def test_others_stay_where_they_are(fields):
    view = restarted()
    pods = [replace(pod, **fields) if pod.key == "ml/train" else pod for pod in view.pods]
    assert settle(replace(view, pods=tuple(pods))).evict == ()


def test_it_goes_once_and_for_a_claimant_if_there_is_one():
    view = restarted()
    pods = [replace(pod, created=900 if pod.key == "ml/train" else 100) for pod in view.pods]
    claimant = view_pod(gated("team/urgent", "2g.12gb"))
    quotas = (quota("team", 1), quota("ml", 0))
    evictions = settle(replace(view, pods=(*pods, claimant), quotas=quotas)).evict
    assert [(evict.pod, evict.claimant, evict.reason) for evict in evictions] == [
        ("ml/train", "team/urgent", "Reclaimed")
    ]


def test_a_node_that_is_not_ready_yet_loses_such_pods_too():
    """It comes up: until it is ready nobody else is served there, and the pod need not wait for that."""
    view = restarted()
    away = replace(view, nodes=tuple(replace(one, ready=False) for one in view.nodes))
    assert [evict.pod for evict in settle(away).evict] == ["ml/train"]
