"""What a decision comes to: its steps in the order in which they are carried out, and the patch of each; pure."""

import msgspec

from kube.resource import NODES, PODS, Resource
from policies.annotations import PlacedSlice
from policies.decision import Cut, Decision, Layout, Relabel, Release
from policies.view import NodeView, PodView
from reconciler.observe import ObservedNode, Picture
from reconciler.patches import Body, cut_patch, order_patch, relabel_patch, release_patch

Step = Layout | Cut | Release | Relabel


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One patch.

    Attributes:
        what: `release`, `relabel`, `order` or `cut`.
        resource: pods or nodes.
        key: store key of the object: namespace/name, or a node's name.
        uid: of the object.
        version: the resourceVersion that it was decided from, its precondition.
        body: of the merge patch.
        done: the object as it is once this is done; stands in for it while the outcome is unknown.
    """

    what: str
    resource: Resource
    key: str
    uid: str
    version: str
    body: Body
    done: PodView | ObservedNode

    @property
    def path(self) -> str:
        """Where the object is."""
        namespace, _, name = self.key.rpartition("/")
        return self.resource.path(namespace or None, name)


def steps(decision: Decision) -> tuple[Step, ...]:
    """Return the steps of a decision, orders to nodes first: a long way begins with them. Labels can wait."""
    return (*decision.layouts, *decision.cuts, *decision.ungate, *decision.relabel)


def key_of(step: Step) -> str:
    """Return the store key of the object that a step changes."""
    return step.node if isinstance(step, Layout | Cut) else step.pod


def write_of(step: Step, picture: Picture, now: float) -> Write:
    """Return the write that a step comes to at `now`, in seconds since the epoch."""
    match step:
        case Layout():
            return order_of(step, picture.nodes[step.node], now)
        case Cut():
            return _cut(step, picture.nodes[step.node])
        case Release():
            return _release(step, picture.pods[step.pod], now)
        case Relabel():
            return _relabel(step, picture.pods[step.pod])


def still_holds(layout: Layout, before: ObservedNode, node: ObservedNode) -> bool:
    """Return whether an order that was decided from a node may be given to what the node is now.

    An order is bound to the layout of each board that it concerns, not to the use of slices, unless it destroys some. An
    agent tells of use with every pod that lands, most often of the very node that is filled up just then.
    """
    return before.uid == node.uid and _deciding(layout, before.view) == _deciding(layout, node.view)


def order_of(layout: Layout, node: ObservedNode, now: float) -> Write:
    """Return the write of an order to a node at `now`, in seconds since the epoch."""
    plan = node.view.next_plan(now)
    ordered = msgspec.structs.replace(node.view, spec=layout.target, spec_plan=plan)
    return _node_write("order", node, order_patch(node, layout, plan), ordered)


def _deciding(layout: Layout, node: NodeView) -> NodeView:
    """Return a node as far as it decides whether an order to it is right."""
    boards = (board for board in node.boards if board.index in layout.basis)
    if not layout.destroys:
        boards = (msgspec.structs.replace(board, slices=tuple(map(_unused, board.slices))) for board in boards)
    return msgspec.structs.replace(node, boards=tuple(boards), allocatable={}, capacity={}, faults=())


def _unused(item: PlacedSlice) -> PlacedSlice:
    return msgspec.structs.replace(item, used=False, pod=None)


def _cut(cut: Cut, node: ObservedNode) -> Write:
    return _node_write("cut", node, cut_patch(node, cut), msgspec.structs.replace(node.view, cut=cut.plan))


def _node_write(what: str, node: ObservedNode, body: Body, done: NodeView) -> Write:
    return Write(
        what=what,
        resource=NODES,
        key=node.view.name,
        uid=node.uid,
        version=node.version,
        body=body,
        done=msgspec.structs.replace(node, view=done),
    )


def _release(release: Release, pod: PodView, now: float) -> Write:
    done = msgspec.structs.replace(pod, gated=False, released_at=int(now), capacity=release.capacity or pod.capacity)
    return _pod_write("release", release, release_patch(pod, release, now), done)


def _relabel(relabel: Relabel, pod: PodView) -> Write:
    done = msgspec.structs.replace(pod, capacity=relabel.capacity)
    return _pod_write("relabel", relabel, relabel_patch(relabel), done)


def _pod_write(what: str, decided: Release | Relabel, body: Body, done: PodView) -> Write:
    return Write(
        what=what,
        resource=PODS,
        key=decided.pod,
        uid=decided.uid,
        version=decided.version,
        body=body,
        done=done,
    )
