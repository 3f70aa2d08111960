"""Boards as states of one automaton: giving a board one slice more is a step, equal boards are in the same state.

The planner thinks in states, so its work grows with the number of different boards, not of boards; every step is
worked out once (`placement.arrange` moves planned slices about within the board for nothing) and then looked up.
"""

from collections import Counter
from dataclasses import dataclass, field

from policies import names
from policies.catalogue import BoardModel
from policies.geometry import Placements, Profiles, by_start
from policies.placement import Arrangement, arrange, bin_gb
from policies.plots import Plot

Cost = tuple[int, ...]
"""What a plan costs, the dearest first; the costs of boards add up, and of two plans the lower sum is better.

(free slices destroyed, slices created, slices waited for on boards being cut, boards that are no longer whole, minus
the square of the share in use so that the fullest board is filled first, by memory units, then by compute slices,
boards touched, minus the starts left by plain profile, largest first)
"""

_STARTS = 6  # plain profiles of a seven-slice board; other boards have fewer
NOTHING: Cost = (0,) * (7 + _STARTS)
"""What it costs to plan nothing."""


@dataclass(eq=False, slots=True)
class State:
    """A board with the slices planned for it.

    Attributes:
        plot: the board, or one like it.
        demand: profiles planned for pods, sorted.
        wanted: those of them that no open slice serves.
        layout: the best layout for `wanted`; None on a rigid board.
        cost: what this state costs.
        number: in the order of discovery; breaks ties.
        steps: those worked out so far, by profile.
    """

    plot: Plot
    demand: Profiles
    wanted: Profiles
    layout: Arrangement | None
    cost: Cost
    number: int
    steps: dict[str, "Step | None"] = field(default_factory=dict)

    @property
    def target(self) -> Placements | None:
        """Return all slices of the new layout, or None if the board needs none."""
        return self.all_slices if self.layout and self.layout.created else None

    @property
    def all_slices(self) -> Placements:
        """Return all slices of the board once the layout is there, sorted."""
        layout = self.layout
        return tuple(sorted(self.plot.fixed + (layout.placed + layout.kept if layout else ()), key=by_start))

    @property
    def slots(self) -> Placements:
        """Return the slices that serve pods once the layout is there: all but those that somebody holds."""
        return self.plot.open + (self.layout.placed + self.layout.kept if self.layout else ())


@dataclass(eq=False, slots=True, frozen=True)
class Step:
    """One slice more on a board: the state then, and what it costs."""

    state: State
    cost: Cost

    @property
    def creates(self) -> bool:
        """Return whether a slice has to be created or destroyed for it."""
        return self.cost[0] > 0 or self.cost[1] > 0


class Packing:
    """The states of all boards of one plan."""

    def __init__(self) -> None:
        self._states: dict[tuple[object, ...], State | None] = {}

    def start(self, plot: Plot) -> State:
        """Return the state of a board without demand."""
        state = self._state(plot, ())
        assert state is not None  # noqa: S101 - nothing is asked of it
        return state

    def add(self, state: State, profile: str) -> Step | None:
        """Return the step that gives a board one slice more, or None if it cannot hold it."""
        try:
            return state.steps[profile]
        except KeyError:
            then = self._state(state.plot, tuple(sorted((*state.demand, profile))))
            step = None if then is None else Step(then, less(then.cost, state.cost))
            state.steps[profile] = step
            return step

    def remove(self, state: State, profile: str) -> State:
        """Return the state of a board with one slice less planned on it."""
        demand = list(state.demand)
        demand.remove(profile)
        then = self._state(state.plot, tuple(demand))
        assert then is not None  # noqa: S101 - what holds more holds less
        return then

    def _state(self, plot: Plot, demand: Profiles) -> State | None:
        key = (plot.model, plot.mode, plot.rigid, plot.fixed, plot.open, plot.coming, plot.free, demand)
        if key not in self._states:
            self._states[key] = _state(plot, demand, len(self._states))
        return self._states[key]


def plus(one: Cost, other: Cost) -> Cost:
    """Return the sum of two costs."""
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def less(one: Cost, other: Cost) -> Cost:
    """Return the difference of two costs."""
    return tuple([a - b for a, b in zip(one, other, strict=True)])


def _state(plot: Plot, demand: Profiles, number: int) -> State | None:
    opened = Counter(placement.profile for placement in plot.open)
    asked = Counter(demand)
    wanted = tuple((asked - opened).elements())
    coming = Counter(placement.profile for placement in plot.coming)
    later = (asked - (opened - coming)).total() if coming else 0
    layout = None if plot.rigid else arrange(plot.model, plot.mode, plot.fixed, wanted, plot.free)
    if layout is None and wanted:
        return None
    return State(plot, demand, wanted, layout, _cost(plot, demand, layout, later), number)


def _cost(plot: Plot, demand: Profiles, layout: Arrangement | None, later: int) -> Cost:
    held = Counter(plot.fixed) - Counter(plot.open)
    taken = [*(placement.profile for placement in held.elements()), *demand]
    units, compute = _shares(plot.model, plot.mode, taken)
    created, destroyed = (layout.created, layout.destroyed) if layout else (0, 0)
    starts = (layout.starts if layout else ())[:_STARTS]
    return (
        destroyed if created else 0,
        created,
        later,
        int(bool(taken)),
        -units * units,
        -compute * compute,
        int(created > 0),
        *(-left for left in starts),
        *(0 for _ in range(_STARTS - len(starts))),
    )


def _shares(model: BoardModel, mode: str, taken: list[str]) -> tuple[int, int]:
    """Return the thousandths of a board's memory and compute slices that slices take."""
    if mode == names.MPS:
        return 1000 * sum(bin_gb(profile) or 0 for profile in taken) // max(model.nominal_gb, 1), 0
    profiles = [profile for name in taken if (profile := model.profile(name))]
    return (
        1000 * sum(profile.memory_units for profile in profiles) // max(model.memory_units, 1),
        1000 * sum(profile.compute for profile in profiles) // max(model.compute, 1),
    )
