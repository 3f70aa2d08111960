"""From wishes to slices: which resource each container of a pod gets, with the reasons, or why there is none.

For each mode in order and each model the smallest slice that satisfies the wish. Nodes that are up come first, those
that are away only if none that is up can ever serve; the slices of one pod are chosen so that one kind of node makes
them all. Models that the policy names, and that may yet come, are last. The choice is final: container resources cannot
change later.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from policies import names
from policies.catalogue import BoardModel
from policies.faults import fault
from policies.inventory import Group, Inventory, Offer
from policies.outstanding import NONE, Outstanding, displaced
from policies.pieces import Piece, announced, bounded, makes, objection, serves, smallest
from policies.placement import profile_of
from policies.policy import ANY, Terms
from policies.requests import Ask, Slice, Wish
from policies.site import BoardKind

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
        kind: of the boards for which it was chosen.
        model: the board for which it was chosen; None for an explicit slice that several models make, or none known.
        cut: whether it is a slice of a node of ours, so that the pod waits at our gate until it is there.
        products: values of the product label to which the pod must be kept; empty if the name says enough.
        percent: the share of the board that it is, in hundredths, rounded up; where models differ, of the smallest.
        reason: the choice in one sentence; empty for an explicit slice.
        passed_over: modes that were preferred, but barred, each with why.
    """

    wish: Wish
    resource: str
    mode: str
    kind: BoardKind
    model: str | None
    cut: bool
    products: tuple[str, ...] = ()
    percent: int = 100
    reason: str = ""
    passed_over: tuple[str, ...] = ()


class Slicing(msgspec.Struct, frozen=True, kw_only=True):
    """The choices for all wishes of a pod, or the faults because of which there are none."""

    choices: tuple[Choice, ...] = ()
    faults: tuple[str, ...] = ()


def choose(
    wanted: Sequence[Wanted],
    offer: Offer,
    inventory: Inventory,
    terms: Terms = ANY,
    taken: Outstanding = NONE,
) -> Slicing:
    """Return the slices for all wishes of a pod; faults if one of them can never be served.

    `taken` is what others were given and the inventory does not show yet.
    """
    stuck = tuple(text for each in wanted if not each.usable for text in each.refusals)
    if stuck:
        return Slicing(faults=stuck)
    choosing = _Choosing(wanted, offer, inventory, terms, taken)
    for groups in (offer.up, offer.away, offer.ahead):
        plans = [plan for group in groups if (plan := choosing.plan(group))]
        if plans:
            best = choosing.best(plans)
            return Slicing(choices=tuple(choosing.choice(*pick) for pick in zip(best.pieces, wanted, strict=True)))
    return Slicing(faults=tuple(choosing.unserved()))


# ---------------------------------------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True):
    """What one group of nodes makes for all wishes of a pod, in their order."""

    group: Group
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class _Choosing:
    """The choice for one pod."""

    wanted: Sequence[Wanted]
    offer: Offer
    inventory: Inventory
    terms: Terms
    taken: Outstanding

    def plan(self, group: Group) -> _Plan | None:
        """Return what a group makes for all wishes, or None if one of its nodes cannot have it all."""
        pieces: list[Piece] = []
        for each in self.wanted:
            piece = self._piece(group, each)
            if piece is None:
                return None
            pieces.append(piece)
        return None if self._short(group, pieces) else _Plan(group, tuple(pieces))

    def _piece(self, group: Group, wanted: Wanted) -> Piece | None:
        """Return the smallest piece in the most preferred mode in which a node of the group has as many as asked for."""
        ask, count = wanted.wish.ask, wanted.wish.count
        for mode in wanted.usable:
            pieces = [
                piece
                for kind in group.kinds
                if kind.mode == mode
                and (piece := smallest(kind, ask, self.terms))
                and self.inventory.most(group, piece.resource) >= count
            ]
            if pieces:
                return min(pieces, key=lambda piece: (piece.memory_kib, piece.kind.model.name))
        unknown = isinstance(ask, Slice) and ask.resource in group.announced
        return bounded(announced(ask), self.terms) if isinstance(ask, Slice) and unknown else None

    def _short(self, group: Group, pieces: Sequence[Piece]) -> str:
        """Return of what no node of a group has as many as containers ask for that run at the same time, or ""."""
        if len(pieces) == 1:
            return ""  # no more than was looked at when it was chosen
        together: Counter[str] = Counter()
        for piece, each in zip(pieces, self.wanted, strict=True):
            if each.wish.place.lasting:
                together[piece.resource] += each.wish.count
        most = {resource: self.inventory.most(group, resource) for resource in together}
        return ", ".join(
            f"{count} of {resource} at a time, where no node has more than {most[resource]}"
            for resource, count in together.items()
            if count > most[resource]
        )

    def best(self, plans: Sequence[_Plan]) -> _Plan:
        """Return the plan of the most preferred modes; then fewest ahead of it, least memory, most to be had, names."""
        if len(plans) == 1 or all(isinstance(each.wish.ask, Slice) for each in self.wanted):
            return plans[0]  # who names slices leaves nothing to choose
        return min(plans, key=self._rank)

    def _rank(self, plan: _Plan) -> tuple[object, ...]:
        picks = tuple(zip(plan.pieces, self.wanted, strict=True))
        room = min(self._left(plan.group, piece) // each.wish.count for piece, each in picks)
        return (
            [each.modes.index(piece.kind.mode) for piece, each in picks],
            max(0, 1 - room),  # where nothing can be had now, how many must end first
            sum(piece.memory_kib * each.wish.count for piece, each in picks),
            -room,
            [(piece.kind.model.name, piece.resource) for piece, _ in picks],
        )

    def _left(self, group: Group, piece: Piece) -> int:
        """Return how many such slices can still be had; below zero where more was given away than there is."""
        return self.inventory.room(group, piece.kind, piece.profile) - displaced(self.taken, piece.kind, piece.profile)

    def choice(self, piece: Piece, wanted: Wanted) -> Choice:
        """Return the choice of a piece for a wish."""
        wish, mode = wanted.wish, piece.kind.mode
        named = Slice(piece.resource, mode)
        explicit = isinstance(wish.ask, Slice)
        makers = {kind for group in self.offer.groups for kind in group.kinds if kind.makes(piece.resource)}
        good = {kind for kind in makers if serves(kind, wish.ask, piece.resource, self.terms)}
        preferred = wanted.modes[: wanted.modes.index(mode)]
        return Choice(
            wish=wish,
            resource=piece.resource,
            mode=mode,
            kind=piece.kind,
            model=_maker(wish, {kind.model.name for kind in good}) if explicit else piece.kind.model.name,
            cut=mode != names.TIMESLICING,
            products=self._products(piece.resource, good) if self.terms.models or good != makers else (),
            percent=max((same.percent for kind in good if (same := smallest(kind, named))), default=piece.percent),
            reason="" if explicit else f"{wish.said} -> {piece.resource} {piece.text}",
            passed_over=tuple(
                f"{each} is passed over: {text}"
                for each in preferred
                for text in wanted.barred.get(each) or self._objections(wish.ask, (each,))
            ),
        )

    def _products(self, resource: str, good: Collection[BoardKind]) -> tuple[str, ...]:
        """Return the products on which a resource serves: its name may mean too little or too much on others."""
        groups = [group for group in self.offer.groups if resource in group.announced or group.serves_by(good)]
        return tuple(sorted({product for group in groups for product in group.products}))

    def unserved(self) -> Iterator[str]:
        """Yield why no group of nodes serves all wishes: those that none serves, or that only different ones do."""
        groups = self.offer.groups
        lost = [each for each in self.wanted if not any(self._piece(group, each) for group in groups)]
        for each in lost:
            yield from each.refusals
            yield fault(each.wish.path, each.wish.value, self._missing(each))
        if not lost:
            said = ", ".join(each.wish.said for each in self.wanted)
            short = [why for group in groups if (why := self._short_of(group))]
            existing = f"no node makes all of these; {self._existing(names.MODES)}"
            yield fault("spec", said, f"all of these come to {_few(short)}" if short else existing)

    def _short_of(self, group: Group) -> str:
        """Return the same for a group that makes something for each wish, else ""."""
        pieces = [piece for each in self.wanted if (piece := self._piece(group, each))]
        return self._short(group, pieces) if len(pieces) == len(self.wanted) else ""

    def _missing(self, wanted: Wanted) -> str:
        """Return why nothing serves a wish: what is not allowed, or too much for one node, or what exists instead."""
        ask, terms = wanted.wish.ask, self.terms
        if told := self._objections(ask, wanted.usable):
            return _few(told)
        usable = [(group, kind) for group in self.offer.groups for kind in group.kinds if kind.mode in wanted.usable]
        had = [
            self.inventory.most(group, made.resource) for group, kind in usable if (made := smallest(kind, ask, terms))
        ]
        if had:
            return (
                f"no node has more than {max(had)} such slices, and a pod runs on one node: ask for at most {max(had)}"
            )
        if isinstance(ask, Slice):
            why = "; ".join(_not_made(profile_of(ask.resource), [kind.model for _, kind in usable]))
        else:
            why = f"no board serves it by {' or '.join(wanted.usable)}"
        return f"{why}; {self._existing(wanted.modes)}{self.inventory.narrowing(self.offer)}"

    def _objections(self, ask: Ask, modes: Collection[str]) -> list[str]:
        """Return why the policy does not let boards in these modes serve a wish that they could."""
        kinds = (kind for group in self.offer.groups for kind in group.kinds if kind.mode in modes)
        return list(dict.fromkeys(text for kind in kinds if (text := objection(kind, ask, self.terms))))

    def _existing(self, modes: Sequence[str]) -> str:
        """Return what the boards that a pod may use can be cut into: those in these modes, or all if there are none."""
        kinds = dict.fromkeys(kind for group in self.offer.groups for kind in group.kinds)
        told = [makes(kind) for kind in kinds if kind.mode in modes] or [makes(kind) for kind in kinds]
        if told:
            return _few(told)
        barrier, models = self.inventory.barrier(self.offer), ", ".join(self.terms.models)
        if not models:
            return f"{barrier}, or have the policy name boards that are to come (gpuModels)"
        only = f"the policy allows only {models} (gpuModels)"
        return f"{barrier}, and {only}" if barrier else f"{only}, and the pod may use no board of these"


def _maker(wish: Wish, makers: Collection[str]) -> str | None:
    """Return the model of an explicit slice: the recorded one if it is answered, else the only one that makes it."""
    # An answer without a model stays without: what we have added to the pod since may leave one that makes it.
    if wish.answered and wish.answered.model in {None, *makers}:
        return wish.answered.model
    return next(iter(makers)) if len(makers) == 1 else None


def _not_made(profile: str, models: Sequence[BoardModel]) -> Iterator[str]:
    """Yield that no board makes a profile, and what those call it that make the same by another name (pain P22)."""
    yield f"no board makes {profile}"
    for model in dict.fromkeys(models):
        if (name := model.known_as(profile)) != profile:
            yield f"{model.name} calls it {name}: write {names.mig_resource(name)}"


def _few(told: Sequence[str]) -> str:
    more = [f"{len(told) - _MOST_NAMED} models more"] if len(told) > _MOST_NAMED else []
    return "; ".join([*told[:_MOST_NAMED], *more])
