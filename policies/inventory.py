"""The boards that slices are chosen from, and what other plugins announce: an immutable picture for admission.

A review asks for the boards that its pod may use, thousands of times between two changes of the nodes. So nodes of the
same kinds of boards are put into groups, once for each set of constraints, and that is kept until some node's labels,
taints, readiness or boards change. How the boards are cut, which changes all the time, stands apart.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Self

import msgspec

from policies import names
from policies.barriers import barrier
from policies.catalogue import by_product
from policies.charges import Place
from policies.constraints import Constraints
from policies.site import UNBOUNDED, BoardKind, Site, most, room, site_of
from policies.view import NodeView

_MOST_OFFERS: Final = 1024  # constraints that are remembered; the pods of one workload share theirs

_Wanted = tuple[Constraints, tuple[str, ...]]
"""What is asked of nodes: by a pod, and the models that its policy names."""


class Group(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Nodes that can make the same slices. Told apart by identity, which is quick.

    Attributes:
        kinds: of their boards.
        announced: slices that they announce although their boards do not explain them.
        products: values of their product label, sorted.
        nodes: their names.
    """

    kinds: tuple[BoardKind, ...]
    announced: frozenset[str]
    products: tuple[str, ...]
    nodes: tuple[str, ...]

    def makes(self, resource: str) -> bool:
        """Return whether they can make a slice resource, or announce it."""
        return resource in self.announced or any(kind.makes(resource) for kind in self.kinds)

    def calls_gpu(self, mode: str) -> bool:
        """Return whether what some of their boards in a mode announce is called a GPU, by a file."""
        return any(kind.mode == mode and kind.called == names.GPU for kind in self.kinds)

    def serves_by(self, kinds: Collection[BoardKind]) -> bool:
        """Return whether one of these kinds is among theirs."""
        return any(kind in kinds for kind in self.kinds)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes hold for pods with certain constraints.

    Attributes:
        up: groups of nodes of ours that may be used now.
        away: groups of nodes of ours that are cordoned, not Ready, or tainted by Kubernetes itself.
        ahead: groups without nodes: boards that the policy names, which may yet come.
        foreign: slice resources that are another plugin's: no node of ours makes them.
        whole: whether a node, of ours or not, that may be used now or later announces nvidia.com/gpu.
        constraints: those of the pods.
    """

    up: tuple[Group, ...]
    away: tuple[Group, ...]
    ahead: tuple[Group, ...] = ()
    foreign: frozenset[str]
    whole: bool = False
    constraints: Constraints = Constraints()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return all groups, those that may be used now first, those that may yet come last."""
        return self.up + self.away + self.ahead

    @property
    def place(self) -> Place:
        """Return the boards of ours, for what a pod costs its quota."""
        return Place(boards=frozenset((kind.mode, kind.model) for group in self.groups for kind in group.kinds))


NOTHING: Final = Offer(up=(), away=(), foreign=frozenset())


class Inventory:
    """The nodes that matter for slices. Immutable but for what it remembers; any thread may ask."""

    __slots__ = ("_most", "_offers", "_rooms", "_sites")

    def __init__(self, sites: Mapping[str, Site], offers: dict[_Wanted, Offer] | None = None) -> None:
        self._sites = sites
        self._offers = {} if offers is None else offers
        self._rooms: dict[tuple[Group, BoardKind, str], int] = {}
        self._most: dict[tuple[Group, str], int] = {}

    @classmethod
    def of(cls, nodes: Iterable[NodeView]) -> Self:
        """Return the inventory of these nodes."""
        return cls({node.name: site for node in nodes if (site := site_of(node))})

    def replaced(self, name: str, site: Site | None) -> "Inventory":
        """Return the inventory after a node has changed, come or gone."""
        before, sites = self._sites.get(name), dict(self._sites)
        if site:
            sites[name] = site
        else:
            sites.pop(name, None)
        same = before is not None and site is not None and before.traits == site.traits
        return Inventory(sites, self._offers if same else None)

    @property
    def products(self) -> frozenset[str]:
        """Return the values of the product label that nodes with slices have."""
        sites = (site.traits for site in self._sites.values() if site.traits.managed or site.traits.announced)
        labels = (traits.labels.get(names.PRODUCT_LABEL) for traits in sites)
        return frozenset(product for product in labels if product)

    def offer(self, constraints: Constraints, models: tuple[str, ...] = ()) -> Offer:
        """Return what the nodes hold for pods with these constraints; `models`, if any, are the only products they may use."""
        offer = self._offers.get((constraints, models))
        if offer is None:
            if len(self._offers) >= _MOST_OFFERS:
                self._offers.clear()
            offer = self._narrowed(constraints, models) if models else self._gather(constraints)
            self._offers[constraints, models] = offer
        return offer

    def room(self, group: Group, kind: BoardKind, profile: str) -> int:
        """Return how many slices of a profile can be had now from a group's boards of a kind."""
        key = group, kind, profile
        known = self._rooms.get(key)
        if known is None:
            known = sum(room(self._sites[name].cuts, kind, profile) for name in group.nodes)
            self._rooms[key] = known
        return known

    def most(self, group: Group, resource: str) -> int:
        """Return how many slices of a resource one node of a group has at most; no bound where nobody knows."""
        if not group.nodes or resource in group.announced:
            return UNBOUNDED
        key = group, resource
        known = self._most.get(key)
        if known is None:
            known = self._most[key] = max(most(self._sites[name].cuts, resource) for name in group.nodes)
        return known

    def barrier(self, offer: Offer) -> str:
        """Return what keeps the pods that an offer is for off all nodes of ours, or "" if nothing does."""
        return barrier(self._sites.values(), offer.constraints)

    def narrowing(self, offer: Offer) -> str:
        """Return that selector or affinity leave the pods that an offer is for only some nodes of ours; "" if all, or none."""
        ours = [site for site in self._sites.values() if site.traits.managed and site.traits.kinds]
        left = sum(offer.constraints.selects(site.name, site.traits.labels) for site in ours)
        return (
            offer.constraints.narrowing(left, len(ours), f" that are labelled {names.PARTITIONING_LABEL}")
            if left
            else ""
        )

    def _narrowed(self, constraints: Constraints, models: tuple[str, ...]) -> Offer:
        """Return what is left of an offer where only some products may be used, with those of them that may yet come."""
        everywhere, here = self.offer(constraints), self._gather(constraints.within(names.PRODUCT_LABEL, models))
        ahead = (self._ahead(model) for model in models if constraints.allows(names.PRODUCT_LABEL, model))
        # What boards of ours make stays ours, also where the policy does not let it come from them.
        return msgspec.structs.replace(
            here,
            ahead=tuple(group for group in ahead if group.kinds),
            foreign=everywhere.foreign,
            whole=everywhere.whole,
            constraints=constraints,
        )

    def _ahead(self, product: str) -> Group:
        """Return boards of a product that may yet come, in any mode: such as are here already, else as the tables say."""
        here = {
            kind.model
            for site in self._sites.values()
            if site.traits.labels.get(names.PRODUCT_LABEL) == product
            for kind in site.traits.kinds
        }
        known = by_product(product)
        kinds = (BoardKind(mode, model) for model in here or ({known} if known else ()) for mode in names.MODES)
        return Group(
            kinds=tuple(sorted(kinds, key=lambda kind: kind.order)),
            announced=frozenset(),
            products=(product,),
            nodes=(),
        )

    def _gather(self, constraints: Constraints) -> Offer:
        up: list[Site] = []
        away: list[Site] = []
        # NVIDIA's own plugin announces time slices wherever there is no node of ours that does.
        foreign = {names.GPU_SHARED}
        for site in self._sites.values():
            traits = site.traits
            if not traits.managed:
                foreign |= traits.announced
            elif constraints.selects(site.name, traits.labels):
                if traits.up and constraints.tolerates(traits.taints):
                    up.append(site)
                elif constraints.tolerates(traits.taints, although_away=True):
                    away.append(site)
        whole = any(
            constraints.selects(site.name, site.traits.labels)
            and constraints.tolerates(site.traits.taints, although_away=True)
            for site in self._sites.values()
            if site.traits.whole
        )
        offer = Offer(up=_groups(up), away=_groups(away), foreign=frozenset(), whole=whole, constraints=constraints)
        ours = {name for name in foreign if any(group.makes(name) for group in offer.groups)}
        return msgspec.structs.replace(offer, foreign=frozenset(foreign - ours))


# ---------------------------------------------------------------------------------------------------------------------


def _groups(sites: Iterable[Site]) -> tuple[Group, ...]:
    members: dict[tuple[tuple[BoardKind, ...], frozenset[str]], list[Site]] = {}
    for site in sites:
        members.setdefault((site.traits.kinds, site.traits.announced), []).append(site)
    groups = [
        Group(
            kinds=kinds,
            announced=announced,
            products=tuple(sorted({site.traits.labels.get(names.PRODUCT_LABEL, "") for site in alike} - {""})),
            nodes=tuple(site.name for site in alike),
        )
        for (kinds, announced), alike in members.items()
    ]
    return tuple(sorted(groups, key=lambda group: ([kind.order for kind in group.kinds], sorted(group.announced))))
