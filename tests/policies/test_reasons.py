"""Why a pod waits, in one sentence with numbers that is true of the cluster it is said of (pain L01)."""

import msgspec
import pytest
from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, write_inventory
from policies.catalogue import by_product
from policies.governing import view_quota
from policies.model import ElasticQuota
from policies.settle import settle
from tests.builders import A30, A100, make_pod
from tests.policies.cluster import begin, bound, cluster, free, gated, node, node_of, released, used, with_node


def messages(decision):
    return {waiting.pod: waiting.message for waiting in decision.waiting}


ON = "MIG mode is on; for MPS run nvidia-smi -i 0 -mig 0"


def report(*boards, mig=True, fault=None):
    """Return what an agent reports of boards of these indices."""
    return write_inventory(
        BoardInventory(
            index=index,
            uuid=f"GPU-{index}",
            model=A100,
            memory_mib=40536,
            profiles=by_product(A100).profiles,
            mig_capable=True,
            mig=mig,
            switch="admin",
            fault=fault,
        )
        for index in boards
    )


@pytest.mark.parametrize(
    ("nodes", "running", "waits", "reason"),
    [
        pytest.param(
            [node(placements={"0": [used("1g.5gb", 3), used("1g.5gb", 6)]})],
            [bound("x/a", "n1", "1g.5gb"), bound("x/b", "n1", "1g.5gb")],
            gated("ml/w", "3g.20gb"),
            ("NoSliceFits", "needs 3g.20gb; 1 board has 20 GB free, not contiguous"),
            id="P18-not-contiguous",
        ),
        pytest.param(
            [node(count=5, placements={str(i): [used("1g.5gb", 3), used("1g.5gb", 6)] for i in range(5)})],
            [bound("x/a", "n1", "1g.5gb", count=10)],
            gated("ml/w", "3g.20gb"),
            ("NoSliceFits", "needs 3g.20gb; 5 boards have 20 GB free, none contiguous"),
            id="none-contiguous",
        ),
        pytest.param(
            [node(placements={"0": [used("7g.40gb", 0)]})],
            [bound("x/a", "n1", "7g.40gb")],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; no board has 5 GB free (the freest of 1 has 0 GB)"),
            id="full",
        ),
        pytest.param(
            [node(placements={"0": [used("1g.5gb+me", 6)]})],
            [bound("x/a", "n1", "1g.5gb+me")],
            gated("ml/w", "1g.5gb+me"),
            ("NoSliceFits", "needs 1g.5gb+me; 1 board has 5 GB free, but already as many 1g.5gb+me as can be"),
            id="max",
        ),
        pytest.param(
            [node(product=A30, placements={"0": [used("2g.12gb+me", 0)]})],
            [bound("x/a", "n1", "2g.12gb+me")],
            gated("ml/w", "1g.6gb+me"),
            ("NoSliceFits", "needs 1g.6gb+me; 1 board has 6 GB free, but no media engines left"),
            id="media",
        ),
        pytest.param(
            [node(mode="mps", placements={"0": [used("16gb"), used("16gb")]})],
            [bound("x/a", "n1", "16gb", count=2)],
            gated("ml/w", "16gb"),
            ("NoSliceFits", "needs 16gb; no board has 16 GB free (the freest of 1 has 8 GB)"),
            id="mps",
        ),
        pytest.param(
            [node("n1", "NVIDIA-A100-SXM4-80GB", mode="mps", placements={"0": [used("1gb")] * 48})],
            [bound("x/a", "n1", "1gb", count=48)],
            gated("ml/w", "1gb"),
            ("NoSliceFits", "needs 1gb; 1 board has 1 GB free, but no MPS client left"),
            id="clients",
        ),
        pytest.param(
            [node("n1", A30), node("n2", A30)],
            [],
            gated("ml/w", "4g.24gb", count=2),
            ("NoSliceFits", "needs 2 x 4g.24gb on one node; no node has room for more than 1 of them"),
            id="one-node",
        ),
        pytest.param(
            [node("n1", A30, placements={"0": [used("4g.24gb", 0)]})],
            [bound("x/a", "n1", "4g.24gb")],
            gated("ml/w", "4g.24gb", count=2),
            ("NoSliceFits", "needs 2 x 4g.24gb on one node; no node has room for any of them"),
            id="one-node-and-no-room",
        ),
        pytest.param(
            [node("n1", A30)],
            [],
            gated("ml/w", "2g.12gb", "4g.24gb"),
            ("NoSliceFits", "needs 4g.24gb and 2g.12gb on one node; no node has room for all of them"),
            id="several-kinds",
        ),
        pytest.param(
            [node(resources={"cpu": "4"})],
            [released("x/web", cpu="2", node="n1", phase="Running")],
            gated("ml/w", "1g.5gb", cpu="4"),
            ("NodesFull", "needs 1g.5gb; 1 node has a place for that, but not cpu (needs 4, at most 2 left)"),
            id="cpu",
        ),
        pytest.param(
            [node(resources={"cpu": "2"})],
            [],
            gated("ml/w", "1g.5gb", cpu="4"),
            ("NodesFull", "needs 1g.5gb; no node open to the pod is large enough: cpu (needs 4, the largest has 2)"),
            id="too-large",
        ),
        pytest.param(
            [node(resources={"memory": "64Gi", "hugepages-2Mi": "8Gi", "ephemeral-storage": "1536Mi"})],
            [],
            make_pod(
                "ml/w",
                limits={
                    "nvidia.com/mig-1g.5gb": "1", "memory": "80Gi", "hugepages-2Mi": "20Gi", "ephemeral-storage": "2Gi",
                },
                gates=(names.GATE,),
            ),
            (
                "NodesFull",
                "needs 1g.5gb; no node open to the pod is large enough: ephemeral-storage (needs 2Gi, the largest has "
                "1536Mi) and hugepages-2Mi (needs 20Gi, the largest has 8Gi) and memory (needs 80Gi, the largest has 64Gi)",
            ),
            id="too-large-in-bytes",
        ),
        pytest.param(
            [node(resources={"pods": "1"})],
            [bound("x/web", "n1")],
            gated("ml/w", "1g.5gb"),
            ("NodesFull", "needs 1g.5gb; 1 node has a place for that, but not pods (needs 1, at most 0 left)"),
            id="pods",
        ),
        pytest.param(
            [node("n1", resources={"cpu": "2"}), node("n2", resources={"memory": "1Gi"})],
            [],
            make_pod("ml/w", limits={"nvidia.com/mig-1g.5gb": "1", "cpu": "4", "memory": "2Gi"}, gates=(names.GATE,)),
            ("NodesFull", "needs 1g.5gb; 2 nodes have a place for that, but not all of cpu, memory, pods"),
            id="neither-has-all",
        ),
        pytest.param(
            [node(cordoned=True), node("n2", ready=False), node("n3", A30)],
            [],
            gated("ml/w", "7g.40gb"),
            ("NodesAway", "needs 7g.40gb; only nodes that are cordoned or not Ready could give that (2)"),
            id="away",
        ),
        pytest.param(
            [node("n3", A30)],
            [],
            gated("ml/w", "7g.40gb"),
            ("NoBoardMakesSlice", "needs 7g.40gb; no board makes that (1 node in all)"),
            id="no-board",
        ),
        pytest.param(
            [node()],
            [],
            gated("ml/w", "7g.40gb", nodeSelector={"zone": "b"}),
            ("NoBoardMakesSlice", "needs 7g.40gb; 1 node could make that, but none is open to the pod: closed are 1 by its "
             "selector or affinity"),
            id="no-node",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3", taints=({"key": "dedicated", "effect": "NoSchedule"},), labels={"zone": "b"}), node("n4", A30, labels={"zone": "b"})],
            [],
            gated("ml/w", "7g.40gb", nodeSelector={"zone": "b"}),
            ("NoBoardMakesSlice", "needs 7g.40gb; 3 nodes could make that, but none is open to the pod: closed are 2 by its "
             "selector or affinity and 1 by taints"),
            id="L01-by-what-nodes-are-closed",
        ),
        pytest.param(
            [node("n1", placements={"0": [used("7g.40gb", 0)]}, labels={"pool": "a"}), node("n2"), node("n3", A30)],
            [bound("x/a", "n1", "7g.40gb")],
            gated("ml/w", "3g.20gb", nodeSelector={"pool": "a"}),
            ("NoSliceFits", "needs 3g.20gb; no board has 20 GB free (the freest of 1 has 0 GB); only 1 of 2 nodes that could give "
             "that has what the pod's nodeSelector (pool=a) wants"),
            id="a-selector-leaves-one-node",
        ),
        pytest.param(
            [node("n1", placements={"0": [used("7g.40gb", 0)]}, labels={"pool": "a"}), node("n2", A30)],
            [bound("x/a", "n1", "7g.40gb")],
            gated("ml/w", "3g.20gb", nodeSelector={"pool": "a"}),
            ("NoSliceFits", "needs 3g.20gb; no board has 20 GB free (the freest of 1 has 0 GB)"),
            id="a-selector-leaves-out-only-who-could-not-give-it",
        ),
        pytest.param(
            [node(placements={"0": [used("4g.20gb", 0)]}), node("n2", mode="mps"), node("n3", placements={"0": [used("7g.40gb", 0)]})],
            [bound("x/a", "n1", "4g.20gb"), bound("x/b", "n3", "7g.40gb")],
            gated("ml/w", "4g.20gb"),
            ("NoSliceFits", "needs 4g.20gb; 1 board has 20 GB free, but fewer than 4 compute slices left"),
            id="L01-one-too-small-one-of-another-mode-one-full",
        ),
        pytest.param(
            [node(placements={"0": [used("1g.5gb+me", 6)]}), node("n2", placements={"0": [used("1g.5gb", start) for start in range(7)]})],
            [bound("x/a", "n1", "1g.5gb+me"), bound("x/b", "n2", "1g.5gb", count=7)],
            gated("ml/w", "1g.5gb+me"),
            ("NoSliceFits", "needs 1g.5gb+me; 2 boards have 5 GB free, but already as many 1g.5gb+me as can be on 1 and no "
             "compute slice left on 1"),
            id="boards-lack-different-things",
        ),
        pytest.param(
            [node("n1", mode=None, resources={"nvidia.com/mig-1g.5gb": "1"})],
            [bound("x/a", "n1", "1g.5gb")],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; 1 node has that from another tool, but not enough of it is free"),
            id="foreign-slices-in-use",
        ),
        pytest.param(
            [node(count=2, annotations=report(0, 1, mig=False))],
            [],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; none is free, and 2 boards cannot be cut now (node n1: MIG mode is off)"),
            id="cannot-be-cut",
        ),
        pytest.param(
            [node("n1", annotations=report(0, 1, mig=False)), node("n2", annotations=report(0, mig=False))],
            [],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; none is free, and 3 boards cannot be cut now (2 nodes, n1 first: MIG mode is off)"),
            id="cannot-be-cut-on-two-nodes",
        ),
        pytest.param(
            [node("n1", mode="mps", annotations=report(0, fault=ON)), node("n2", mode="mps", annotations=report(0, fault=ON))],
            [],
            gated("ml/w", "10gb"),
            ("NoSliceFits", "needs 10gb; none is free, and 2 boards cannot be cut now (2 nodes, n1 first: MIG mode is on; for MPS "
             "run nvidia-smi -i 0 -mig 0)"),
            id="the-agent-says-what-a-person-must-do",
        ),
        pytest.param(
            [
                node("n1", annotations=report(0, fault="GPU is lost")),
                node("n2", placements={"0": [used("10gb")]}),
                node("n3", annotations=report(0, 1, mig=False)),
                node("n4", placements={"0": [used("5g.25gb", 0)]}),
            ],
            [bound("x/a", "n2", "10gb")],
            gated("ml/w", "1g.5gb", count=2),
            ("NoSliceFits", "needs 2 x 1g.5gb on one node; not enough are free, and 5 boards cannot be cut now (node n3: MIG mode "
             "is off; node n1: GPU is lost; 2 boards for other reasons)"),
            id="the-most-frequent-first",
        ),
        pytest.param(
            [node("n2", placements={"0": [used("10gb")]})],
            [bound("x/a", "n2", "10gb")],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n2: slices of another mode are left on "
             "it)"),
            id="another-mode",
        ),
        pytest.param(
            [node(placements={"0": [used("5g.25gb", 0)]})],
            [],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n1: annotation "
             "nos.nebuly.com/status-placements: board 0: 5g.25gb at 0: NVIDIA-A100-SXM4-40GB has no such profile)"),
            id="no-gb-are-counted-of-a-board-with-an-unknown-profile",
        ),
        pytest.param(
            [node(mode="mps", placements={"0": [used("10gb"), used("40gb")]})],
            [],
            gated("ml/w", "5gb"),
            ("NoSliceFits", "needs 5gb; none is free, and 1 board cannot be cut now (node n1: annotation "
             "nos.nebuly.com/status-placements: board 0: its slices have 50 GB, more than the board's 40)"),
            id="no-board-has-less-than-nothing-free",
        ),
        pytest.param(
            [node(placements={"0": [used("4g.20gb", 0)]})],
            [bound(f"x/{name}", "n1", "4g.20gb") for name in "abc"],
            gated("ml/w", "1g.5gb"),
            ("NoSliceFits", "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n1: pods bound to it need 3 x 4g.20gb, of "
             "which its boards hold 1)"),
            id="more-pods-than-there-can-be",
        ),
    ],
)  # fmt: skip
def test_who_waits_is_told_why_in_one_sentence_with_numbers(nodes, running, waits, reason):
    """L01, P03, P18."""
    decision = settle(begin(cluster(nodes, [*running, waits])))
    assert (decision.ungate, decision.layouts) == ((), ())
    assert [(waiting.reason, waiting.message) for waiting in decision.waiting] == [reason]


def test_that_boards_are_given_to_others_first_is_said():
    """L01: who looks sees empty boards, so it is said that others stand before the pod."""
    decision = settle(cluster([node()], [gated("ml/a", "3g.20gb"), gated("ml/b", "3g.20gb"), gated("ml/c", "4g.20gb")]))
    assert messages(decision)["ml/c"] == (
        "needs 4g.20gb; when the pods before it are served, no board has 20 GB free (the freest of 1 has 0 GB)"
    )


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(1060.0, "no board has 5 GB free (the freest of 1 has 0 GB)", id="it is being cut"),
        pytest.param(
            1061.0,
            "none is free, and the agent of node n1 has not answered an order of 1970-01-01T00:16:40Z",
            id="nothing is done",
        ),
    ],
)
def test_a_board_that_has_an_order_to_carry_out_is_not_said_to_be_broken(now, why):
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "7g.40gb", "start": 0}]}',
        "nos.nebuly.com/spec-partitioning-plan": "1000000",
    }
    view = cluster([node(annotations=order)], [released("ml/a", "7g.40gb"), gated("ml/b", "1g.5gb")], now=now)
    assert messages(settle(view))["ml/b"] == f"needs 1g.5gb; {why}"


@pytest.mark.parametrize(
    ("now", "but"),
    [
        pytest.param(1005.0, "", id="5-s"),
        pytest.param(
            1006.0, ", but its agent has not answered that of 1970-01-01T00:16:40Z yet", id="others-do-not-wait-for-it"
        ),
    ],
)
def test_an_agent_that_takes_its_time_is_told_of_to_pods_that_wait_for_it(now, but):
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "3g.20gb", "start": 4}]}',
        "nos.nebuly.com/spec-partitioning-plan": "1000000",
    }
    one = node(placements={"0": []}, annotations=order)
    assert messages(settle(cluster([one], [gated("ml/a", "3g.20gb")], now=now))) == {
        "ml/a": f"needs 3g.20gb; node n1 is being cut for it{but}"
    }


def test_a_pod_reads_that_its_node_is_not_as_it_was_told_to_be():
    """ADR 29: whom the free 1g serves no longer waits for the cut then."""
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "3g.20gb", "start": 4}]}',
        "nos.nebuly.com/spec-partitioning-plan": "1000000",
        "nos.nebuly.com/status-partitioning-plan": "1000000",
    }
    one = node(placements={"0": [free("1g.5gb", 6)]}, annotations=order)
    assert messages(settle(cluster([one], [gated("ml/a", "3g.20gb")], now=1001.0))) == {
        "ml/a": "needs 3g.20gb; node n1 is being cut for it, but its boards are not as its last order says, so that pods which "
        "what is free would serve go first"
    }


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        pytest.param("1000000", " of 1970-01-01T00:16:40Z", id="of-long-ago"),
        pytest.param("253402300799000", " of 9999-12-31T23:59:59Z", id="last-time-that-can-be-written"),
        pytest.param("999999999999999", "", id="no-time"),
        pytest.param("somebody's", "", id="no-number"),
    ],
)
def test_agents_that_do_not_answer_are_named(plan, said):
    """Boards are counted only where they can be told of by themselves: what keeps these is one agent each."""
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "7g.40gb", "start": 0}]}',
        "nos.nebuly.com/spec-partitioning-plan": plan,
    }
    silent = [node(name, count=2, annotations=order) for name in ("n1", "n2", "n3")]
    off = node("n4", annotations=report(0, mig=False))
    view = cluster([*silent, off], [gated("ml/w", "1g.5gb")], now=1_772_442_000.0)
    assert messages(settle(view))["ml/w"] == (
        f"needs 1g.5gb; none is free, and the agent of node n1 has not answered an order{said}, nor have those of 2 other nodes"
        ", and 1 board cannot be cut now (node n4: MIG mode is off)"
    )


@pytest.mark.parametrize("reason", ["NoBoards", "AgentFailed"])
def test_what_an_agent_says_that_can_do_nothing_is_said_to_pods(reason):
    """A14: the driver is not there; the boards are known from before."""
    off = node(annotations=report(0), agent=(reason, "open NVML: Library Not Found"))
    assert messages(settle(cluster([off], [gated("ml/w", "1g.5gb")]))) == {
        "ml/w": "needs 1g.5gb; none is free, and 1 board cannot be cut now (node n1: its agent can do nothing: open NVML: "
        "Library Not Found)"
    }


def test_an_agent_that_does_not_answer_is_named_to_pods_that_have_a_place_on_its_node():
    """What the order would destroy is not given away; which of the two slices that is the scheduler does not ask."""
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "2g.10gb", "start": 0}]}',
        "nos.nebuly.com/spec-partitioning-plan": "1000000",
    }
    one = node(placements={"0": [free("2g.10gb", 0), free("2g.10gb", 2)]}, annotations=order)
    decision = settle(cluster([one], [gated("ml/w", "2g.10gb")], now=1061.0))
    assert decision.ungate == ()
    assert messages(decision) == {
        "ml/w": "needs 2g.10gb; the agent of node n1 has not answered an order of 1970-01-01T00:16:40Z"
    }


def test_an_order_for_others_is_told_from_the_cut_for_the_pod():
    order = {
        "nos.nebuly.com/spec-placements": '{"0": [{"profile": "3g.20gb", "start": 4}]}',
        "nos.nebuly.com/spec-partitioning-plan": "1000000",
    }
    view = cluster([node(annotations=order)], [gated("ml/a", "3g.20gb"), gated("ml/b", "4g.20gb")], now=1001.0)
    assert messages(settle(view)) == {
        "ml/a": "needs 3g.20gb; node n1 is being cut for it",
        "ml/b": "needs 4g.20gb; node n1 is cut for it when it has carried out an order",
    }


def test_a_pod_without_slices_is_told_too_by_what_nodes_are_closed():
    team = {"metadata": {"name": "q", "namespace": "ml"}, "spec": {"min": {"cpu": "8"}}}
    view = replace(
        cluster([node(), node("n2", cordoned=True)], [gated("ml/a", cpu="1", nodeSelector={"zone": "b"})]),
        quotas=(view_quota(msgspec.convert(team, ElasticQuota)),),
    )
    assert messages(settle(view)) == {"ml/a": "no node is open to the pod: closed are 2 by its selector or affinity"}


def test_compute_slices_can_be_what_is_missing():
    view = begin(
        cluster([node(placements={"0": [used("1g.5gb", 0)]})], [bound("x/a", "n1", "1g.5gb"), gated("ml/w", "3g.20gb")])
    )
    one = node_of(view, "n1")
    (board,) = one.boards
    short = replace(board, model=replace(board.model, compute=3))
    decision = settle(with_node(view, replace(one, boards=(short,))))
    assert messages(decision) == {"ml/w": "needs 3g.20gb; 1 board has 20 GB free, but fewer than 3 compute slices left"}


def test_who_waits_so_that_others_find_what_is_cut_for_them_is_told_so():
    """ADR 29: a promised pod may take one of n0's two free slices, the neighbour the other, or one that is cut for two more."""
    nodes = [
        node("n0", placements={"0": [free("1g.5gb", 0), free("1g.5gb", 1)]}),
        node("n1", placements={"0": [free("1g.5gb", 0), used("1g.5gb", 1)]}),
    ]
    on_n0 = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
    pods = [
        bound("web/runs", "n1", "1g.5gb"),
        released("web/promised", "1g.5gb"),
        gated("web/neighbour", "1g.5gb", created="2026-03-02T08:00:00Z", **on_n0),
        gated("ml/coming", "1g.5gb", count=2, created="2026-03-02T08:00:30Z", **on_n0),
    ]
    decision = settle(begin(cluster(nodes, pods)))
    assert decision.ungate == ()
    assert {one.pod: (one.reason, one.message) for one in decision.waiting} == {
        "web/neighbour": (
            "CutForOthersFirst",
            "needs 1g.5gb; that is free, but node n0 is being cut for 1 pod first: if this pod landed there, it could take "
            "what others are to have",
        ),
        "ml/coming": ("SliceBeingCut", "needs 2 x 1g.5gb on one node; node n0 is being cut for it"),
    }
