"""Who has been given something by a plan, what of it is there now, and who keeps off nodes where free slices are about to go."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from policies.guests import Guest
from policies.nodesets import Nodes, nodes_in, set_of
from policies.orders import destroyed, free_after_cut
from policies.plan import Plan
from policies.promise import Claim, Role
from policies.view import PodView


@dataclass(eq=False, slots=True)
class Claims:
    """The claims of those whom a plan serves.

    Attributes:
        plan: the plan, with nothing kept any more.
        pods: the pods that are planned for, by namespace/name.
        waits: those who wait for something else than slices, by namespace/name.
        slow: nodes that pods are leaving.
        now: seconds since the epoch.
        all: the claims, in the order of the walk.
        behind: who (namespace/name) could have what is free, and waits for what must go before.
        clearing: where these are, by the profiles that they need.
    """

    plan: Plan
    pods: Mapping[str, PodView]
    waits: Collection[str]
    slow: Nodes
    now: float
    all: list[Claim] = field(default_factory=list)
    behind: set[str] = field(default_factory=set)
    clearing: dict[str, Nodes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        there = self._there()
        for guest in self.plan.guests.values():
            if (role := self._role(guest, there=guest in there)) is not None:
                kind, home = guest.kind, guest.home.site
                need, created = tuple(sorted(kind.need.items())), self.pods[guest.key].created
                self.all.append(Claim(guest.key, role, need, kind.room, kind.candidates, home, created))
        self._keep_off()

    def _there(self) -> set[Guest]:
        """Return whose slices and room are there: of what a node has now the first in the queue take theirs."""
        found: set[Guest] = set()
        left: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
        for guest in self.plan.guests.values():
            home, kind = guest.home.site, guest.kind
            if home not in left:
                site = self.plan.seating.sites[home]
                left[home] = dict(site.grantable), dict(site.now)
            slices, room = left[home]
            if kind.finds(slices, room):
                found.add(guest)
                for profile, count in kind.need.items():
                    slices[profile] -= count
                for name, amount in kind.room:
                    room[name] -= amount
        return found

    def _role(self, guest: Guest, *, there: bool) -> Role | None:
        """Return what a pod has been given; None if the scheduler may place it already, as none of what it has is promised."""
        if guest.kind.settled:
            return Role.RELEASED
        if there and not self.pods[guest.key].gated:
            return None
        if guest.key in self.waits or not (there or self._is_cut_soon(guest.home.site)):
            return Role.LATER
        return Role.CANDIDATE if there else Role.COMING

    def _is_cut_soon(self, site: int) -> bool:
        """Return whether what a node lacks has only to be cut."""
        return self.plan.seating.sites[site].node.heeds(self.now) and not self.slow >> site & 1

    def _keep_off(self) -> None:
        """Keep candidates off nodes where free slices of their kinds are about to go; who belongs to such a node waits."""
        candidates = [claim for claim in self.all if claim.role is Role.CANDIDATE]
        doomed = self._doomed() if candidates else {}
        for claim in candidates:
            claim.nodes &= ~reduce(or_, (doomed.get(profile, 0) for profile, _ in claim.need), 0)
            if not claim.nodes >> claim.home & 1:
                claim.role = Role.COMING
                for profile, _ in claim.need:
                    self.clearing[profile] = self.clearing.get(profile, 0) | 1 << claim.home
                self.behind.add(claim.key)

    def _doomed(self) -> dict[str, Nodes]:
        """Return the nodes where free slices are about to go, by profile.

        Whoever lands there could take the very slices that must go, and with them the place of one for whom the board is cut.
        So the cut comes first, also before older pods that could have what is free: it takes less than a second. Only where
        the agent does not do as it is told, or where they would have to wait for others to end, these go before, and the
        board waits for them (`orders.layouts`).
        """
        first: dict[tuple[str, int], int] = {}
        needed: dict[int, Counter[str]] = defaultdict(Counter)  # by candidates, at their homes
        cut_for: dict[tuple[int, int], int] = {}
        for place, claim in enumerate(self.all):
            if claim.role is Role.CANDIDATE:
                needed[claim.home].update(dict(claim.need))
                for profile, _ in claim.need:
                    first.setdefault((profile, claim.home), place)
            elif claim.role is not Role.RELEASED:
                for plot in self.plan.guests[claim.key].home.plots:
                    cut_for.setdefault((claim.home, plot), place)
        doomed: dict[str, Nodes] = {}
        sites = self.plan.seating.sites
        going_already = set_of([position for position, site in enumerate(sites) if site.doomed])
        for position in nodes_in(self.plan.seating.shared | going_already):
            going = set(sites[position].doomed)
            losing = [
                (plot, gone)
                for plot in range(len(sites[position].plots))
                if (gone := destroyed(self.plan, position, plot))
            ]
            at_once = (
                losing
                and sites[position].node.heeds(self.now)
                and not (needed[position] and needed[position] - free_after_cut(self.plan, position))
            )
            for plot, gone in losing:
                candidate = min(first.get((profile, position), math.inf) for profile in gone)
                if at_once or candidate >= cut_for.get((position, plot), math.inf):
                    going |= gone
            for profile in going:
                doomed[profile] = doomed.get(profile, 0) | 1 << position
        return doomed
