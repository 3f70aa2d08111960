"""Boards as states of one automaton: giving a board one slice more is a step, equal boards are in the same state.

The planner thinks in states, so its work grows with the number of different boards, not of boards; every step is
worked out once (`placement.arrange` moves planned slices about within the board for nothing) and then looked up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from policies import names
from policies.annotations import listed
from policies.catalogue import BoardModel
from policies.geometry import Placements, Profiles, geometry_of
from policies.placement import Arrangement, arrange, bin_gb
from policies.plots import Face, gives

Cost = int
"""What a plan costs; the costs of boards add up, and of two plans the lower sum is better.

One number of many parts, each of which weighs more than all that follow it: slices put off, since their node has an order
to carry out first; free slices destroyed, slices created, slices waited for on boards being cut, boards that are no longer whole,
minus the square of the share in use so that the fullest board is filled first, by memory units, then by compute slices,
boards touched, minus the starts left by plain profile, largest first.
"""

NOTHING: Final[Cost] = 0
"""What it costs to plan nothing."""

_PARTS: Final = 14
_STARTS: Final = 6  # of them; plain profiles of a seven-slice board; other boards have fewer
_BITS: Final = 40  # of a part: squares of thousandths, summed over a hundred thousand boards
_WHOLE: Final = 1000  # thousandths


class State(msgspec.Struct, eq=False):
    """A board with the slices planned for it.

    Attributes:
        face: what the board can bear.
        demand: profiles planned for pods, sorted.
        wanted: those of them that no open slice serves.
        layout: the best layout for `wanted`; None on a rigid board.
        cost: what this state costs.
        steps: those worked out so far, by profile.
        near: how near it is to giving a slice, worked out so far, by profile.
        runs: those worked out so far, by profile, how many slices at most, and whether they must exist.
        counts: its slices by profile, those that serve pods and all; None until they are asked for.
    """

    face: Face
    demand: Profiles
    wanted: Profiles
    layout: Arrangement | None
    cost: Cost
    steps: dict[str, "Step | None"] = {}
    near: dict[str, "Rank"] = {}
    runs: dict[tuple[str, int, bool], "Run"] = {}
    counts: "Slices | None" = None

    @property
    def target(self) -> Placements | None:
        """Return all slices of the new layout, or None if the board needs none."""
        return self.all_slices if self.layout and self.layout.created else None

    @property
    def all_slices(self) -> Placements:
        """Return all slices of the board once the layout is there, sorted."""
        layout = self.layout
        return listed(self.face.fixed + (layout.placed + layout.kept if layout else ()))

    @property
    def slots(self) -> Placements:
        """Return the slices that serve pods once the layout is there: all but those that somebody holds."""
        return self.face.open + (self.layout.placed + self.layout.kept if self.layout else ())


class Step(msgspec.Struct, frozen=True, eq=False):
    """One slice more on a board.

    Attributes:
        state: the board then.
        cost: what it costs.
        creates: whether a slice has to be created or destroyed for it.
    """

    state: State
    cost: Cost
    creates: bool


class Rank(NamedTuple):
    """How near a board is to giving a slice: the greater the nearer.

    Attributes:
        there: it has a place for it.
        free: if not, how many of the smallest slices it takes.
    """

    there: bool = False
    free: int = 0


class Run(msgspec.Struct, frozen=True, eq=False):
    """Equal slices on a board.

    Attributes:
        costs: what 0, 1, 2, ... of them cost there, as many as it can take and are asked for.
        least: the least that all that are asked for cost on boards of which none gives one for less.
    """

    costs: Sequence[Cost]
    least: Cost


class Slices(NamedTuple):
    """What slices a board has, or those of a node, once their layouts are there, by profile; for reading only.

    Attributes:
        slots: those that serve pods.
        all: those that somebody holds too.
    """

    slots: Mapping[str, int]
    all: Mapping[str, int]


class Packing:
    """The states of boards that have been come upon. Which those are decides nothing: one packing may serve many plans."""

    def __init__(self) -> None:
        self._states: dict[tuple[Face, Profiles], State | None] = {}
        self._slices: dict[tuple[State, ...], Slices] = {}

    def __len__(self) -> int:
        """Return how many states and nodes it knows."""
        return len(self._states) + len(self._slices)

    def start(self, face: Face) -> State:
        """Return the state of a board without demand."""
        state = self._state(face, ())
        assert state is not None  # noqa: S101 - nothing is asked of it
        return state

    def add(self, state: State, profile: str) -> Step | None:
        """Return the step that gives a board one slice more, or None if it cannot hold it."""
        step = state.steps.get(profile, UNSET)
        if step is UNSET:
            then = None
            if gives(state.face, profile):  # most boards are of a model that does not make it
                then = self._state(state.face, tuple(sorted((*state.demand, profile))))
            step = None if then is None else Step(then, then.cost - state.cost, _creates(state.layout, then.layout))
            state.steps[profile] = step
        return step

    def remove(self, state: State, profile: str) -> State:
        """Return the state of a board with one slice less planned on it."""
        demand = list(state.demand)
        demand.remove(profile)
        then = self._state(state.face, tuple(demand))
        assert then is not None  # noqa: S101 - what holds more holds less
        return then

    def slices(self, states: Sequence[State]) -> Slices:
        """Return what slices the boards of a node have that are in these states."""
        key = tuple(states)
        if (found := self._slices.get(key)) is None:
            counts = [_counts(state) for state in states]
            found = self._slices[key] = Slices(
                slots=_sum(each.slots for each in counts), all=_sum(each.all for each in counts)
            )
        return found

    def _state(self, face: Face, demand: Profiles) -> State | None:
        key = (face, demand)
        if key not in self._states:
            self._states[key] = _state(face, demand)
        return self._states[key]


def growing(cost: Cost) -> int:
    """Return those parts of a cost that no slice more ever makes less: slices put off, and free ones destroyed."""
    below = (_PARTS - 2) * _BITS
    return (cost + (1 << below - 1)) >> below  # the other parts may be less than nothing


def _state(face: Face, demand: Profiles) -> State | None:
    wanted = tuple((Counter(demand) - _profiles(face.open)).elements()) if face.open else demand
    layout = None if face.rigid else arrange(face.model, face.mode, face.fixed, wanted, face.free)
    if layout is None and wanted:
        return None
    return State(face, demand, wanted, layout, _cost(face, demand, layout))


def _counts(state: State) -> Slices:
    if state.counts is None:
        state.counts = Slices(slots=_profiles(state.slots), all=_profiles(state.all_slices))
    return state.counts


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for profile, count in each.items():
            total[profile] = total.get(profile, 0) + count
    return total


def _profiles(placements: Placements) -> Counter[str]:
    return Counter(placement.profile for placement in placements)


def _waited_for(face: Face, demand: Profiles, layout: Arrangement | None) -> int:
    """Return how many slices pods have to wait for that are on their way, since those that are there do not suffice."""
    there = _profiles(face.open + face.free) - _profiles(face.coming)
    made = Counter(layout.placed if layout else ()) - Counter(face.free)
    return (Counter(demand) - there - Counter(item.profile for item in made.elements())).total()


def _cost(face: Face, demand: Profiles, layout: Arrangement | None) -> Cost:
    held = (Counter(face.fixed) - Counter(face.open)).elements() if face.open else face.fixed
    taken = [*(placement.profile for placement in held), *demand]
    units, compute = _shares(face.model, face.mode, taken)
    created, gone = _changes(layout)
    later = _waited_for(face, demand, layout) if face.coming else 0
    starts = (layout.starts if layout else ())[:_STARTS]
    cost = (Counter(demand) - _profiles(face.open + face.free)).total() if face.busy else 0
    for part in (gone, created, later, bool(taken), -units * units, -compute * compute, created > 0):
        cost = (cost << _BITS) + part
    for left in starts:
        cost = (cost << _BITS) - left
    return cost << _BITS * (_STARTS - len(starts))


def _changes(layout: Arrangement | None) -> tuple[int, int]:
    """Return how many slices a layout creates, and how many it destroys for that."""
    return (layout.created, layout.destroyed) if layout and layout.created else (0, 0)


def _creates(before: Arrangement | None, then: Arrangement | None) -> bool:
    (created, destroyed), (more, gone) = _changes(before), _changes(then)
    return more > created or gone > destroyed


def _shares(model: BoardModel, mode: str, taken: list[str]) -> tuple[int, int]:
    """Return the thousandths of a board's memory and compute slices that slices take."""
    if mode == names.MPS:
        return _share(sum(bin_gb(profile) or 0 for profile in taken), model.nominal_gb), 0
    known = geometry_of(model).shapes
    shapes = [known[name] for name in taken if name in known]
    return (
        _share(sum([shape.units for shape in shapes]), model.memory_units),
        _share(sum([shape.compute for shape in shapes]), model.compute),
    )


def _share(taken: int, whole: int) -> int:
    return min(_WHOLE, _WHOLE * taken // max(whole, 1))
