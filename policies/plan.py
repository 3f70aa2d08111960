"""Which waiting pods can be served together, and where: the walk over the queue (design section 5).

Each pod is admitted if it can be served together with all admitted before it, so an older 4g goes before seven younger
1g. Then, of the plans that serve these pods, one that costs least (`packing.Cost`) is kept.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.annotations import Placement, by_start
from policies.constraints import Constraints
from policies.guests import Guest, Kind
from policies.hosts import Hosts
from policies.nodesets import Nodes, nodes_in
from policies.placement import profile_of, size_of
from policies.regroup import Regroup
from policies.repair import improve, make_room
from policies.search import Budget
from policies.seating import Seating
from policies.supply import Supply, room_request
from policies.view import NodeView, PodView

_TRIES = 10_000  # of all repairs of one plan together
_GROUP_TRIES = 20_000  # and of spreading pods anew over a few nodes, which are quicker


@dataclass(eq=False, slots=True)
class Plan:
    """What a walk has come to.

    Attributes:
        seating: boards and room with the admitted pods.
        hosts: the nodes of the seating, by what constraints ask of them.
        guests: the admitted pods in the order of the walk, by namespace/name.
        refused: the others' kinds.
    """

    seating: Seating
    hosts: Hosts
    guests: dict[str, Guest]
    refused: dict[str, Kind]

    def placements(self) -> dict[str, tuple[tuple[int, Placement], ...]]:
        """Return (board index, placement) of the slices planned for each pod; earlier pods have those that exist."""
        places: dict[tuple[int, int], list[Placement]] = {}
        found: dict[str, tuple[tuple[int, Placement], ...]] = {}
        for key, guest in self.guests.items():
            slices: list[tuple[int, Placement]] = []
            site = guest.home.site
            for plot, profile in zip(guest.home.plots, guest.kind.profiles, strict=True):
                if (left := places.get((site, plot))) is None:
                    left = places[site, plot] = self._places(site, plot)
                placement = next(item for item in left if item.profile == profile)
                left.remove(placement)
                slices.append((self.seating.sites[site].plots[plot].index, placement))
            found[key] = tuple(sorted(slices, key=lambda item: (item[0], by_start(item[1]))))
        return found

    def _places(self, site: int, plot: int) -> list[Placement]:
        """Return the slices of a board that serve pods, those that exist first."""
        face, layout = self.seating.sites[site].plots[plot].face, self.seating.states[site][plot].layout
        slots = face.open + (layout.placed if layout else ())
        coming = Counter(face.coming)
        there = Counter(face.open + face.free)
        there.subtract(coming)

        def lateness(item: Placement) -> int:
            for number, left in enumerate((there, coming)):
                if left[item] > 0:
                    left[item] -= 1
                    return number
            return 2

        return sorted(slots, key=lateness)


class Planner:
    """A walk over pods in their order, one at a time.

    Attributes:
        found: what it has come to so far.
        slow: nodes that pods are leaving; others are looked at first, then those of them that need not wait for that.
    """

    def __init__(self, seating: Seating, hosts: Hosts) -> None:
        """Begin with the nodes, all of them up, on which nobody sits; `hosts` are the same."""
        self.found = Plan(seating, hosts, {}, {})
        self.slow: Nodes = 0
        self._budget = Budget(_TRIES)
        self._groups = Regroup(self.found.seating, Budget(_GROUP_TRIES))
        self._kinds = _Kinds(self.found.seating, hosts)

    def admit(self, key: str, kind: Kind) -> bool:
        """Seat a pod (namespace/name) of a kind with all those admitted before it; return whether it could be."""
        if not kind.refused:
            guest = Guest(key, kind)
            self._serve(guest)
            if guest.seat:
                self.found.guests[key] = guest
                self.found.refused.pop(key, None)
                return True
            # What is admitted from now on only takes more room, so no later pod of this kind can be served.
            kind.refused = True
        self.found.refused[key] = kind
        return False

    def kind(self, pod: PodView, *, settled: bool = False, avoid: Nodes = 0) -> Kind:
        """Return the kind of a pod; one that is `settled` has been released, so that only slices that exist serve it.

        On the nodes to `avoid` it is not to be served.
        """
        return self._kinds.of(pod, settled, avoid)

    def finish(self) -> Plan:
        """Return the plan, with the pods on the seats that cost least, but nobody moved to a node that others have yet to leave."""
        improve(self.found.seating, self.found.guests.values(), self._budget, ~self.slow)
        return self.found

    def _serve(self, guest: Guest) -> None:
        seating, kind = self.found.seating, guest.kind
        found = None
        if self.slow:
            found = seating.find(kind, ~self.slow) or seating.find(kind, self._at_once(kind))
        found = found or seating.find(kind)
        if found is not None:
            seating.put(guest, found[1])
        elif kind.profiles and not kind.settled:
            make_room(seating, guest, self._budget, self._groups)

    def _at_once(self, kind: Kind) -> Nodes:
        """Return the nodes that pods are leaving which have all that a pod needs while those are still there."""
        seating, found = self.found.seating, 0
        for position in nodes_in(kind.candidates & self.slow):
            slices, room = Counter(seating.sites[position].grantable), Counter(seating.sites[position].now)
            for guest in seating.guests[position]:
                slices.subtract(guest.kind.profiles)
                room.subtract(dict(guest.kind.room))
            if kind.finds(slices, room):
                found |= 1 << position
        return found


def plan(pods: Iterable[PodView], sites: Sequence[Supply]) -> Plan:
    """Walk pods that wait in their order and return who is served where.

    Args:
        pods: pods in the order of the queue.
        sites: the nodes that may be used, by name.
    """
    planner = Planner(Seating(sites), Hosts([site.node for site in sites]))
    for pod in pods:
        planner.admit(pod.key, planner.kind(pod))
    return planner.finish()


def admits(node: NodeView, constraints: Constraints) -> bool:
    """Return whether a node is open to pods with these constraints at all, whatever it has left."""
    return (
        node.ready
        and not node.cordoned
        and constraints.selects(node.name, node.labels)
        and constraints.tolerates(node.taints)
    )


class _Kinds:
    """Pods that need the same, made one kind."""

    def __init__(self, seating: Seating, hosts: Hosts) -> None:
        self._seating, self._hosts = seating, hosts
        self._kinds: dict[tuple[object, ...], Kind] = {}
        # Pods that are alike share these objects (`view_pod`), which live as long as the pod that is kept here.
        self._alike: dict[tuple[int, int, int], tuple[PodView, Kind]] = {}

    def of(self, pod: PodView, settled: bool, avoid: Nodes) -> Kind:
        """Return the kind of a pod."""
        if settled or avoid:
            return self._find(pod, settled, avoid)
        key = (id(pod.request), id(pod.slices), id(pod.constraints))
        known = self._alike.get(key)
        if known is None:
            known = self._alike[key] = pod, self._find(pod, settled, avoid)
        return known[1]

    def _find(self, pod: PodView, settled: bool, avoid: Nodes) -> Kind:
        room = room_request(pod)
        key = (pod.slices, pod.constraints, room, settled, avoid)
        kind = self._kinds.get(key)
        if kind is None:
            profiles = [profile_of(resource) for resource, count in pod.slices for _ in range(count)]
            profiles.sort(key=lambda profile: (size_of(profile), profile), reverse=True)
            kind = self._kinds[key] = Kind(
                profiles=tuple(profiles),
                room=room,
                candidates=self._hosts.open_to(pod.constraints) & ~avoid,
                settled=settled,
                size=sum(size_of(profile)[0] for profile in profiles),
            )
            self._seating.kinds.append(kind)
        return kind
