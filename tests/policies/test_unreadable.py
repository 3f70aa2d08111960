"""Boards of which a node's annotations cannot be read, and their neighbours, which are used as they say."""

import json

import pytest

from policies import names
from policies.annotations import Placement
from policies.catalogue import UNKNOWN
from policies.charges import Places, derived
from policies.constraints import Constraints
from policies.inventory import Inventory
from policies.settings import DEFAULTS
from policies.settle import settle
from tests.builders import A100
from tests.policies.cluster import bound, cluster, free, gated, node, pod_of, used

INVENTORY, STATUS = "annotation nos.nebuly.com/gpu-inventory", "annotation nos.nebuly.com/status-placements"
NO_MEMORY = f"{INVENTORY}: board 1: memoryMiB: 0: must be from 1 to 16777216"
PROFILES = [
    {"name": "1g.5gb", "id": 19, "compute": 1, "memoryUnits": 1, "memoryMiB": 4864, "starts": [0, 1, 2, 3, 4, 5, 6]},
    {"name": "3g.20gb", "id": 9, "compute": 3, "memoryUnits": 4, "memoryMiB": 19968, "starts": [0, 4]},
    {"name": "7g.40gb", "id": 0, "compute": 7, "memoryUnits": 8, "memoryMiB": 40192, "starts": [0]},
]  # fmt: skip
EMPTY = {"0": [], "1": []}


def entry(index, **fields):
    board = {"index": index, "uuid": f"GPU-{index}", "model": A100, "memoryMiB": 40536, "mig": True}
    return board | {"switch": "admin", "profiles": PROFILES} | fields


def one(*entries, inventory=None, placements=EMPTY, notes=None):
    """Return a node of two A100 by its labels, with these entries of boards; texts are written as they are."""
    written = {names.INVENTORY: json.dumps(entries) if inventory is None else inventory} | (notes or {})
    if isinstance(placements, str):
        return node("n1", count=2, annotations=written | {names.STATUS_PLACEMENTS: placements})
    return node("n1", count=2, annotations=written, placements=placements)


def cut(view):
    return sorted((layout.node, index) for layout in settle(view).layouts for index in layout.target)


@pytest.mark.parametrize(
    ("seen", "boards", "faults"),
    [
        pytest.param(one(entry(0), entry(1)), [0, 1], (), id="both-can-be-read"),
        pytest.param(one(entry(0), entry(1, memoryMiB=0)), [0], (NO_MEMORY,), id="no-memory"),
        pytest.param(one(entry(0, mig="on"), entry(1)), [1],
                     (f"{INVENTORY}: board 0: mig: on: must be true or false, not text",), id="the-first"),
        pytest.param(one(entry(0), entry(1, memoryMiB=0, switch=1)), [0],
                     (NO_MEMORY, f"{INVENTORY}: board 1: switch: 1: must be text, not a number: quote it"), id="two-faults"),
        pytest.param(one(entry(0), entry(1), entry(1, memoryMiB=0)), [0], (NO_MEMORY,), id="told-of-twice"),
        pytest.param(one(entry(0), entry("x")), [0],
                     (f"{INVENTORY}: [1]: index: x: must be a whole number, not text",
                      f"{STATUS}: board: 1: no entry of it can be read"), id="which-one-cannot-be-read"),
        pytest.param(one(inventory="{}"), [],
                     (f"{INVENTORY}: {{}}: must be a list of boards",
                      f"{STATUS}: board: 0: no entry of it can be read",
                      f"{STATUS}: board: 1: no entry of it can be read"), id="no-list"),
        pytest.param(one(entry(0), entry(1), placements='{"0": [], "1": [{"profile": "3g.20gb", "start": 4, "used": 0}]}'),
                     [0], (f"{STATUS}: board 1: [0].used: 0: must be true or false, not a number",), id="use-of-a-slice"),
        pytest.param(one(entry(0), entry(1), placements='{"0": [], "1": 3}'), [0],
                     (f"{STATUS}: board 1: 3: must be a list, not a number",), id="slices-of-a-board"),
        pytest.param(one(entry(0), entry(1), placements='{"0": [], "l": []}'), [0],
                     (f"{STATUS}: board: l: is no index of a board",), id="whose-slices"),
        pytest.param(one(entry(0), entry(1), placements=f'{{"0": [], "{"9" * 5000}": []}}'), [0],
                     (f"{STATUS}: board: {'9' * 77}...: is no index of a board",), id="more-digits-than-Python-reads"),
        pytest.param(one(entry(0), entry(1), placements="[]"), [],
                     (f"{STATUS}: []: must be an object with the indices of boards",), id="slices-of-all-boards"),
        pytest.param(one(entry(0), entry(1), placements=None, notes={"nos.nebuly.com/status-gpu-1-1g.5gb-used": "one"}), [0],
                     ("annotation nos.nebuly.com/status-gpu-1-1g.5gb-used: one: is no count from 0 to 999",), id="count"),
    ],
)  # fmt: skip
def test_boards_of_which_something_cannot_be_read_are_told_of_and_not_cut_and_their_neighbours_are(
    seen, boards, faults
):
    """Two pods want a whole board each. No table, and no label, stands in for what an agent has said."""
    view = cluster([seen], [gated("ml/a", "7g.40gb"), gated("ml/b", "7g.40gb")])
    assert cut(view) == [("n1", index) for index in boards]
    assert view.nodes[0].faults == faults


def test_what_exists_on_a_board_that_cannot_be_read_goes_on_to_serve():
    """The running pod keeps its slice, the free one is given away, and the third pod gets one on the other board."""
    placements = {"0": [], "1": [used("3g.20gb", 0), free("3g.20gb", 4)]}
    pods = [bound("x/a", "n1", "3g.20gb"), gated("ml/a", "3g.20gb"), gated("ml/b", "3g.20gb")]
    decision = settle(cluster([one(entry(0), entry(1, memoryMiB=0), placements=placements)], pods))
    assert [release.pod for release in decision.ungate] == ["ml/a"]
    assert [layout.target for layout in decision.layouts] == [{0: (Placement("3g.20gb", 4),)}]


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({"profile": "3g.20gb", "start": 0, "used": "x"}, id="use"),
        pytest.param({"profile": "3g.20gb", "start": "x", "used": True}, id="place"),
        pytest.param({"profile": "3g.20gb", "start": 0, "used": True, "pod": 7}, id="holder"),
    ],
)
def test_a_running_pods_slice_is_taken_although_its_entry_cannot_be_read(item):
    """It is taken where it is: the empty board beside it is still there for a pod that wants all of one."""
    seen = one(entry(0), entry(1), placements={"0": [], "1": [item]})
    view = cluster([seen], [bound("x/a", "n1", "3g.20gb"), gated("ml/a", "3g.20gb"), gated("ml/b", "7g.40gb")])
    decision = settle(view)
    assert decision.ungate == ()
    assert [layout.target for layout in decision.layouts] == [{0: (Placement("3g.20gb", 4),)}]
    assert cut(cluster([seen], [bound("x/a", "n1", "3g.20gb"), gated("ml/b", "7g.40gb")])) == [("n1", 0)]


def test_a_running_pods_slice_that_cannot_be_read_at_all_is_taken_somewhere():
    """Nothing says on which board it is: no second pod gets the last room that it may have."""
    seen = one(entry(0), entry(1), placements=json.dumps({"0": [used("3g.20gb", 0)], "1": [{"profile": 3}]}))
    pods = [bound("x/a", "n1", "3g.20gb"), bound("x/b", "n1", "3g.20gb"), gated("ml/a", "3g.20gb")]
    assert cut(cluster([seen], pods)) == []


def test_admission_knows_of_a_board_that_cannot_be_read_what_its_node_announces():
    """What is on it can be had, and nothing else: not what its model, by the table, could make."""
    view = cluster([one(entry(0, memoryMiB=0), placements={"0": [free("3g.20gb", 4)]})], [])
    assert [board.model for board in view.nodes[0].boards] == [UNKNOWN]
    offer = Inventory.of(view.nodes).offer(Constraints())
    makes = {
        profile: any(group.makes(f"nvidia.com/mig-{profile}") for group in offer.groups)
        for profile in ("3g.20gb", "1g.5gb")
    }
    assert makes == {"3g.20gb": True, "1g.5gb": False}
    assert [group.kinds for group in offer.groups] == [()]


def test_a_pod_on_a_board_that_cannot_be_read_costs_its_quota_what_its_slice_is_of_the_nodes_model():
    view = cluster(
        [one(entry(0, memoryMiB=0), placements={"0": [used("3g.20gb", 4)]})], [bound("x/a", "n1", "3g.20gb")]
    )
    pod = pod_of(view, "x/a")
    assert derived(pod.moments, Places(view.nodes).of(pod), DEFAULTS.quota) == {
        "nvidia.com/gpu": 500,
        "nos.nebuly.com/gpu-memory": 20000,
    }
