"""Several slices of one pod on the boards of one node: which boards take how many, and what that costs.

Slices that are alike, nearly always what is asked for, are spread exactly by adding up, board after board, what so many
of them cost there. Slices of several kinds are tried out, which may fail in very many ways, so that is bounded.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import add, length_hint
from typing import Final

from policies.geometry import Profiles
from policies.packing import NOTHING, Cost, Packing, Run, State, Step

Spread = tuple[Cost, tuple[int, ...]]
"""What it costs, and for each slice the board (its position among the node's)."""

IMPOSSIBLE: Final[Cost] = 1 << 1000  # more than anything costs
_EXACT: Final = 16  # slices that are alike; of more, each in turn goes to the board where it costs least
_TRIES: Final = 400  # ways to spread slices of several kinds that are looked at
_STEPS: Final = 5_000  # and slices put down to find them
_ALL_STEPS: Final = 50_000  # for all pods of one plan, some seconds: what pods ask for must not make it take for ever
_NO_RUN: Final = Run((NOTHING,), IMPOSSIBLE)


@dataclass(eq=False, slots=True)
class Spreading:
    """Spreads slices over boards for one plan, and remembers how."""

    packing: Packing
    _ways: dict[tuple[object, ...], list[Spread]] = field(default_factory=dict)
    _most: dict[tuple[State, str, bool], int] = field(default_factory=dict)
    _steps: int = _ALL_STEPS

    def step(self, state: State, profile: str, *, settled: bool) -> Step | None:
        """Return the step that gives a board one slice more; for who is settled it must exist."""
        step = self.packing.add(state, profile)
        return None if step is None or (settled and step.creates) else step

    def best(self, profiles: Profiles, states: Sequence[State], *, settled: bool) -> Spread | None:
        """Return the cheapest way, of equal ones that of the first boards; None if the boards cannot take all slices."""
        if not profiles:
            return NOTHING, ()
        if profiles.count(profiles[0]) < len(profiles):
            return next(iter(self.ways(profiles, states, settled=settled)), None)
        key = profiles[0], len(profiles), settled
        runs = [(state.runs.get(key) or self._run(state, *key)).costs for state in states]
        if sum(map(len, runs)) - len(runs) < len(profiles):
            return None
        able = [plot for plot, run in enumerate(runs) if len(run) > 1]
        divide = _exact if len(profiles) <= _EXACT else _one_by_one
        cost, plots = divide([runs[plot] for plot in able], len(profiles))
        return cost, tuple([able[plot] for plot in plots])

    def least(self, state: State, profiles: Profiles, *, settled: bool) -> Cost:
        """Return the least that slices which are alike cost on boards of which none gives one for less than this one."""
        key = profiles[0], len(profiles), settled
        return (state.runs.get(key) or self._run(state, *key)).least

    def ways(self, profiles: Profiles, states: Sequence[State], *, settled: bool) -> list[Spread]:
        """Return ways to spread slices, cheapest first; equal boards count once. All of them, if they are not very many."""
        key = (profiles, settled, *states)
        if key not in self._ways:
            # Without steps left for the whole plan, the cheapest choice for one slice after another must do.
            allowed = max(min(_STEPS, self._steps), 2 * len(profiles))
            steps = iter(range(allowed))
            trial = _Trial(self, profiles, settled, steps)
            self._ways[key] = sorted(islice(trial.spread(list(states), ()), _TRIES))
            self._steps -= allowed - length_hint(steps)
        return self._ways[key]

    def most(self, state: State, profile: str, *, settled: bool) -> int:
        """Return how many slices of one profile a board can still take."""
        key = (state, profile, settled)
        if key not in self._most:
            step = self.step(state, profile, settled=settled)
            self._most[key] = 1 + self.most(step.state, profile, settled=settled) if step else 0
        return self._most[key]

    def _run(self, state: State, profile: str, most: int, settled: bool) -> Run:
        """Work out what equal slices cost on a board."""
        costs, then = [NOTHING], state
        while len(costs) <= most and (step := self.step(then, profile, settled=settled)):
            then = step.state
            costs.append(costs[-1] + step.cost)
        found = _NO_RUN
        if len(costs) > 1:
            found = Run(costs, min([most * cost // count for count, cost in enumerate(costs) if count]))
        state.runs[profile, most, settled] = found
        return found


@dataclass(eq=False, slots=True)
class _Trial:
    """Puts down slice after slice, each on every board."""

    spreading: Spreading
    profiles: Profiles
    settled: bool
    steps: Iterator[int]

    def spread(self, states: list[State], plots: tuple[int, ...]) -> Iterator[Spread]:
        """Yield the ways to give boards to the slices that follow those on `plots`, with what they cost."""
        if len(plots) == len(self.profiles):
            yield NOTHING, plots
            return
        profile = self.profiles[len(plots)]
        # Equal slices are not swapped: the next goes to the same board or a later one.
        first = plots[-1] if plots and self.profiles[len(plots) - 1] == profile else 0
        if not self._may_fit(states, len(plots), first):
            return
        options = [
            (step.cost, plot, step.state)
            for plot, state in enumerate(states)
            if plot >= first
            and state not in states[first:plot]
            and (step := self.spreading.step(state, profile, settled=self.settled))
        ]
        for (cost, plot, state), _ in zip(sorted(options, key=lambda option: option[:2]), self.steps, strict=False):
            before, states[plot] = states[plot], state
            for more, all_plots in self.spread(states, (*plots, plot)):
                yield cost + more, all_plots
            states[plot] = before

    def _may_fit(self, states: list[State], done: int, first: int) -> bool:
        """Return whether boards could take the slices after the first `done` of each profile, if there were no others.

        Those of the next profile go to the boards from `first` on.
        """
        return all(
            sum(self.spreading.most(state, profile, settled=self.settled) for state in states[0 if number else first :])
            >= count
            for number, (profile, count) in enumerate(Counter(self.profiles[done:]).items())
        )


def _exact(runs: Sequence[Sequence[Cost]], count: int) -> Spread:
    """Return the cheapest way to divide so many equal slices among boards; `runs` say what they cost on each."""
    # What 0, 1, 2, ... slices cost on the last boards: first on none of them, then on one more and one more.
    costs = [[NOTHING, *[IMPOSSIBLE] * count]]
    for run in reversed(runs):
        rest = costs[-1]
        costs.append([min(map(add, run, rest[left::-1])) for left in range(count + 1)])
    best, plots = costs.pop()[count], list[int]()
    for plot, run in enumerate(runs):
        left, rest = count - len(plots), costs.pop()
        cost = min(map(add, run, rest[left::-1]))
        here = next(n for n in range(min(left, len(run) - 1), -1, -1) if run[n] + rest[left - n] == cost)
        plots += [plot] * here
    return best, tuple(plots)


def _one_by_one(runs: Sequence[Sequence[Cost]], count: int) -> Spread:
    """Return a cheap way to divide so many equal slices among boards that can take them."""
    taken = [0] * len(runs)
    for _ in range(count):
        able = (plot for plot, run in enumerate(runs) if taken[plot] + 1 < len(run))
        plot = min(able, key=lambda plot: (runs[plot][taken[plot] + 1] - runs[plot][taken[plot]], plot))
        taken[plot] += 1
    plots = tuple(plot for plot, number in enumerate(taken) for _ in range(number))
    return sum((run[number] for run, number in zip(runs, taken, strict=True)), NOTHING), plots
