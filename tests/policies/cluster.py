"""A cluster in memory: agents take their two steps (docs/adr/0003), and the scheduler chooses as badly as it may."""

from collections import Counter

from msgspec.structs import replace

from policies import names
from policies.annotations import PlacedSlice
from policies.needs import is_slice
from policies.occupancy import occupied
from policies.placement import profile_of, resource_of
from policies.plan import admits
from policies.settle import settle
from policies.supply import room_request, slices_of
from policies.view import View, view_node, view_pod
from tests.builders import make_node, make_pod
from tests.policies.teams import let_go

# Making clusters ------------------------------------------------------------------------------------------------------


def node(name="n1", *args, placements=None, resources=None, **fields):
    """Return a node that announces the slices that it bears."""
    borne = [item for board in (placements or {}).values() for item in board]
    counts = Counter(resource_of(item["profile"]) for item in borne if not item.get("withdrawn"))
    announced = {key: str(count) for key, count in counts.items()}
    return make_node(name, *args, placements=placements, resources={**announced, **(resources or {})}, **fields)


def free(profile, start=None):
    return {"profile": profile, "used": False} | ({} if start is None else {"start": start})


def used(profile, start=None):
    return free(profile, start) | {"used": True}


def gated(key, *profiles, count=1, cpu=None, **fields):
    """Return a pod in our gate that needs slices: `count` of each profile."""
    limits = {resource_of(profile): str(count) for profile in profiles} | ({"cpu": cpu} if cpu else {})
    return make_pod(key, limits=limits, gates=(names.GATE,), **fields)


def released(key, *profiles, count=1, cpu=None, **fields):
    """Return a pod that the scheduler may bind at any moment."""
    limits = {resource_of(profile): str(count) for profile in profiles} | ({"cpu": cpu} if cpu else {})
    return make_pod(key, limits=limits, **fields)


def bound(key, node_name, *profiles, count=1, **fields):
    """Return a pod that runs on slices of a node."""
    return released(key, *profiles, count=count, node=node_name, phase="Running", **fields)


def cluster(nodes, pods, now=0.0):
    """Return the view of nodes and pods."""
    return View(nodes=tuple(map(view_node, nodes)), pods=tuple(map(view_pod, pods)), now=now)


def pod_of(view, key):
    return next(pod for pod in view.pods if pod.key == key)


def node_of(view, name):
    return next(node for node in view.nodes if node.name == name)


def with_node(view, one):
    return replace(view, nodes=tuple(one if other.name == one.name else other for other in view.nodes))


def slices(view, name="n1"):
    """Return the slices of a node as texts: `0:3g.20gb@4 used`."""
    return [
        f"{board.index}:{item.profile}{'' if item.start is None else f'@{item.start}'}{' used' if item.used else ''}"
        for board in node_of(view, name).boards
        for item in board.slices
    ]


# The scheduler and the kubelet ----------------------------------------------------------------------------------------


def begin(view):
    """Return the view with every slice at its place and every held one with its holder."""
    for one in view.nodes:
        pods = [pod for pod in view.pods if pod.holds and pod.node == one.name]
        view = with_node(view, _held(occupied(one, slices_of(pods)), pods))
    return view


def places(view, pod):
    """Return the nodes on which the scheduler could bind a pod: all that it needs is allocatable there."""
    return sorted(one.name for one in view.nodes if admits(one, pod.constraints) and _offers(one, view, pod))


def bind(view, key, node_name):
    pod = replace(pod_of(view, key), node=node_name, running=True)
    view = replace(view, pods=tuple(pod if other.key == key else other for other in view.pods))
    return with_node(view, _held(node_of(view, node_name), [pod]))


def end(view, key):
    pods = tuple(replace(pod, finished=True, running=False) if pod.key == key else pod for pod in view.pods)
    free = [
        _map(one, lambda item: replace(item, used=False, pod=None) if item.pod == key else item) for one in view.nodes
    ]
    return replace(view, nodes=tuple(free), pods=pods)


def report(view, name):
    """Return the view when a node's agent has told which of its slices pods hold, and for whom."""
    pods = [pod for pod in view.pods if pod.holds and pod.node == name]
    there = {pod.key for pod in pods}
    one = _map(
        node_of(view, name), lambda item: item if item.pod in (None, *there) else replace(item, used=False, pod=None)
    )
    return with_node(view, _held(one, pods))


def land_all(view, chance):
    """Return the view when all released pods are bound, in any order and wherever they may; and those without a place."""
    keys, stuck = [pod.key for pod in view.pods if pod.released], []
    chance.shuffle(keys)
    for key in keys:
        where = places(view, pod_of(view, key))
        if where:
            view = bind(view, key, chance.choice(where))
        else:
            stuck.append(key)
    return view, stuck


def who_could_be_stuck(view):
    """Return the pods that find no place in the worst order of landing, by trying all orders and nodes; else None."""
    seen = set()

    def try_all(view, keys):
        situation = tuple((key, pod_of(view, key).node) for key in sorted(keys))
        if situation in seen:
            return None
        seen.add(situation)
        for key in (key for key in keys if not pod_of(view, key).node):
            where = places(view, pod_of(view, key))
            found = key if not where else None
            for name in where:
                found = found or try_all(bind(view, key, name), keys)
            if found:
                return found
        return None

    return try_all(view, [pod.key for pod in view.pods if pod.released])


def _offers(one, view, pod):
    left = Counter(one.allocatable)
    for other in view.pods:
        if other.holds and other.node == one.name:
            left.subtract(_request(other))
    return all(left[name] >= amount for name, amount in _request(pod).items())


def _request(pod):
    return dict(room_request(pod)) | {name: count * 1000 for name, count in pod.slices}


def _held(one, pods):
    """Return the node with slices given to pods: used ones without a holder first, then the first free ones."""
    has = {item.pod for board in one.boards for item in board.slices}
    wanted = [
        (profile_of(name), pod.key) for pod in pods if pod.key not in has for name, n in pod.slices for _ in range(n)
    ]

    def give(item, *, was_used):
        for position, (profile, key) in enumerate(wanted):
            if item.pod is None and item.used == was_used and not item.withdrawn and item.profile == profile:
                del wanted[position]
                return replace(item, used=True, pod=key)
        return item

    return _map(_map(one, lambda item: give(item, was_used=True)), lambda item: give(item, was_used=False))


def _map(one, change):
    return replace(one, boards=tuple(replace(board, slices=tuple(map(change, board.slices))) for board in one.boards))


# Leader and agents ----------------------------------------------------------------------------------------------------


def write(view, decision, plan=None):
    """Return the view with a decision written down, its orders with this id, or with those that a leader gives.

    Agents have not acted yet.
    """
    released = {release.pod: release for release in decision.ungate}
    pods = tuple(let_go(pod, released[pod.key]) if pod.key in released else pod for pod in view.pods)
    view = replace(view, pods=pods)
    for layout in decision.layouts:
        one = node_of(view, layout.node)
        view = with_node(view, replace(one, spec=layout.target, spec_plan=plan or one.next_plan(view.now)))
    for cut in decision.cuts:
        view = with_node(view, replace(node_of(view, cut.node), cut=cut.plan))
    return view


def agent_step(view, name):
    """Return the view when a node's agent has taken its next step: withdraw what must go, or bring the boards about."""
    view = report(view, name)
    one = node_of(view, name)
    if not one.in_flight:
        return view
    doomed = {b.index: Counter(i.placement for i in b.slices) - Counter(one.target(b)) for b in one.boards}
    held = {b.index: Counter(i.placement for i in b.slices if i.used) for b in one.boards}
    if any(held[b.index] - Counter(one.target(b)) for b in one.boards):  # refused: a slice in use would go
        boards = tuple(_marked(board, Counter()) for board in one.boards)
        return with_node(view, _announced(replace(one, boards=boards, status_plan=one.spec_plan)))
    if any(doomed.values()) and one.cut != one.spec_plan:
        return with_node(view, _announced(replace(one, boards=tuple(_marked(b, doomed[b.index]) for b in one.boards))))
    boards = tuple(_recut(board, one.target(board)) for board in one.boards)
    return with_node(view, _announced(replace(one, boards=boards, status_plan=one.spec_plan)))


def carry_out(view, decision, plan="1"):
    """Return the view when a decision has been written and agents have done all at once."""
    view = write(view, decision, plan)
    for layout in decision.layouts:
        view = with_node(view, replace(node_of(view, layout.node), cut=plan))
        view = agent_step(view, layout.node)
    return view


def play(view, chance, rounds=60):
    """Settle, carry out and land until nothing changes; return the view and the last decision."""
    for turn in range(rounds):
        decision = settle(view)
        if not (decision.ungate or decision.layouts or decision.cuts):
            return view, decision
        view, stuck = land_all(carry_out(view, decision, str(turn + 1)), chance)
        assert not stuck, f"released, but without a place: {stuck}"
    raise AssertionError("no fixed point")


def _marked(board, doomed):
    """Return the board with these of its free slices withdrawn, and no others."""
    left, made = Counter(doomed), []
    for item in board.slices:
        goes = left[item.placement] > 0 and not item.used
        left[item.placement] -= goes
        made.append(replace(item, withdrawn=goes))
    return replace(board, slices=tuple(made))


def _recut(board, target):
    there, made = sorted(board.slices, key=lambda item: not item.used), []
    for placement in target:
        stays = next((item for item in there if item.placement == placement), None)
        if stays:
            there.remove(stays)
        new = PlacedSlice(profile=placement.profile, start=placement.start, used=False)
        made.append(replace(stays, withdrawn=False) if stays else new)
    assert not any(item.used for item in there), "a slice in use was destroyed"
    return replace(board, slices=tuple(made), counted=())


def _announced(one):
    counts = Counter(resource_of(i.profile) for board in one.boards for i in board.slices if not i.withdrawn)
    others = {name: amount for name, amount in one.allocatable.items() if not is_slice(name)}
    return replace(one, allocatable=others | {name: count * 1000 for name, count in counts.items()})
