"""The ways to spread the slices of one pod over the boards of one node."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import length_hint

from policies.geometry import Profiles
from policies.packing import NOTHING, Cost, Packing, State, Step, plus

Way = tuple[Cost, tuple[int, ...]]
"""What it costs, and for each slice the board (its position among the node's)."""

_TRIES = 400  # ways that are looked at for one pod on one node
_STEPS = 5_000  # and slices put down to find them: slices of several kinds can fail to fit in very many ways
_ALL_STEPS = 50_000  # for all pods of one plan, some seconds: what pods ask for must not make it take for ever


@dataclass(eq=False, slots=True)
class Spreading:
    """Spreads slices over boards, for one plan; what is worked out once is looked up then.

    Where slices must `exist`, none is created or destroyed for the pod.

    Attributes:
        packing: the states of the boards.
    """

    packing: Packing
    _ways: dict[tuple[object, ...], list[Way]] = field(default_factory=dict)
    _most: dict[tuple[State, str, bool], int] = field(default_factory=dict)
    _steps: int = _ALL_STEPS

    def ways(self, profiles: Profiles, states: list[State], *, exist: bool) -> list[Way]:
        """Return the ways to spread slices over the boards of a node, cheapest first; equal boards count once."""
        key = (profiles, exist, *states)
        if key not in self._ways:
            # Without steps left for the whole plan, the cheapest choice for one slice after another must do.
            allowed = max(min(_STEPS, self._steps), 2 * len(profiles))
            steps = iter(range(allowed))
            self._ways[key] = sorted(islice(self._spread(profiles, list(states), (), steps, exist=exist), _TRIES))
            self._steps -= allowed - length_hint(steps)
        return self._ways[key]

    def step(self, state: State, profile: str, *, exist: bool) -> Step | None:
        """Return the step that gives a board one slice more, or None if it cannot hold it."""
        step = self.packing.add(state, profile)
        return None if step is None or (exist and step.creates) else step

    def _spread(
        self, profiles: Profiles, states: list[State], plots: tuple[int, ...], steps: Iterator[int], *, exist: bool
    ) -> Iterator[Way]:
        """Yield the ways to give boards to the slices that follow those on `plots`, with what they cost."""
        if len(plots) == len(profiles):
            yield NOTHING, plots
            return
        profile = profiles[len(plots)]
        # Equal slices are not swapped: the next goes to the same board or a later one.
        first = plots[-1] if plots and profiles[len(plots) - 1] == profile else 0
        if not self._may_fit(profiles[len(plots) :], states, first, exist=exist):
            return
        options = [
            (step.cost, plot, step.state)
            for plot, state in enumerate(states)
            if plot >= first and state not in states[first:plot] and (step := self.step(state, profile, exist=exist))
        ]
        for (cost, plot, state), _ in zip(sorted(options, key=lambda option: option[:2]), steps, strict=False):
            before, states[plot] = states[plot], state
            for more, all_plots in self._spread(profiles, states, (*plots, plot), steps, exist=exist):
                yield plus(cost, more), all_plots
            states[plot] = before

    def _may_fit(self, profiles: Profiles, states: list[State], first: int, *, exist: bool) -> bool:
        """Return whether boards could take the slices of each profile, if there were no others.

        Those of the next profile go to the boards from `first` on.
        """
        return all(
            sum(self._most_of(state, profile, exist=exist) for state in states[0 if number else first :]) >= count
            for number, (profile, count) in enumerate(Counter(profiles).items())
        )

    def _most_of(self, state: State, profile: str, *, exist: bool) -> int:
        """Return how many slices of one profile a board can still take."""
        key = (state, profile, exist)
        if key not in self._most:
            step = self.step(state, profile, exist=exist)
            self._most[key] = 1 + self._most_of(step.state, profile, exist=exist) if step else 0
        return self._most[key]
