"""The fixed layout of one node, by its labels and files, or by those that could be understood last."""

from collections.abc import Mapping, Sequence
from typing import Final

from policies import names
from policies.annotations import BoardInventory
from policies.settings import DEFAULTS
from reconciler.agent.driver import WHOLE, InvalidArgument, read_device_id
from reconciler.agent.fixed.files import ConfigMaps, Files, NodeFiles, no_config_maps
from reconciler.agent.fixed.layout import Fixture, fixed_layout, in_turns, kept
from reconciler.agent.fixed.pluginconfig import MOST_REPLICAS

MOST_TURNS: Final = 1000
"""Of a node. Each is named in its annotations, which hold 262,144 bytes: with the names of 500 pods, no more than so many."""


class FixedLayouts:
    """What the boards of one node are to be. Used by its agent; `check` by any thread.

    Remembers the last files that could be understood: while newer ones cannot, these hold, and `faults` says why.

    Attributes:
        faults: of the files that the node names now.

    Args:
        config_maps: reads ConfigMaps of our namespace.
    """

    def __init__(self, config_maps: ConfigMaps = no_config_maps) -> None:
        self._files = NodeFiles(config_maps)
        self._good: Files | None = None
        self._alone: Mapping[tuple[str, str], str] = {}
        self.faults: tuple[str, ...] = ()

    def of(self, labels: Mapping[str, str], mode: str, boards: Sequence[BoardInventory]) -> dict[int, Fixture]:
        """Return the fixed layouts of a node's boards, by index; boards without one are the planner's."""
        faults: list[str] = []
        found: dict[int, Fixture] = {}
        files = self._files.read(labels, faults)
        if not faults:
            found = self._laid_out(files, labels, mode, boards, faults)
        if (turns := sum(map(_turns, found.values()))) > MOST_TURNS:
            faults.append(
                f"{len(boards)} GPUs in {turns} parts: a node reports {MOST_TURNS} at most: give fewer replicas"
            )
        if faults:
            found = self._as_before(labels, mode, boards)
        else:
            self._good = files
        self.faults = tuple(faults)
        self._alone = {
            (board.uuid, profile): share.resource
            for board in boards
            if board.index in found
            for profile, share in found[board.index].shares.items()
            if share.alone
        }
        return found

    def check(self, devices: Sequence[str]) -> None:
        """Refuse more than one part of what is shared for one container, where the file says so. Raises InvalidArgument."""
        alone = self._alone
        for device in devices if len(devices) > 1 else ():
            board, item = read_device_id(device)
            if resource := alone.get((board, item.profile)):
                # In the words of NVIDIA's plugin, by which people search for it.
                raise InvalidArgument(
                    f"request for '{resource}: {len(devices)}' too large: maximum request size for shared resources is 1"
                )

    def _as_before(self, labels: Mapping[str, str], mode: str, boards: Sequence[BoardInventory]) -> dict[int, Fixture]:
        """Return what held last, if it goes with these boards; else they stay as they are."""
        ignored: list[str] = []
        found = self._laid_out(self._good, labels, mode, boards, ignored) if self._good else {}
        return {board.index: kept(mode) for board in boards} if self._good is None or ignored else found

    def _laid_out(
        self,
        files: Files,
        labels: Mapping[str, str],
        mode: str,
        boards: Sequence[BoardInventory],
        faults: list[str],
    ) -> dict[int, Fixture]:
        if files.plugin or files.rules is not None:
            return fixed_layout(boards, mode, files.plugin, files.rules, faults)
        if mode != names.TIMESLICING:
            return {}
        said = labels.get(names.REPLICAS_LABEL, "")
        understood = said.isdecimal() and 0 < int(said) <= MOST_REPLICAS
        replicas = int(said) if understood else DEFAULTS.quota.shared_replicas
        return {board.index: in_turns(replicas) for board in boards}


def _turns(fixture: Fixture) -> int:
    """Return by how many devices a board is announced."""
    return sum(fixture.share(profile).replicas for profile in fixture.profiles or (WHOLE.profile,))
