"""What each board of a node is to be, by the files that a person wrote for it: a fixed layout.

Decided from the boards and the files; every fault is told, with its place in the file. Boards that the files do not
mean are the planner's, as the node's label says; on a node that is time-sliced they are shared as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from policies import names
from policies.annotations import BoardInventory, Placement
from policies.boards import inventory_model
from policies.faults import fault
from policies.placement import arrange, resource_of
from reconciler.agent.driver import WHOLE
from reconciler.agent.fixed.migparted import MigRule
from reconciler.agent.fixed.pluginconfig import MIXED, NONE, SINGLE, PluginConfig, Shared
from reconciler.agent.rules import layout_fault


class Share(msgspec.Struct, frozen=True):
    """How the slices of one profile of a board are announced.

    Attributes:
        resource: by which resource.
        replicas: so many times each; 1: once, to one container at a time.
        alone: a container may have only one of them.
    """

    resource: str
    replicas: int = 1
    alone: bool = False


class Fixture(msgspec.Struct, frozen=True, kw_only=True):
    """What a board is to be.

    Attributes:
        mode: `mig`, `mps`, or `timeslicing`: given as a whole, in turns or to one at a time.
        profiles: its slices, sorted; none of a board that is given as a whole.
        shares: how slices are announced, by profile; those not named as always.
        kept: stay as it is: nobody can say what it is to be, for now.
        passing: only until a person has changed the board's mode, for which it is emptied.
    """

    mode: str
    profiles: tuple[str, ...] = ()
    shares: Mapping[str, Share] = {}
    kept: bool = False
    passing: bool = False

    def share(self, profile: str) -> Share:
        """Return how slices of a profile are announced."""
        return self.shares.get(profile) or plain(profile)


def plain(profile: str) -> Share:
    """Return how slices of a profile are announced where nothing else is said."""
    return Share(resource_of(profile))


def in_turns(replicas: int) -> Fixture:
    """Return what boards of a time-sliced node are where no file says otherwise."""
    return Fixture(mode=names.TIMESLICING, shares={WHOLE.profile: Share(names.GPU_SHARED, replicas)})


def kept(mode: str) -> Fixture:
    """Return what a board is while its file cannot be understood."""
    return Fixture(mode=mode, kept=True)


def fixed_layout(
    boards: Sequence[BoardInventory],
    mode: str,
    plugin: PluginConfig | None,
    rules: Sequence[MigRule] | None,
    faults: list[str],
) -> dict[int, Fixture]:
    """Return what boards are to be, by index; of no use if there are faults.

    Args:
        boards: all boards of the node, by index.
        mode: the node's own.
        plugin: its configuration of the device plugin, if it has one.
        rules: the entries of its configuration of mig-parted, if it has one.
        faults: added to.
    """
    found: dict[int, Fixture] = {}
    for rule in rules or ():
        _divide(found, rule, boards, faults)
    if plugin:
        _announce(found, plugin, boards, faults)
        for entry in plugin.shared:
            (_share_memory if entry.mps else _share_turns)(found, entry, plugin, boards, faults)
    if mode == names.TIMESLICING:
        for board in boards:
            found.setdefault(board.index, Fixture(mode=mode))
    return found


# mig-parted ----------------------------------------------------------------------------------------------------------


def _divide(found: dict[int, Fixture], rule: MigRule, boards: Sequence[BoardInventory], faults: list[str]) -> None:
    """Cut the boards that a rule means, or leave them whole."""
    for board in rule.of(boards, faults):
        if board.index in found:
            faults.append(f"{rule.place}.devices: GPU {board.index} is named by an entry before it")
        elif not rule.mig:
            found[board.index] = Fixture(mode=names.TIMESLICING)
        else:
            if why := _no_layout(board, rule.profiles):
                faults.append(f"{rule.place}.mig-devices: GPU {board.index} ({board.model}): {why}")
            found[board.index] = Fixture(mode=names.MIG, profiles=rule.profiles)


def _no_layout(board: BoardInventory, profiles: Sequence[str]) -> str:
    """Return why a board cannot have these MIG slices, or ""."""
    model = inventory_model(board)
    made = [profile.name for profile in model.profiles]
    if not made:
        return "it cannot do MIG: write mig-enabled: false"
    if unknown := sorted(set(profiles) - set(made)):
        return f"no profile {', '.join(unknown)}: there are {', '.join(made)}"
    return "" if arrange(model, names.MIG, (), tuple(profiles)) else "these slices do not fit together"


# The plugin's configuration ------------------------------------------------------------------------------------------


def _announce(
    found: dict[int, Fixture], plugin: PluginConfig, boards: Sequence[BoardInventory], faults: list[str]
) -> None:
    """Name MIG devices by the strategy."""
    place = "flags.migStrategy"
    divided = {index: fixture for index, fixture in found.items() if fixture.mode == names.MIG}
    if plugin.strategy == NONE and divided:
        faults.append(fault(place, NONE, f"would announce no MIG devices: write {MIXED} or {SINGLE}"))
    if plugin.strategy != SINGLE:
        return
    profiles = sorted({profile for fixture in divided.values() for profile in fixture.profiles})
    whole = [str(board.index) for board in boards if board.index not in divided]
    if whole or len(profiles) != 1:
        has = f"GPU {', '.join(whole)} has none" if whole else f"there are {', '.join(profiles) or 'none'}"
        rule = f"all GPUs must be divided into equal slices by {names.MIG_CONFIG_LABEL}, but {has}: write {MIXED}"
        faults.append(fault(place, SINGLE, rule))
        return
    for index, fixture in divided.items():
        found[index] = msgspec.structs.replace(fixture, shares={profiles[0]: Share(names.GPU)})


def _share_memory(
    found: dict[int, Fixture],
    entry: Shared,
    _plugin: PluginConfig,
    boards: Sequence[BoardInventory],
    faults: list[str],
) -> None:
    """Divide boards into MPS slices; a board may get some of several entries."""
    for board in _chosen(found, entry, boards, names.MPS, faults):
        model, before = inventory_model(board), found.get(board.index) or Fixture(mode=names.MPS)
        size = entry.memory_gb or model.nominal_gb // entry.replicas
        if not size:  # legal for NVIDIA's plugin; bins are of whole GB
            rule = f"GPU {board.index} ({board.model}) has {model.nominal_gb} GB, one for each at least"
            faults.append(fault(f"{entry.place}.replicas", entry.replicas, f"{rule}: write at most {model.nominal_gb}"))
            continue
        profile, share = f"{size}gb", Share(entry.resource, alone=entry.alone)
        profiles = tuple(sorted((*before.profiles, *[profile] * entry.replicas)))
        why = str(layout_fault(model, [Placement(each) for each in profiles]) or "")
        if before.shares.get(profile, share) != share:
            why = f"{size} GB are announced as {before.shares[profile].resource} already"
        if why:
            faults.append(f"{entry.place}: GPU {board.index} ({board.model}): {why}")
        found[board.index] = Fixture(mode=names.MPS, profiles=profiles, shares={**before.shares, profile: share})


def _share_turns(
    found: dict[int, Fixture],
    entry: Shared,
    plugin: PluginConfig,
    boards: Sequence[BoardInventory],
    faults: list[str],
) -> None:
    """Let several pods take turns on boards, or on MIG devices."""
    share = Share(entry.resource, entry.replicas, entry.alone)
    if entry.name == names.GPU and plugin.strategy != SINGLE:
        for board in _chosen(found, entry, boards, names.TIMESLICING, faults):
            found[board.index] = Fixture(mode=names.TIMESLICING, shares={WHOLE.profile: share})
        return
    named = {
        (index, profile)
        for index, fixture in found.items()
        for profile in fixture.profiles
        if fixture.share(profile).resource == entry.name
    }
    if not named:
        faults.append(fault(f"{entry.place}.name", entry.name, f"no slice of the node is called so: {_called(found)}"))
    for index, profile in sorted(named):
        fixture = found[index]
        if fixture.share(profile).replicas > 1:
            faults.append(f"{entry.place}: {profile} of GPU {index} is shared by an entry before it")
        found[index] = msgspec.structs.replace(fixture, shares={**fixture.shares, profile: share})


def _chosen(
    found: Mapping[int, Fixture], entry: Shared, boards: Sequence[BoardInventory], mode: str, faults: list[str]
) -> Iterable[BoardInventory]:
    """Return the boards that an entry shares as a whole; of `all` those that MIG divides are left out."""
    for board in entry.devices.of(boards, f"{entry.place}.devices", faults):
        fixture = found.get(board.index)
        if fixture is None or _untouched(fixture) or fixture.mode == mode == names.MPS:
            yield board
        elif not (fixture.mode == names.MIG and entry.devices.everything):
            what = "divided by MIG" if fixture.mode == names.MIG else "shared by an entry before it"
            faults.append(f"{entry.place}.devices: GPU {board.index} is {what}")


def _untouched(fixture: Fixture) -> bool:
    return fixture.mode == names.TIMESLICING and not fixture.shares


def _called(found: Mapping[int, Fixture]) -> str:
    called = sorted({fixture.share(each).resource for fixture in found.values() for each in fixture.profiles})
    return f"there are {', '.join(called)}" if called else f"{names.MIG_CONFIG_LABEL} divides no GPU"
