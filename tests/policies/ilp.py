"""Which pods can be served together, by integer programming (HiGHS): the planner's oracle, from the published tables.

For each node and each sort of board on it: how many boards get which layout. For each sort of pod and each node: how
many go there. What the layouts give on a node is at least what its pods take, of every profile; slices in use stay.
"""

from collections import Counter
from functools import cache

import highspy
import numpy as np

from policies import names
from tests.policies.demands import MPS_BOARDS, key
from tests.policies.facts import BOARDS, TABLES, kind_of, layouts, name_of

CLIENTS = 48
LIMIT_S = 20.0  # for one question
INFINITY = highspy.kHighsInf


class UndecidedError(Exception):
    """The solver has not found an answer in time."""


def fewest_destroyed(nodes, asked):
    """Return how few free slices must go so that all pods are served together; None if they cannot be.

    Only for MIG boards. Raises UndecidedError.
    """
    program = _Program(nodes, Counter(asked))
    return round(program.value()) if program.solve(minimise=True) else None


def can_be_served(nodes, asked):
    """Return whether all pods can be served together, whatever is destroyed of what is free. Raises UndecidedError."""
    return _Program(nodes, Counter(asked)).solve(minimise=False)


def wrongly_refused(nodes, asked, found):
    """Return how many pods a plan refuses, and the numbers of those that could have been served.

    A pod could have been if it can be served together with all those before it that the plan serves. Raises UndecidedError.
    """
    admitted, refused, wrong, hopeless = [], 0, [], set()
    for number, ask in enumerate(asked):
        if key(number) in found.guests:
            admitted.append(ask)
            continue
        refused += 1
        if ask in hopeless:  # those that have been admitted since only take more room
            continue
        if can_be_served(nodes, [*admitted, ask]):
            wrong.append(number)
        else:
            hopeless.add(ask)
    return refused, wrong


class _Program:
    """Variables are columns of the solver; a row is a sum of columns within bounds."""

    def __init__(self, nodes, asked):
        self._solver = highspy.Highs()
        self._solver.silent()
        self._solver.setOptionValue("time_limit", LIMIT_S)
        self._solver.setOptionValue("threads", 1)
        self._costs = {}
        self._columns = 0
        going = {ask: {} for ask in asked}
        for one in nodes:
            takers = {ask: self._column(count) for ask, count in asked.items() if ask.may_use(one)}
            for ask, column in takers.items():
                going[ask][column] = 1
            self._row({column: ask.cpu for ask, column in takers.items()}, most=one.cpu)
            self._row(dict.fromkeys(takers.values(), 1), most=one.pods)
            self._supply(one, takers)
        for ask, columns in going.items():
            self._row(columns, least=asked[ask], most=asked[ask])

    def solve(self, *, minimise):
        if minimise:
            for column, cost in self._costs.items():
                self._solver.changeColCost(column, cost)
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return True
        # Empty: no node takes any of the pods.
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kModelEmpty):
            return False
        raise UndecidedError(self._solver.modelStatusToString(status))

    def value(self):
        return self._solver.getInfo().objective_function_value

    def _supply(self, one, takers):
        """Let what pods take of each profile be at most what the boards give."""
        profiles = {profile for ask in takers for profile, _ in ask.slices}
        gives = {profile: Counter() for profile in profiles}
        for board, count in Counter(one.boards).items():
            if board.mode == names.MPS:
                for _ in range(count):
                    self._bins(board, gives)
                continue
            columns = {}
            for counts, cost in layouts_beside(board):
                column = self._column(count)
                columns[column] = 1
                self._costs[column] = cost
                for profile in profiles & counts.keys():
                    gives[profile][column] = counts[profile]
            self._row(columns, least=count, most=count)
        for profile, given in gives.items():
            for ask, column in takers.items():
                given[column] = -dict(ask.slices).get(profile, 0)
            self._row(given, least=0)

    def _bins(self, board, gives):
        """Let an MPS board give whole GB: as many as it has left, to as many clients as it has left."""
        spare = MPS_BOARDS[board.product] - sum(int(profile[:-2]) for profile, _ in board.used)
        sizes = {}
        for profile, given in gives.items():
            if profile[:-2].isdecimal():
                column = self._column(CLIENTS)
                sizes[column] = int(profile[:-2])
                given[column] = 1
        self._row(sizes, most=spare)
        self._row(dict.fromkeys(sizes, 1), most=CLIENTS - len(board.used))

    def _column(self, most):
        self._solver.addVar(0, most)
        self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1
        return self._columns - 1

    def _row(self, terms, least=-INFINITY, most=INFINITY):
        indices = np.array(list(terms), dtype=np.int32)
        self._solver.addRow(least, most, len(terms), indices, np.array(list(terms.values()), dtype=np.float64))


@cache
def layouts_beside(board):
    """Return (profile counts, free slices destroyed) of the layouts of a MIG board that keep what is used.

    Of those that give the same only the one that destroys least, and none that gives no more and destroys no less.
    """
    fixed, idle = _kinds(board.product, board.used), _kinds(board.product, board.free)
    cheapest = {}
    for layout in layouts(BOARDS[board.product][0]):
        if fixed <= layout:
            counts = tuple(sorted(Counter(kind for kind, _ in layout - fixed).items()))
            destroyed = len(idle - layout)
            cheapest[counts] = min(destroyed, cheapest.get(counts, destroyed))
    options = [(Counter(dict(counts)), destroyed) for counts, destroyed in cheapest.items()]
    named = _names(board.product)
    return [
        ({named[kind]: count for kind, count in counts.items()}, destroyed)
        for counts, destroyed in options
        if not any(counts < more and less <= destroyed for more, less in options)
    ]


@cache
def _names(product):
    return {kind: name_of(product, kind) for kind in TABLES[BOARDS[product][0]]}


def _kinds(product, slices):
    return frozenset((kind_of(product, profile), start) for profile, start in slices)
