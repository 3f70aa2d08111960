"""The boards that admission chooses from: groups of nodes, and what is remembered of them."""

import msgspec
import pytest

from policies import names
from policies.constraints import Constraints, constraints_of
from policies.inventory import Inventory
from policies.site import site_of
from policies.view import view_node
from tests.builders import A30, A100, H100, T4, make_node, make_pod

ANYWHERE = Constraints()


def site(*arguments, **fields):
    return site_of(view_node(make_node(*arguments, **fields)))


def inventory_of(*sites):
    return Inventory({each.name: each for each in sites})


def test_nodes_of_equal_boards_are_one_group():
    offer = inventory_of(site("a"), site("b"), site("c", A30), site("d", mode="mps"), site("e", cordoned=True)).offer(
        ANYWHERE
    )
    assert [(group.nodes, group.products, [kind.mode for kind in group.kinds]) for group in offer.up] == [
        (("a", "b"), (A100,), ["mig"]), (("c",), (A30,), ["mig"]), (("d",), (A100,), ["mps"]),
    ]  # fmt: skip
    assert [group.nodes for group in offer.away] == [("e",)]


@pytest.mark.parametrize(
    ("fields", "foreign"),
    [
        pytest.param(
            {"mode": None, "resources": {"nvidia.com/mig-1g.5gb": "7"}}, {"nvidia.com/mig-1g.5gb"}, id="announced"
        ),
        pytest.param(
            {"mode": None, "resources": {"nvidia.com/mig-1g.5gb": "0"}},
            {"nvidia.com/mig-1g.5gb"},
            id="announced, none left",
        ),
        pytest.param({"mode": None, "resources": {"nvidia.com/mig-1g.6gb": "7"}}, set(), id="ours can make it too"),
        pytest.param({"mode": None, "resources": {"nvidia.com/gpu": "7", "cpu": "1"}}, set(), id="no slices"),
        pytest.param({"mode": "mig", "resources": {"nvidia.com/mig-1g.5gb": "7"}}, set(), id="on a node of ours"),
    ],
)
def test_slices_that_only_others_announce_are_foreign(fields, foreign):
    sites = [each for each in (site("a", A30), site("b", A30, **fields)) if each]
    assert inventory_of(*sites).offer(ANYWHERE).foreign == {names.GPU_SHARED, *foreign}


def test_time_slices_are_ours_where_a_node_of_ours_has_them():
    assert inventory_of(site("a", T4, mode="timeslicing")).offer(ANYWHERE).foreign == frozenset()


def test_nodes_without_slices_are_not_kept():
    assert site(mode=None) is None
    assert site(mode=None, resources={"nvidia.com/gpu": "0"}) is None


@pytest.mark.parametrize(
    ("fields", "whole"),
    [
        pytest.param({"mode": None, "resources": {"nvidia.com/gpu": "8"}}, True, id="another plugin's"),
        pytest.param({"mode": None, "resources": {"nvidia.com/gpu": "8"}, "ready": False}, True, id="away for now"),
        pytest.param(
            {"mode": "timeslicing", "resources": {"nvidia.com/gpu": "4"}}, True, id="a turn on a board of ours"
        ),
        pytest.param(
            {"resources": {"nvidia.com/gpu": "0"}}, False, id="what the kubelet goes on naming when it is ours"
        ),
        pytest.param(
            {"mode": None, "resources": {"nvidia.com/gpu": "8"}, "taints": [{"key": "a", "effect": "NoSchedule"}]},
            False,
            id="tainted",
        ),
    ],
)
def test_whether_whole_gpus_are_to_be_had_is_known_of_all_nodes(fields, whole):
    sites = inventory_of(site("a"), site("b", A30, **fields))
    assert sites.offer(ANYWHERE).whole is whole
    assert sites.offer(ANYWHERE, (H100,)).whole is whole, "a policy names models for slices"
    assert "nvidia.com/gpu" not in sites.offer(ANYWHERE).foreign


def room(inventory, profile):
    return sum(inventory.room(group, kind, profile) for group in inventory.offer(ANYWHERE).up for kind in group.kinds)


def placed(*slices):
    return {"0": [{"profile": profile, "start": start, "used": used} for profile, start, used in slices]}


@pytest.mark.parametrize(
    ("fields", "profile", "many"),
    [
        pytest.param({}, "3g.20gb", 2, id="uncut"),
        pytest.param({"placements": placed(("3g.20gb", 0, True))}, "3g.20gb", 1, id="one in use"),
        pytest.param({"placements": placed(("1g.5gb", 0, False), ("1g.5gb", 4, False))}, "3g.20gb", 2, id="free slices may go"),
        pytest.param({"placements": placed(("1g.5gb", 0, True), ("1g.5gb", 4, True))}, "3g.20gb", 0, id="used slices stay where they are"),
        pytest.param({"mode": "mps", "placements": {"0": [{"profile": "30gb", "used": True}]}}, "5gb", 2, id="MPS"),
        pytest.param({"annotations": {"nos.nebuly.com/status-gpu-0-3g.20gb-used": "1"}}, "3g.20gb", 1, id="counts of nos"),
        pytest.param({"annotations": {"nos.nebuly.com/status-gpu-0-3g.20gb-used": "9"}}, "3g.20gb", 0, id="counts that no board can hold"),
    ],
)  # fmt: skip
def test_what_can_be_had_now_is_free_or_can_be_cut(fields, profile, many):
    assert room(inventory_of(site(**fields)), profile) == many


def test_a_board_whose_mig_mode_an_admin_must_switch_gives_only_what_is_free():
    inventory = {"index": 0, "uuid": "GPU-0", "model": A100, "memoryMiB": 40960, "mig": False, "switch": "admin", "profiles": [
        {"name": "1g.5gb", "id": 19, "compute": 1, "memoryUnits": 1, "memoryMiB": 4864, "starts": [0, 1, 2, 3, 4, 5, 6], "max": 7}]}  # fmt: skip
    notes = {names.INVENTORY: msgspec.json.encode([inventory]).decode()}
    assert room(inventory_of(site(annotations=notes)), "1g.5gb") == 0
    assert (
        room(
            inventory_of(site(annotations=notes, placements=placed(("1g.5gb", 0, False), ("1g.5gb", 1, True)))),
            "1g.5gb",
        )
        == 1
    )


def test_a_changed_layout_changes_only_what_can_be_had():
    before = inventory_of(site("a"), site("b", H100))
    offer = before.offer(ANYWHERE)
    assert room(before, "7g.40gb") == 1
    after = before.replaced("a", site("a", placements=placed(("1g.5gb", 0, True))))
    assert after.offer(ANYWHERE) is offer, "the groups are not gathered again"
    assert room(after, "7g.40gb") == 0
    assert room(before, "7g.40gb") == 1, "the inventory of before is as it was"


@pytest.mark.parametrize(
    "changed", [{"cordoned": True}, {"labels": {"zone": "x"}}, {"count": 2}, {"product": A30}, {"mode": "mps"}]
)
def test_any_other_change_of_a_node_is_seen_at_once(changed):
    before = inventory_of(site("a"), site("b"))
    before.offer(ANYWHERE)
    after = before.replaced("a", site("a", **changed))
    again = inventory_of(site("a", **changed), site("b"))
    for constraints in (ANYWHERE, constraints_of(make_pod(nodeSelector={"zone": "x"}).spec)):
        assert sorted(group.nodes for group in after.offer(constraints).groups) == sorted(
            group.nodes for group in again.offer(constraints).groups
        )


def test_a_node_that_comes_or_goes_is_seen_at_once():
    empty = Inventory({})
    assert empty.offer(ANYWHERE).groups == ()
    one = empty.replaced("a", site("a"))
    assert [group.nodes for group in one.offer(ANYWHERE).groups] == [("a",)]
    assert one.replaced("a", None).offer(ANYWHERE).groups == ()
    assert one.replaced("unknown", None).offer(ANYWHERE).groups != ()


def test_what_is_remembered_is_bounded():
    inventory = inventory_of(site("a"))
    for number in range(1500):
        inventory.offer(Constraints(selector=(("n", str(number)),)))
    assert len(inventory._offers) <= 1024


def test_equal_boards_of_a_thousand_nodes_are_one_object():
    one, other = site("a"), site("b")
    assert one.traits.kinds[0] is other.traits.kinds[0]
    assert one.cuts is other.cuts
