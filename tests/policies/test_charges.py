"""What pods cost their quotas: every form in one unit, by the board that they are, or may come to be, on."""

import pytest

from policies import names
from policies.catalogue import by_product
from policies.charges import Charges, Place, Places, largest_share, share_of
from policies.settings import QuotaSettings
from policies.settle import settle
from policies.view import View, view_node, view_pod
from tests.builders import A30, A100, A100_80, container, make_node, make_pod
from tests.policies.teams import quota

SETTINGS = QuotaSettings()
RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


def cost(pod, *nodes, settings=SETTINGS):
    """Return (GPUs, GB) in thousandths."""
    charge = Charges(Places([view_node(node) for node in nodes]), settings).of(view_pod(pod)).amounts
    return charge.get(names.GPU), charge.get(names.GPU_MEMORY_QUOTA)


@pytest.mark.parametrize(
    ("limits", "gpus", "gigabytes"),
    [
        pytest.param({"nvidia.com/gpu": "2"}, 2000, 64_000, id="whole: 32 GB each"),
        pytest.param({"nvidia.com/mig-3g.20gb": "1"}, 500, 20_000, id="4 of 8 memory units"),
        pytest.param({"nvidia.com/mig-2g.10gb": "1"}, 250, 10_000, id="2 of 8"),
        pytest.param({"nvidia.com/mig-1g.5gb": "3"}, 375, 15_000, id="3 times 1 of 8"),
        pytest.param({"nvidia.com/mig-1g.5gb.me": "1"}, 125, 5000, id="with media engines"),
        pytest.param({"nvidia.com/gpu-10gb": "1"}, 250, 10_000, id="MPS: 10 of 40 GB"),
        pytest.param({"nvidia.com/gpu-7gb": "1"}, 175, 7000, id="MPS: 7 of 40 GB"),
        pytest.param({"nvidia.com/gpu.shared": "1"}, 250, 8000, id="a quarter of a time-sliced GPU"),
        pytest.param({"cpu": "2"}, None, None, id="no GPU"),
    ],
)
def test_every_form_costs_in_the_same_unit(limits, gpus, gigabytes):
    """Q33: four ways to ask for GPU memory, and none slips past."""
    nodes = [make_node("mig"), make_node("mps", mode=names.MPS)]
    assert cost(make_pod(limits=limits), *nodes) == (gpus, gigabytes)


def test_half_a_gpu_that_has_become_a_slice_stays_in_the_quota_of_gpus():
    """Q32: under its new name a ResourceQuota on requests.nvidia.com/gpu no longer counts it; ours does, for two of two."""
    nodes = tuple(map(view_node, (make_node("mps", mode=names.MPS),)))
    limits = {"nvidia.com/gpu-20gb": "1"}
    pods = [view_pod(make_pod(f"a/{name}", limits=limits, node="mps", phase="Running")) for name in ("x", "y")]
    late = view_pod(make_pod("a/z", limits=limits, gates=(names.GATE,)))
    decision = settle(View(nodes=nodes, pods=(*pods, late), quotas=(quota("a", 1, 1),)))
    assert [status.used for status in decision.quotas] == [{names.GPU: 1000}]
    assert [(item.pod, item.reason) for item in decision.waiting] == [("a/z", names.ABOVE_MAX)]


def test_a_share_is_rounded_up_for_each_slice():
    model = by_product(A30)
    assert [share_of(model, name) for name in ("1g.6gb", "2g.12gb", "4g.24gb", "7gb", "24gb")] == [
        250,
        500,
        1000,
        292,
        1000,
    ]
    assert [share_of(model, name) for name in ("25gb", "1g.5gb")] == [0, 0]


def test_before_it_is_bound_a_pod_costs_the_largest_share_that_it_may_get():
    """1g.10gb is 2 of 8 memory units on an A100-40, and 1 of 8 on an A100-80."""
    small, large = make_node("small", A100), make_node("large", A100_80)
    limits = {"nvidia.com/mig-1g.10gb": "1"}
    assert cost(make_pod(limits=limits), small, large) == (250, 10_000)
    assert cost(make_pod(limits=limits, nodeSelector={"kubernetes.io/hostname": "large"}), small, large) == (
        125,
        10_000,
    )
    assert cost(make_pod(limits=limits, node="large"), small, large) == (125, 10_000)
    assert cost(make_pod(limits=limits, node="small"), small, large) == (250, 10_000)


def test_boards_that_a_pod_may_never_come_to_do_not_count_but_a_node_that_is_away_comes_back():
    limits = {"nvidia.com/mig-1g.10gb": "1"}
    for key, gpus in (("team", 125), ("node.kubernetes.io/unreachable", 250)):
        small = make_node("small", A100, taints=[{"key": key, "effect": "NoSchedule"}])
        assert cost(make_pod(limits=limits), small, make_node("large", A100_80)) == (gpus, 10_000)


def test_boards_of_another_tool_are_known_by_their_label():
    foreign = make_node("foreign", A100_80, mode=None, resources={"nvidia.com/mig-1g.10gb": "7"})
    assert cost(make_pod(limits={"nvidia.com/mig-1g.10gb": "1"}), foreign) == (125, 10_000)


def test_without_a_board_that_makes_it_the_table_decides_and_an_unknown_slice_is_a_whole_gpu():
    assert largest_share("1g.10gb", Place()) == 250
    assert largest_share("9g.999gb", Place()) == 1000


def test_a_slice_by_the_name_of_another_driver_costs_what_it_is():
    """P22: early drivers of the GB200 call 3g.93gb 3g.95gb."""
    assert largest_share("3g.95gb", Place(boards=frozenset({("mig", by_product("NVIDIA-GB200"))}))) == 500


def test_a_time_sliced_gpu_counts_by_the_label_of_its_node():
    shared = make_node("shared", labels={names.REPLICAS_LABEL: "10"}, mode=names.TIMESLICING)
    assert cost(make_pod(limits={"nvidia.com/gpu.shared": "1"}), shared) == (100, 3200)


def test_before_it_is_bound_a_turn_of_a_gpu_costs_what_it_does_where_fewest_share_one():
    nodes = [
        make_node(f"in-{parts}", labels={names.REPLICAS_LABEL: parts}, mode=names.TIMESLICING) for parts in ("2", "10")
    ]
    silent = make_node("silent", mode=names.TIMESLICING)
    assert cost(make_pod(limits={"nvidia.com/gpu.shared": "1"}), *nodes, silent) == (500, 16_000)


def test_settings_say_what_a_whole_gpu_counts():
    settings = QuotaSettings(gpu_memory_gb=80, shared_replicas=2)
    assert cost(make_pod(limits={"nvidia.com/gpu": "1"}), settings=settings) == (1000, 80_000)
    assert cost(make_pod(limits={"nvidia.com/gpu.shared": "1"}), settings=settings) == (500, 40_000)


@pytest.mark.parametrize(
    ("init", "apps", "gpus"),
    [
        pytest.param([], [1, 2], 3000, id="apps together"),
        pytest.param([{}], [2, 2], 4000, id="Q30: an init container without a GPU changes nothing"),
        pytest.param([2], [1], 2000, id="W01: the larger of init and apps"),
        pytest.param([(1, "Always"), 2], [1], 3000, id="init beside a sidecar that was started before"),
        pytest.param([2, (1, "Always")], [1], 2000, id="init before the sidecar"),
    ],
)
def test_a_pod_costs_what_it_needs_at_its_peak(init, apps, gpus):
    def made(index, what):
        count, restart = what if isinstance(what, tuple) else (what, None)
        limits = {"nvidia.com/gpu": str(count)} if isinstance(count, int) else {"cpu": "1"}
        return container(f"c{index}", limits=limits, **({"restartPolicy": restart} if restart else {}))

    containers = [made(index, what) for index, what in enumerate(apps)]
    pod = make_pod(containers=containers, init=[made(10 + index, what) for index, what in enumerate(init)])
    assert cost(pod)[0] == gpus


def test_slices_of_different_moments_are_not_added_up():
    """Derived first, then the peak: an init container on 1g.5gb and an app on 2g.10gb never hold both."""
    pod = make_pod(
        init=[container("init", limits={"nvidia.com/mig-1g.5gb": "1"})],
        containers=[container(limits={"nvidia.com/mig-2g.10gb": "1"})],
    )
    assert cost(pod, make_node()) == (250, 10_000)
