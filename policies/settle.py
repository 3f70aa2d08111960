"""The one place where it is decided who gets slices and which boards are cut: `settle(view) -> Decision`.

Pods stand in one order. Who is served by slices that are free now is released; for the others boards are cut; who
cannot be served together with those before it waits, with the reason. What a released pod could land on is never
destroyed. Everything is derived from the view afresh: a settled cluster settles to nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from policies import names
from policies.claims import Claims
from policies.constraints import Constraints
from policies.crowding import Stock
from policies.decision import Cut, Decision, Evict, Layout, Planned, Release, Waiting
from policies.evictions import stale_holders
from policies.ground import Ground
from policies.holding import Holding
from policies.hosts import Hosts
from policies.ledger import Ledger
from policies.memo import Memo
from policies.nodesets import Nodes, nodes_in
from policies.orders import clear_for_mode, destroyed, judge_withdrawn, layouts, take_back
from policies.plan import Planner
from policies.promise import Claim, Let, Role, release
from policies.queueing import in_order
from policies.settings import DEFAULTS, Settings
from policies.supply import slices_of
from policies.view import NodeView, PodView, View
from policies.waits import Waits
from policies.walk import Walk


def settle(view: View, settings: Settings = DEFAULTS, memo: Memo | None = None) -> Decision:
    """Return everything to do now. The order of what is in the view does not matter, nor does the memo but for time."""
    memo = memo or Memo()
    ledger = Ledger(view, settings.quota, memo.places(view.nodes))
    return _Settlement(_Sorted(view, ledger), ledger, settings, memo).decide()


class _Sorted:
    """The view in order: nodes that have an agent first, then by name, pods by what can be done for them."""

    def __init__(self, view: View, ledger: Ledger) -> None:
        self.view = view
        # Boards that an agent has reported come first: an order to a node without one is carried out by nobody.
        self.nodes = sorted(view.nodes, key=lambda node: (not node.reported, node.name))
        self.bound: defaultdict[str, list[PodView]] = defaultdict(list)
        self.promised: list[PodView] = []  # released, so that slices or room are kept for them
        self.held: list[PodView] = []  # by somebody else's gate too
        self.unneeding: list[PodView] = []  # gated, though they ask for no slice and no quota holds them
        self.waiting: list[PodView] = []  # to be served: gated, or given up by the scheduler
        for pod in view.pods:
            if node := pod.node:
                if not pod.finished:
                    self.bound[node].append(pod)
            elif pod.finished or pod.terminating:
                continue
            elif pod.held:
                self.held += [pod] if pod.gated else []
            elif not (pod.slices or (ledger.holds(pod) if pod.gated else ledger.governs(pod))):
                self.unneeding += [pod] if pod.gated else []
            elif pod.gated or pod.given_up(view.now):
                self.waiting.append(pod)
            else:
                self.promised.append(pod)
        for pods in (self.promised, self.held, self.unneeding):
            pods.sort(key=ledger.queue_order)


class _Settlement:
    """The plan for a view, and what follows from it."""

    def __init__(self, seen: _Sorted, ledger: Ledger, settings: Settings, memo: Memo) -> None:
        self.seen, self.ledger = seen, ledger
        self.pods = {pod.key: pod for pod in (*seen.promised, *seen.waiting)}
        up = [_without_undone(node, seen.view.now) for node in seen.nodes if node.ready and not node.cordoned]
        hosts = memo.hosts(up)
        promised = _promised_on(hosts, seen.promised)
        sites = [memo.supply(node, seen.bound[node.name], promised[node.name], ledger.going) for node in up]
        memo.forget_others(up)
        seating = memo.seating(sites)
        planner = Planner(seating, hosts)
        holding = Holding(seating, seen.bound, ledger.going, seen.view.now, memo.lefts)
        memo.lefts = holding.found
        self.ground = Ground(planner, seen.bound, promised, set(ledger.going), holding)
        self.walk = Walk(ledger, planner, self.ground, settings.quota, seen.view)
        self.queue = in_order(ledger, seen.waiting, lambda pod: self.ground.ever(planner.kind(pod)))
        self.walk.go(seen.promised, self.queue)
        self.plan = planner.finish()
        self.plan.seating.let_go()
        self.sites = self.plan.seating.sites
        self.claims = Claims(self.plan, self.pods, self.walk.waits, planner.slow, seen.view.now)

    def decide(self) -> Decision:
        """Return the decision."""
        claims = self.claims.all
        candidates = any(claim.role is Role.CANDIDATE for claim in claims)
        allowed, yielding = release([*claims, *self.ground.held], self._stock()) if candidates else Let({}, {})
        landing: dict[str, Nodes] = {}
        for claim in claims:
            for profile, _ in claim.need if claim.key in allowed else ():
                landing[profile] = landing.get(profile, 0) | allowed[claim.key]
        for key in [key for key in self.walk.displacing if self._is_in_doubt(key, landing)]:
            self.walk.put_off(key)
        ordered = layouts(self.plan, landing, self.claims.clearing)
        judged = [
            judge_withdrawn(node, self.seen.bound[node.name], self.seen.promised) or take_back(node, self.seen.view.now)
            for node in self.seen.nodes
            if node.in_flight
        ]
        ordered += [action for action in judged if isinstance(action, Layout)]
        ordered += self._clearances({layout.node for layout in ordered})
        later = {claim.key: claim for claim in claims if claim.role is not Role.RELEASED and claim.key not in allowed}
        for key in later:
            if self.pods[key].gated:  # who has been given up by the scheduler counts all the same
                self.ledger.withdraw(self.pods[key])
        over = self.ledger.over_quota()
        return Decision(
            ungate=(
                *(Release(pod=pod.key, uid=pod.uid, version=pod.version) for pod in self.seen.unneeding),
                *(
                    self._release(pod, allowed[pod.key], self.ledger.capacity(pod, over))
                    for pod in self.queue
                    if pod.key in allowed
                ),
            ),
            relabel=tuple(self.ledger.relabels(over)),
            evict=(*self.walk.evict, *self._stale()),
            quotas=self.ledger.statuses(),
            layouts=tuple(sorted(ordered, key=lambda layout: layout.node)),
            cuts=tuple(action for action in judged if isinstance(action, Cut)),
            waiting=tuple(self._waiting(later, ordered, yielding)),
            planned=self._planned(later),
        )

    def _stale(self) -> Iterator[Evict]:
        """Return whom to send away since what they hold is not there any more, but for those who go anyhow."""
        going = {evict.pod for evict in self.walk.evict}
        found = stale_holders(self.seen.nodes, self.seen.bound, self.ledger, self.walk.settings, self.seen.view.now)
        return (evict for evict in found if evict.pod not in going)

    def _is_in_doubt(self, key: str, landing: Mapping[str, Nodes]) -> bool:
        """Return whether a board is to be cut for a pod on which others could land that are being released now."""
        home = self.plan.guests[key].home
        gone = (destroyed(self.plan, home.site, plot) for plot in home.plots)
        return any(landing.get(profile, 0) >> home.site & 1 for profile in frozenset().union(*gone))

    def _clearances(self, ordered: Collection[str]) -> list[Layout]:
        """Return the orders to take away what is left from another mode; a node that has an order gets no second one."""
        others = (*self.seen.promised, *self.queue)
        nodes = [site.node for site in self.sites if site.rigid]
        found = (clear_for_mode(node, self.seen.bound[node.name], others) for node in nodes if node.name not in ordered)
        return [layout for layout in found if layout]

    def _stock(self) -> Stock:
        seating = self.plan.seating
        slices = [seating.packing.slices(states) for states in seating.states]
        return Stock(
            now=[site.grantable for site in self.sites],
            later=[each.slots for each in slices],
            room=[site.now for site in self.sites],
            ever=[each.all for each in slices],
            whole=[site.node.allocatable for site in self.sites],
        )

    def _release(self, pod: PodView, nodes: Nodes, capacity: str) -> Release:
        avoid = self.plan.guests[pod.key].kind.candidates & ~nodes
        return Release(
            pod=pod.key,
            uid=pod.uid,
            version=pod.version,
            avoid=tuple(self.sites[site].node.name for site in nodes_in(avoid)),
            capacity=capacity,
        )

    def _planned(self, later: dict[str, Claim]) -> dict[str, Planned]:
        placements = self.plan.placements()
        return {
            key: Planned(node=self.sites[claim.home].node.name, slices=placements[key]) for key, claim in later.items()
        }

    def _waiting(
        self, later: dict[str, Claim], ordered: Iterable[Layout], yielding: Mapping[str, int]
    ) -> Iterator[Waiting]:
        nodes = {layout.node for layout in ordered}
        behind = self.claims.behind
        yield from Waits(self.walk, self.plan, self.queue, self.seen.nodes, later, nodes, behind, yielding).tell()
        for pod in self.seen.held:
            yield Waiting(pod=pod.key, reason=names.FOREIGN_GATE, message="another scheduling gate holds the pod")


def _without_undone(node: NodeView, now: float) -> NodeView:
    """Return the node; where its agent does not carry out orders, without what the last would bring, and not to be cut.

    What the order destroys stays doomed: the agent may yet wake up and take it away from a pod that had it.
    """
    if not (node.unable or node.overdue(now)):
        return node
    there = {board.index: Counter(board.layout) for board in node.boards}
    spec = {
        index: tuple((Counter(layout) & there.get(index, Counter())).elements()) for index, layout in node.spec.items()
    }
    return replace(node, spec=spec, silent=True)


def _promised_on(hosts: Hosts, released: Iterable[PodView]) -> dict[str, frozenset[str]]:
    """Return the profiles of which released pods could land on each node, by its name."""
    landing: dict[Constraints, set[str]] = {}
    for pod in released:
        landing.setdefault(pod.constraints, set()).update(slices_of([pod]))
    found: dict[int, frozenset[str]] = {}
    for constraints, profiles in landing.items():
        for place in nodes_in(hosts.open_to(constraints)):
            found[place] = found.get(place, frozenset()) | profiles
    return {node.name: found.get(place, frozenset()) for place, node in enumerate(hosts.nodes)}
