"""From wishes to slices: which resource each container of a pod gets, with the reasons, or why there is none.

For each mode in order and each model the smallest slice that satisfies the wish. Nodes that are up come first, those
that are away only if none that is up can ever serve; the slices of one pod are chosen so that one kind of node makes
them all. The choice is final: container resources cannot change later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from policies import names
from policies.faults import fault
from policies.inventory import Group, Inventory, Offer
from policies.pieces import Piece, announced, makes, serves, smallest
from policies.placement import profile_of
from policies.requests import Slice, Wish
from policies.shares import Memory, Share

_MOST_NAMED: Final = 6  # models that a message lists


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A wish with the modes by which it may be answered.

    Attributes:
        wish: what is asked.
        modes: in order of preference.
        barred: modes that the pod cannot use: mode -> faults that say why.
    """

    wish: Wish
    modes: tuple[str, ...]
    barred: Mapping[str, tuple[str, ...]] = {}

    @property
    def usable(self) -> tuple[str, ...]:
        """Return the modes that the pod can use."""
        return tuple(mode for mode in self.modes if mode not in self.barred)

    @property
    def refusals(self) -> tuple[str, ...]:
        """Return why it cannot use the others."""
        return tuple(text for mode in self.modes for text in self.barred.get(mode, ()))


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The slice for one wish.

    Attributes:
        wish: what was asked.
        resource: what the container gets, `wish.count` times.
        mode: how it is made.
        model: the board for which it was chosen; None for an explicit slice that several models make, or none known.
        cut: whether it is a slice of a node of ours, so that the pod waits at our gate until it is there.
        products: values of the product label to which the pod must be kept; empty if the name says enough.
        reason: the choice in one sentence; empty for an explicit slice.
        passed_over: modes that were preferred, but barred, each with why.
    """

    wish: Wish
    resource: str
    mode: str
    model: str | None
    cut: bool
    products: tuple[str, ...] = ()
    reason: str = ""
    passed_over: tuple[str, ...] = ()


class Slicing(msgspec.Struct, frozen=True, kw_only=True):
    """The choices for all wishes of a pod, or the faults because of which there are none."""

    choices: tuple[Choice, ...] = ()
    faults: tuple[str, ...] = ()


def choose(wanted: Sequence[Wanted], offer: Offer, inventory: Inventory) -> Slicing:
    """Return the slices for all wishes of a pod; faults if one of them can never be served."""
    stuck = tuple(text for each in wanted if not each.usable for text in each.refusals)
    if stuck:
        return Slicing(faults=stuck)
    for groups in (offer.up, offer.away):
        plans = [plan for group in groups if (plan := _plan(group, wanted))]
        if plans:
            best = _best(plans, wanted, inventory)
            return Slicing(choices=tuple(_choice(*pick, offer) for pick in zip(best.pieces, wanted, strict=True)))
    return Slicing(faults=tuple(_unserved(wanted, offer)))


# ---------------------------------------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True):
    """What one group of nodes makes for all wishes of a pod, in their order."""

    group: Group
    pieces: tuple[Piece, ...]


def _plan(group: Group, wanted: Sequence[Wanted]) -> _Plan | None:
    pieces: list[Piece] = []
    for each in wanted:
        piece = _piece(group, each)
        if piece is None:
            return None
        pieces.append(piece)
    return _Plan(group, tuple(pieces))


def _piece(group: Group, wanted: Wanted) -> Piece | None:
    """Return the smallest piece in the most preferred mode in which the group makes one."""
    ask = wanted.wish.ask
    for mode in wanted.usable:
        pieces = [piece for kind in group.kinds if kind.mode == mode and (piece := smallest(kind, ask))]
        if pieces:
            return min(pieces, key=lambda piece: (piece.memory_kib, piece.kind.model.name))
    return announced(ask) if isinstance(ask, Slice) and ask.resource in group.announced else None


def _best(plans: Sequence[_Plan], wanted: Sequence[Wanted], inventory: Inventory) -> _Plan:
    """Return the plan with the most preferred modes; then what can be had now, least memory, most to be had, names."""
    if len(plans) == 1 or all(isinstance(each.wish.ask, Slice) for each in wanted):
        return plans[0]  # who names slices leaves nothing to choose

    def rank(plan: _Plan) -> tuple[object, ...]:
        picks = tuple(zip(plan.pieces, wanted, strict=True))
        room = min(inventory.room(plan.group, piece.kind, piece.profile) // each.wish.count for piece, each in picks)
        return (
            [each.modes.index(piece.kind.mode) for piece, each in picks],
            room == 0,
            sum(piece.memory_kib * each.wish.count for piece, each in picks),
            -room,
            [(piece.kind.model.name, piece.resource) for piece, _ in picks],
        )

    return min(plans, key=rank)


def _choice(piece: Piece, wanted: Wanted, offer: Offer) -> Choice:
    wish, mode = wanted.wish, piece.kind.mode
    cut = mode != names.TIMESLICING
    if isinstance(wish.ask, Slice):
        return Choice(wish=wish, resource=piece.resource, mode=mode, model=_maker(wish, piece.resource, offer), cut=cut)
    preferred = wanted.modes[: wanted.modes.index(mode)]
    return Choice(
        wish=wish,
        resource=piece.resource,
        mode=mode,
        model=piece.kind.model.name,
        cut=cut,
        products=_products(piece, wish.ask, offer),
        reason=f"{wish.said} -> {piece.resource} {piece.text}",
        passed_over=tuple(
            f"{each} is passed over: {text}" for each in preferred for text in wanted.barred.get(each, ())
        ),
    )


def _maker(wish: Wish, resource: str, offer: Offer) -> str | None:
    """Return the model of an explicit slice: the recorded one if it is answered, else the only one that makes it."""
    makers = {kind.model.name for group in offer.groups for kind in group.kinds if kind.makes(resource)}
    # An answer without a model stays without: what we have added to the pod since may leave one that makes it.
    if wish.answered and wish.answered.model in {None, *makers}:
        return wish.answered.model
    return makers.pop() if len(makers) == 1 else None


def _products(piece: Piece, ask: Share | Memory, offer: Offer) -> tuple[str, ...]:
    """Return the products to keep to, if the resource's name means too little on some board of the pod's nodes."""
    makers = {kind for group in offer.groups for kind in group.kinds if kind.makes(piece.resource)}
    good = {kind for kind in makers if serves(kind, ask, piece.resource)}
    if good == makers:
        return ()
    groups = [group for group in offer.groups if good.intersection(group.kinds)]
    return tuple(sorted({product for group in groups for product in group.products}))


def _unserved(wanted: Sequence[Wanted], offer: Offer) -> Iterator[str]:
    """Yield why no group of nodes serves all wishes: those that none serves, or that only different ones do."""
    lost = [each for each in wanted if not any(_piece(group, each) for group in offer.groups)]
    for each in lost:
        yield from each.refusals
        yield fault(each.wish.path, each.wish.value, f"{_missing(each)}; {_existing(each.modes, offer)}")
    if not lost:
        said = ", ".join(each.wish.said for each in wanted)
        yield fault("spec", said, f"no node makes all of these; {_existing(names.MODES, offer)}")


def _missing(wanted: Wanted) -> str:
    ask = wanted.wish.ask
    if isinstance(ask, Slice):
        return f"no board makes {profile_of(ask.resource)}"
    return f"no board serves it by {' or '.join(wanted.usable)}"


def _existing(modes: Sequence[str], offer: Offer) -> str:
    """Return what the boards that a pod may use can be cut into: those in these modes, or all if there are none."""
    kinds = dict.fromkeys(kind for group in offer.groups for kind in group.kinds)
    told = [makes(kind) for kind in kinds if kind.mode in modes] or [makes(kind) for kind in kinds]
    if not told:
        return f"the pod may use no node that is labelled {names.PARTITIONING_LABEL} and whose boards are known"
    more = [f"{len(told) - _MOST_NAMED} models more"] if len(told) > _MOST_NAMED else []
    return "; ".join(told[:_MOST_NAMED] + more)
