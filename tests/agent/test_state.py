"""A state directory that cannot be read or written: said with its path, and nothing is offered that could not be given."""

import pytest

from reconciler.agent.handed import Handed
from reconciler.agent.statefile import StateError
from tests.agent.world import World

ONE = "nvidia.com/mig-1g.5gb"


class Kept(World):
    """A node whose agent keeps what containers are told."""

    def _options(self):
        return {"name_devices": lambda _ids, _held: self.handed.check()}


def test_nothing_is_offered_that_could_not_be_given_until_it_can_be_kept_again(tmp_path):
    world = Kept({0: [("1g.5gb", 0), ("1g.5gb", 1)]}, state=tmp_path)
    path = tmp_path / "handed.json"
    path.write_text('{"GPU-x":')
    world.run()
    assert world.condition() == (
        "False",
        "StateNotKept",
        f"the UUIDs that containers were given cannot be read from {path}: Input data was truncated: mend the file, or remove "
        "it if no pod holds a slice",
    )
    assert world.allocatable() == {}
    assert world._kubelet.allocatable() == frozenset()
    path.unlink()
    world.run()
    assert world.condition() == ("True", "BoardsReady", "")
    assert world.allocatable() == {ONE: 2}


def test_a_pod_keeps_its_slice_meanwhile(tmp_path):
    world = Kept({0: [("1g.5gb", 0)]}, pods=[("team-a/train", ONE)], state=tmp_path)
    (tmp_path / "handed.json").write_text("{")
    world.run()
    assert world.reported() == ["1g.5gb@0 team-a/train"]


def test_a_file_that_could_not_be_replaced_is_known_before_a_container_comes(tmp_path):
    handed = Handed(tmp_path / "handed.json")
    handed.check()
    (tmp_path / "handed.new").unlink()
    (tmp_path / "handed.new").mkdir()  # as good as a file system that is full, or can be read only
    with pytest.raises(StateError) as caught:
        handed.check()
    assert str(caught.value) == (
        f"the UUIDs that containers were given cannot be kept in {tmp_path}/handed.json: Is a directory: make room, or the "
        "directory writable"
    )
