"""Bursts of pods: what a replica has given away counts as taken until a node shows it, or for ten seconds."""

from collections import Counter
from types import SimpleNamespace

import jsonpatch
import pytest

from policies import names
from policies.annotations import PlacedSlice, write_status
from policies.estimate import UNGOVERNED
from policies.gpupolicy import UNWRITTEN
from policies.inventory import Inventory
from policies.settings import DEFAULTS
from policies.site import site_of
from policies.view import view_node
from tests.builders import A30, A100, A100_80, T4, make_node, raw_pod
from tests.webhook.reviews import answer, patch_of, review
from webhook.review import mutate
from webhook.tally import Tally

QUARTER = raw_pod(annotations={names.FRACTION: "0.25"})
TWO = raw_pod(annotations={names.FRACTION: "0.25", names.COUNT: "2"})
MIXED = (
    make_node("a100-40", A100, count=2),
    make_node("a100-80", A100_80),
    make_node("t4", T4, mode="mps"),
    make_node("a30", A30),
)


class Replica:
    """A webhook as far as it answers reviews, with a clock that the test turns."""

    def __init__(self, *nodes):
        self.now = 100.0
        sites = [site_of(view_node(node)) for node in nodes]
        self.sites = {site.name: site for site in sites}
        self.cluster = SimpleNamespace(
            inventory=Inventory(self.sites), tally=Tally(lambda: self.now), labels_of=lambda _: {}, policies=UNWRITTEN,
            settings=DEFAULTS, standings=UNGOVERNED,
        )  # fmt: skip

    def created(self, pod, **fields):
        """Return a new pod as it is admitted."""
        return jsonpatch.apply_patch(pod, patch_of(answer(mutate, review(pod, **fields), self.cluster)))

    def gets(self, pod=QUARTER, **fields):
        """Return the profile that a new pod gets."""
        (slices,) = self.created(pod, **fields)["spec"]["containers"][0]["resources"]["limits"]
        return slices.removeprefix("nvidia.com/mig-")

    def shows(self, node):
        """Let a node change, as the watch tells it."""
        before, after = self.sites.get(node.metadata.name), site_of(view_node(node))
        self.sites = {**self.sites, after.name: after}
        self.cluster.inventory = self.cluster.inventory.replaced(after.name, after)
        self.cluster.tally.shown(before, after)


def using(*starts):
    """Return the A30 of MIXED with slices in use."""
    slices = tuple(PlacedSlice(profile="1g.6gb", start=start, used=True) for start in starts)
    return make_node("a30", A30, annotations=write_status({0: slices}, "1"))


def test_a_burst_spreads_over_the_models_that_have_room():
    """Fourteen replicas that nobody has planned yet: 4 on the A30, 8 on two A100 of 40 GB, 2 on the one of 80 GB."""
    replica = Replica(*MIXED)
    assert Counter(replica.gets() for _ in range(14)) == {"1g.6gb": 4, "1g.10gb": 8, "1g.20gb": 2}


def test_where_nothing_is_left_a_burst_waits_where_the_fewest_are_ahead():
    """The same for 19 where 16 have room: the last three wait for one model each."""
    replica = Replica(*MIXED)
    assert Counter(replica.gets() for _ in range(19)) == {"1g.6gb": 5, "1g.10gb": 9, "1g.20gb": 5}


def test_explicit_slices_are_counted_too():
    replica = Replica(*MIXED)
    replica.created(raw_pod(limits={"nvidia.com/mig-1g.6gb": "3"}))
    assert [replica.gets() for _ in range(2)] == ["1g.6gb", "1g.10gb"]


def test_each_of_several_slices_is_counted():
    replica = Replica(*MIXED)
    assert [replica.gets(TWO) for _ in range(3)] == ["1g.6gb", "1g.6gb", "1g.10gb"]


def test_slices_of_another_size_take_the_room_that_they_have():
    """A half of the A30 leaves two quarters."""
    replica = Replica(*MIXED)
    replica.created(raw_pod(limits={"nvidia.com/mig-2g.12gb": "1"}))
    assert [replica.gets() for _ in range(3)] == ["1g.6gb", "1g.6gb", "1g.10gb"]


def filled():
    """Return a replica that has just given away the whole A30."""
    replica = Replica(*MIXED)
    assert [replica.gets() for _ in range(4)] == ["1g.6gb"] * 4
    return replica


@pytest.mark.parametrize(("later", "profile"), [(9.9, "1g.10gb"), (10.0, "1g.6gb")], ids=["9.9 s", "10 s"])
def test_after_ten_seconds_it_is_forgotten(later, profile):
    """Who is not bound by then waits for something else, or was never created."""
    replica = filled()
    replica.now += later
    assert replica.gets() == profile


def test_what_a_node_shows_in_use_is_not_counted_twice():
    """Three of four are bound, and one of these has ended: one is still to come, two are in use, one is free."""
    replica = filled()
    replica.shows(using(0, 1, 2))
    replica.shows(using(0, 1))
    assert [replica.gets() for _ in range(2)] == ["1g.6gb", "1g.10gb"]


def test_a_node_that_comes_with_slices_in_use_shows_no_more_than_was_given_away():
    """It comes with four others of the same kind: all four that were given away are taken to be these."""
    replica = filled()
    replica.shows(make_node("other", A30, annotations=using(0, 1, 2, 3).metadata.annotations))
    assert [replica.gets() for _ in range(5)] == [*["1g.6gb"] * 4, "1g.10gb"]


def test_what_other_slices_a_node_shows_has_nothing_to_do_with_it():
    replica = filled()
    replica.shows(make_node("a100-40", A100, count=2, annotations=write_status({0: (PlacedSlice(profile="1g.5gb", start=0, used=True),)}, "1")))  # fmt: skip
    assert replica.gets() == "1g.10gb"


@pytest.mark.parametrize(
    ("pod", "fields"),
    [
        pytest.param(QUARTER, {"dryRun": True}, id="a dry run"),
        pytest.param(raw_pod(annotations={names.FRACTION: "0.25"}, node="a30"), {}, id="a pod that is denied"),
        pytest.param(QUARTER, {"user": "system:serviceaccount:apportion-system:x"}, id="a pod of our own"),
        pytest.param(raw_pod(limits={"nvidia.com/mig-1g.10gb": "1"}), {}, id="a slice that several models make"),
    ],
)
def test_some_reviews_give_nothing_away(pod, fields):
    replica = Replica(make_node("a30", A30), make_node("a100", A100), make_node("a100-80", A100_80))
    for _ in range(20):
        answer(mutate, review(pod, **fields), replica.cluster)
    assert Counter(replica.gets() for _ in range(8)) == {"1g.6gb": 4, "1g.10gb": 4}


def test_a_pod_that_is_reviewed_again_has_been_counted():
    """Reinvocation: other webhooks have changed it since, and it comes with our record."""
    replica = Replica(*MIXED)
    admitted = replica.created(QUARTER)
    for _ in range(10):
        assert replica.created(admitted) == admitted
    assert [replica.gets() for _ in range(4)] == ["1g.6gb"] * 3 + ["1g.10gb"]


def test_a_review_that_fails_leaves_the_tally_as_it_was():
    tally = Tally(lambda: 0.0)

    def fail(_taken):
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="of ours"):
        tally.answer(fail, counts=True)
    assert tally.answer(lambda taken: taken, counts=False) == {}
