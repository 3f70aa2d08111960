"""Why a pod waits, in one sentence with numbers that a person understands (pain L01)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Final, NamedTuple

import msgspec

from policies import names
from policies.constraints import Constraints
from policies.geometry import Profiles
from policies.guests import Kind
from policies.hindrances import Causes, hindered, told
from policies.model import Toleration
from policies.nodesets import Counts, Nodes, nodes_in, set_of
from policies.packing import Packing, State
from policies.placement import is_made, resource_of
from policies.plan import Plan, admits
from policies.plots import Face
from policies.quantity import amount
from policies.seating import Seating
from policies.shortages import Lack, have, lack_of, lacks_one, number_of
from policies.supply import Room
from policies.view import NodeView, PodView

Reason = tuple[str, str]
"""PascalCase code and sentence."""

_AWAY: Final = "away"
_REMEMBERED: Final = 1 << 16  # boards, with a profile; some 20 MiB when full, more than a large cluster has
_ALL_TAINTS: Final = (Toleration(operator="Exists"),)


def slices(profiles: Iterable[str]) -> str:
    """Return profiles as people say them: `3g.20gb`, or `2 x 1g.5gb and 2g.10gb on one node`."""
    counts = Counter(profiles)
    text = " and ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    return f"{text} on one node" if counts.total() > 1 else text


def needs(kind: Kind) -> str:
    """Return the slices that a pod needs, as the beginning of a sentence; nothing for a pod that needs none."""
    return f"needs {slices(kind.profiles)}; " if kind.profiles else ""


class Refusals:
    """Tells why no place was found for pods, when all that a plan admits have theirs.

    What boards have in common is looked at once for all of them, so a crowd that waits costs little more than one pod.
    """

    def __init__(self, plan: Plan, nodes: Sequence[NodeView]) -> None:
        """Begin with a plan that changes no more, and every node, those that are away included."""
        self._seating, self._hosts, self._nodes = plan.seating, plan.hosts, nodes
        self._having = _having(plan.seating)
        self._makers: dict[Profiles, _Makers] = {}
        self._hindered: dict[Profiles, Causes] = {}

    def why(self, pod: PodView, kind: Kind) -> Reason:
        """Return why no place was found for a pod of a kind."""
        making = self._making(tuple(kind.need))
        makers, able = kind.candidates & making.nodes, kind.candidates & making.able
        states = self._seating.states
        if not makers:
            code, why = _nobody_makes(pod, kind, self._nodes)
            return code, f"{needs(kind)}{why}"
        if placed := [site for site in nodes_in(able) if self._seating.spread(kind, states[site])]:
            code, why = names.NODES_FULL, _lacks_room(kind, self._seating, placed)
        else:
            code, why = names.NO_ROOM, self._lacks_slices(kind, makers, able)
        return code, f"{needs(kind)}{why}{self._narrowed(pod, kind, making.nodes)}"

    def _narrowed(self, pod: PodView, kind: Kind, making: Nodes) -> str:
        """Return that a pod's selector or affinity leaves only some of the nodes that could give it what it needs."""
        constraints = pod.constraints
        if not constraints.selector and constraints.terms is None:
            return ""
        making &= (1 << len(self._seating.sites)) - 1
        left = making & self._hosts.open_to(msgspec.structs.replace(constraints, tolerations=_ALL_TAINTS))
        which = " that could give that" if kind.profiles else ""
        return constraints.narrowing(left.bit_count(), making.bit_count(), which)

    def _making(self, profiles: Profiles) -> "_Makers":
        """Return the boards that ever make a slice of some profiles, or have one."""
        if (found := self._makers.get(profiles)) is None:
            nodes, able, making = -1, -1, dict[State, None]()
            for profile in profiles:
                states = [state for state in self._having if _makes(state.face, profile)]
                making |= dict.fromkeys(states)
                nodes &= self._nodes_of(states)
                able &= self._nodes_of(state for state in states if self._seating.packing.add(state, profile))
            found = self._makers[profiles] = _Makers({}, nodes, able)
            for state in making:
                lack = lack_of(state.face, state.wanted, profiles[0]) if len(profiles) == 1 else None
                counts = found.boards.setdefault((state.face.rigid, bool(state.wanted), lack), Counts())
                for having in self._having[state]:
                    counts.add(having)
        return found

    def _hindering(self, profiles: Profiles) -> Causes:
        """Return what keeps the boards from being cut that ever make a slice of some profiles, or have one."""
        if (found := self._hindered.get(profiles)) is None:
            making = (state for state in self._having if any(_makes(state.face, profile) for profile in profiles))
            rigid = {state for state in making if state.face.rigid}
            found = self._hindered[profiles] = hindered(self._seating, rigid)
        return found

    def _nodes_of(self, states: Iterable[State]) -> Nodes:
        """Return the nodes that have a board in one of some states."""
        return reduce(or_, (self._having[state][0] for state in states), 0)

    def _lacks_slices(self, kind: Kind, makers: Nodes, able: Nodes) -> str:
        """Return what is missing on the boards that make the slices; some nodes are able to take at least one of each."""
        boards = self._making(tuple(kind.need)).boards
        cuttable = {key: count for key, counts in boards.items() if not key[0] and (count := counts.on(makers))}
        if not cuttable:
            free = "none is free" if len(kind.profiles) == 1 else "not enough are free"
            return f"{free}, and {told(self._hindering(tuple(kind.need)), makers, self._seating.sites)}"
        earlier = "when the pods before it are served, " if any(planned for _, planned, _ in cuttable) else ""
        if len(kind.need) > 1:
            return f"{earlier}no node has room for all of them"
        profile = kind.profiles[0]
        if len(kind.profiles) == 1:
            return earlier + lacks_one(profile, [(lack, count) for (*_, lack), count in cuttable.items() if lack])
        states, packing = self._seating.states, self._seating.packing
        most = max(
            (sum(_more(state, profile, packing) for state in states[site]) for site in nodes_in(able)), default=0
        )
        return f"{earlier}no node has room for {f'more than {most}' if most else 'any'} of them"


class _Makers(NamedTuple):
    """The boards that ever make some slices, or have one.

    Attributes:
        boards: how many nodes have of those that are alike: whether they cannot be cut now, whether pods are planned there,
            and what they lack for one slice more, where one is asked for.
        nodes: the nodes that have some for each profile.
        able: those of them that have some which can take one more.
    """

    boards: dict[tuple[bool, bool, Lack | None], Counts]
    nodes: Nodes
    able: Nodes


def _having(seating: Seating) -> dict[State, list[Nodes]]:
    """Return for each state of boards the nodes that have one such board, those that have a second, and so on."""
    having = {state: [nodes] for state, nodes in seating.members.items() if nodes}
    more: dict[tuple[State, int], list[int]] = {}
    for site, states in enumerate(seating.states):
        counts: dict[State, int] = {}
        for state in states:
            if count := counts.get(state, 0):
                more.setdefault((state, count), []).append(site)
            counts[state] = count + 1
    for (state, _), sites in sorted(more.items(), key=lambda item: item[0][1]):
        having[state].append(set_of(sites))
    return having


@lru_cache(maxsize=_REMEMBERED)
def _makes(face: Face, profile: str) -> bool:
    """Return whether a board ever makes a slice, or has one."""
    return is_made(face.model, face.mode, profile) or any(item.profile == profile for item in face.fixed)


def _nobody_makes(pod: PodView, kind: Kind, nodes: Sequence[NodeView]) -> Reason:
    """Return why no node that is up and open to the pod ever gives it what it needs, by what the others have against it."""
    makers = [node for node in nodes if all(_ever_has(node, profile) for profile in kind.profiles)]
    closed = Counter(_closed(node, pod.constraints) for node in makers)
    if foreign := closed.pop("", 0):
        return names.NO_ROOM, f"{have(foreign, 'node')} that from another tool, but not enough of it is free"
    if away := closed.pop(_AWAY, 0):
        return names.NODES_AWAY, f"only nodes that are cordoned or not Ready could give that ({away})"
    code = names.NO_BOARD if kind.profiles else names.NODES_FULL
    if not closed:
        return code, f"no board makes that ({number_of(len(nodes), 'node')} in all)"
    against = " and ".join(f"{count} by {why}" for why, count in sorted(closed.items()))
    could = f"{number_of(closed.total(), 'node')} could make that, but none" if kind.profiles else "no node"
    return code, f"{could} is open to the pod: closed are {against}"


def _ever_has(node: NodeView, profile: str) -> bool:
    """Return whether a node could give a slice if nobody else were there: its boards make it, or another tool has."""
    if node.boards:
        return any(is_made(board.model, board.mode, profile) for board in node.boards)
    return node.allocatable.get(resource_of(profile), 0) > 0


def _closed(node: NodeView, constraints: Constraints) -> str:
    """Return what keeps a pod off a node; nothing if it is open to it."""
    if not constraints.selects(node.name, node.labels):
        return "its selector or affinity"
    if not constraints.tolerates(node.taints, although_away=True):
        return "taints"
    return "" if admits(node, constraints) else _AWAY


def _lacks_room(kind: Kind, seating: Seating, sites: list[int]) -> str:
    """Return what is missing on nodes besides slices, first of all what none of them would ever have."""
    sizes = [seating.sites[site].node.allocatable for site in sites]
    beyond = [
        f"{name} (needs {amount(name, asked)}, the largest has {amount(name, most)})"
        for name, asked in kind.room
        if (most := max(size.get(name, 0) for size in sizes)) < asked
    ]
    if beyond:
        return f"no node open to the pod is large enough: {' and '.join(beyond)}"
    rooms: list[Room] = [seating.room[site] for site in sites]
    lacking = [
        f"{name} (needs {amount(name, asked)}, at most {amount(name, max(most, 0))} left)"
        for name, asked in kind.room
        if (most := max(room.get(name, 0) for room in rooms)) < asked
    ]
    without = " and ".join(lacking) or "all of " + ", ".join(name for name, _ in kind.room)
    place = "a place for that, but not" if kind.profiles else "not"
    return f"{have(len(rooms), 'node')} {place} {without}"


def _more(state: State, profile: str, packing: Packing) -> int:
    """Return how many slices of a profile a board can still take."""
    count = 0
    while step := packing.add(state, profile):
        state, count = step.state, count + 1
    return count
