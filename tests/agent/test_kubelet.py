"""Which device a pod gets, and how the simulated kubelet keeps account of devices."""

import pytest

from policies.catalogue import by_product
from policies.view import view_pod
from reconciler.agent.kubelet import preferred
from reconciler.agent.simulated.kubelet import SimulatedKubelet
from tests.builders import A30, A100, container, make_pod

ONE = "nvidia.com/mig-1g.5gb"


def devices(*ids, resource=ONE):
    return {resource: dict.fromkeys(ids, True)}


def pod(key, count=1, *, resource=ONE, uid="", created=None, **fields):
    return view_pod(
        make_pod(key, limits={resource: count}, node="n1", uid=uid or f"uid-{key}", created=created, **fields)
    )


class Kubelet:
    """A simulated kubelet with its pods and a clock that the test turns."""

    def __init__(self, **options):
        self.pods, self.now, self.rejected = [], 0.0, []
        self.real = SimulatedKubelet(
            lambda: self.pods,
            tell=lambda one, _reason, message: self.rejected.append((one.key, message)),
            clock=lambda: self.now,
            **options,
        )


@pytest.mark.parametrize(
    ("available", "size", "held", "chosen"),
    [
        pytest.param(["A/1g/0", "A/1g/1", "B/1g/0"], 2, [], ["A/1g/0", "B/1g/0"], id="one-pod-is-spread"),
        pytest.param(["A/1g/0", "A/1g/1", "B/1g/0"], 3, [], ["A/1g/0", "B/1g/0", "A/1g/1"], id="and-then-again"),
        pytest.param(["A/1g/0", "B/1g/0"], 1, ["B/3g/4"], ["B/1g/0"], id="different-pods-are-packed"),
        pytest.param(["A/1g/0", "B/1g/0"], 1, ["A/1g/5", "B/3g/4", "B/1g/5"], ["B/1g/0"], id="the-fullest-board"),
        pytest.param(["B/1g/0", "A/1g/1", "A/1g/0"], 1, [], ["A/1g/0"], id="else-by-name"),
        pytest.param(["A/1g/0"], 2, [], ["A/1g/0"], id="fewer-than-asked"),
        pytest.param([], 1, [], [], id="none"),
    ],
)
def test_slices_of_one_pod_are_spread_and_pods_are_packed(available, size, held, chosen):
    assert preferred(available, size, held) == tuple(chosen)


@pytest.mark.parametrize(
    ("product", "profile", "available", "held", "chosen"),
    [
        pytest.param(A100, "1g.5gb", range(7), [], 6, id="a-lone-1g-at-6"),
        pytest.param(A100, "1g.5gb", range(6), ["1g.5gb/6"], 4, id="the-next-where-3g-has-no-place-left"),
        pytest.param(A100, "1g.5gb", (1, 4, 5), ["1g.5gb/0"], 1, id="beside-a-1g-at-0"),
        pytest.param(A100, "3g.20gb", (0, 4), [], 4, id="a-lone-3g-at-4"),
        pytest.param(A100, "1g.10gb", (4, 6), ["3g.20gb/0"], 6, id="beside-a-3g-a-2g-keeps-4"),
        pytest.param(A30, "1g.6gb", range(4), ["1g.6gb/2"], 3, id="an-a30-keeps-2g-at-0"),
    ],
)
def test_on_a_board_whose_model_is_known_the_slice_is_taken_beside_which_most_starts_are_left(
    product, profile, available, held, chosen
):
    """Section 5: most starts left for 7g, then 4g, 3g, 2g; the lowest of equals."""
    ids = [f"A/{profile}/{start}" for start in available]
    beside = [f"A/{device}" for device in held]
    assert preferred(ids, 1, beside, models={"A": by_product(product)}) == (f"A/{profile}/{chosen}",)


def test_slices_of_which_the_model_knows_nothing_are_taken_by_name():
    models = {"A": by_product(A100)}
    assert preferred(["A/9g.99gb/1", "A/9g.99gb/0"], 1, [], models=models) == ("A/9g.99gb/0",)
    assert preferred(["A/10gb/1", "A/10gb/0"], 1, [], models=models) == ("A/10gb/0",)


def test_pods_get_devices_in_the_order_in_which_they_came():
    kubelet = Kubelet(announced=devices("A/1g/0", "A/1g/1"))
    kubelet.pods = [
        pod("ns/b", created="2026-01-01T00:00:02Z"),
        pod("ns/c", created="2026-01-01T00:00:01Z"),
        pod("ns/a", created="2026-01-01T00:00:02Z"),
    ]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/c", "A/1g/1": "ns/a"}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([], id="deleted"),
        pytest.param([pod("ns/a", phase="Succeeded")], id="finished"),
        pytest.param([pod("ns/a", uid="another", phase="Failed")], id="failed"),
    ],
)
def test_a_device_is_free_when_its_pod_has_ended(after):
    kubelet = Kubelet(announced=devices("A/1g/0"))
    kubelet.pods = [pod("ns/a")]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}
    assert kubelet.real.holds("A/1g/0")
    kubelet.pods = after
    assert kubelet.real.allocated() == {}


def test_a_pod_made_anew_under_the_same_name_is_another_pod():
    kubelet = Kubelet(announced=devices("A/1g/0", "B/1g/0"))
    kubelet.pods = [pod("ns/a", count=2)]
    assert set(kubelet.real.allocated()) == {"A/1g/0", "B/1g/0"}
    kubelet.pods = [pod("ns/a", uid="second")]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}


def test_a_terminating_pod_holds_its_device_until_it_is_gone():
    kubelet = Kubelet(announced=devices("A/1g/0"))
    raw = pod("ns/a")
    kubelet.pods = [type(raw)(**{f: getattr(raw, f) for f in raw.__struct_fields__} | {"terminating": True})]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}


def test_containers_of_a_pod_get_slices_of_several_kinds():
    kubelet = Kubelet(announced=devices("A/1g/0") | devices("A/2g/2", resource="nvidia.com/mig-2g.10gb"))
    both = [container("a", limits={ONE: 1}), container("b", limits={"nvidia.com/mig-2g.10gb": 1})]
    kubelet.pods = [view_pod(make_pod("ns/a", containers=both, node="n1"))]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a", "A/2g/2": "ns/a"}


def test_a_pod_without_a_device_is_named_once_as_the_kubelet_would_and_served_when_there_is_one():
    kubelet = Kubelet(announced=devices("A/1g/0"))
    kubelet.pods = [pod("ns/a"), pod("ns/b")]
    for _ in range(3):
        assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}
    assert kubelet.rejected == [
        (
            "ns/b",
            f"Allocate failed due to requested number of devices unavailable for {ONE}. "
            "Requested: 1, Available: 0, which is unexpected",
        )
    ]
    kubelet.real.announce(devices("A/1g/0", "A/1g/1"))
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a", "A/1g/1": "ns/b"}


def test_withdrawn_and_unhealthy_devices_are_not_given_away_but_stay_with_their_pod():
    kubelet = Kubelet(announced=devices("A/1g/0", "A/1g/1"))
    kubelet.pods = [pod("ns/a")]
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}
    kubelet.real.announce({ONE: {"A/1g/1": False}})
    kubelet.pods.append(pod("ns/b"))
    assert kubelet.real.allocatable() == frozenset()
    assert kubelet.real.allocated() == {"A/1g/0": "ns/a"}


def test_an_announcement_is_taken_over_after_the_delay_and_repeating_it_starts_no_new_one():
    kubelet = Kubelet(announced=devices("A/1g/0"), delay_s=1.0)
    kubelet.real.announce(devices("A/1g/1"))
    kubelet.now = 0.9
    kubelet.real.announce(devices("A/1g/1"))
    assert kubelet.real.allocatable() == {"A/1g/0"}
    kubelet.now = 1.0
    assert kubelet.real.allocatable() == {"A/1g/1"}
