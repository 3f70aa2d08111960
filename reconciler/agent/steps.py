"""The steps by which a board gets the layout that the leader ordered, decided from what is there and nothing else.

`next_steps` is pure: from the order, what the driver has, what the kubelet offers and what pods hold it says what to do
with each board now. Nobody remembers how far it got, so a crash between any two calls, or a reboot, changes nothing:
asked again, it goes on. docs/adr/0003 has the protocol, in which destroying takes two steps.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from policies import names
from policies.annotations import Placement, by_start
from policies.boards import inventory_model
from policies.placement import bin_gb
from reconciler.agent.boards import BoardState
from reconciler.agent.driver import WHOLE, GpuDriver, Slice, order_key
from reconciler.agent.fixed.target import Target
from reconciler.agent.node import Order
from reconciler.agent.rules import layout_fault, numbered, that_fit


class Keep(msgspec.Struct, frozen=True):
    """Nothing is to be done: announce what exists."""


class Refuse(msgspec.Struct, frozen=True):
    """The order is not, or no longer, to be carried out on this board: announce what exists."""

    why: str


class Withdraw(msgspec.Struct, frozen=True):
    """Announce all but these, and report them as withdrawn once the kubelet agrees; then wait for the leader."""

    slices: tuple[Slice, ...]


class EnableMig(msgspec.Struct, frozen=True):
    """Switch MIG mode on, which the board can do without a reset while it has no slices of another mode."""


class SwitchMps(msgspec.Struct, frozen=True):
    """Keep an MPS control daemon for the board from now on, or no longer, now that it has no slices for it."""

    on: bool


class Recut(msgspec.Struct, frozen=True):
    """Destroy and create, in this order."""

    destroy: tuple[Slice, ...] = ()
    create: tuple[Slice, ...] = ()


Work = EnableMig | SwitchMps | Recut
"""What changes the board."""

Step = Keep | Refuse | Withdraw | Work

KEEP: Final = Keep()


def next_steps(order: Order | None, boards: Mapping[int, BoardState]) -> dict[int, Step]:
    """Return what to do with each board, by index, and with those that the order names and the node does not have.

    As long as the leader has not allowed the cut, boards that lose slices go together: if one board of the order is
    refused, none is withdrawn. The leader, which plans again from the report, then never waits for a withdrawal that
    will not come, and never allows one that it has not seen.
    """
    steps = {index: _next_step(order, board) for index, board in boards.items()}
    if order is None:
        return steps
    steps |= {index: Refuse("the node has no such board") for index in order.target if index not in boards}
    refused = [index for index, step in steps.items() if isinstance(step, Refuse)]
    if refused and not order.cut:
        why = f"GPU {refused[0]} is refused, so nothing is destroyed by this plan"
        steps |= {index: Refuse(why) for index, step in steps.items() if isinstance(step, Withdraw)}
    return steps


def carry_out(step: Work, board: str, driver: GpuDriver) -> None:
    """Do it on the board of this UUID. Raises DriverError at the first call that fails; what comes after is not done."""
    match step:
        case EnableMig():
            driver.enable_mig(board)
        case SwitchMps(on):
            (driver.enable_mps if on else driver.disable_mps)(board)
        case Recut(destroy, create):
            for item in destroy:
                driver.destroy(board, item)
            for item in create:
                driver.create(board, item)


def _next_step(order: Order | None, board: BoardState) -> Step:
    layouts = order.of(board.inventory.index) if order and not board.fixed else None
    if board.inventory.fault and not board.switching:
        return Refuse(board.inventory.fault) if layouts else KEEP
    if switch := _switch(board):
        return switch
    if board.missing:
        return Recut(destroy=board.orphans, create=board.missing)
    if board.fixed:
        return _fixed_step(board, board.fixed)
    if order is None or layouts is None:
        return Recut(destroy=board.orphans) if board.orphans else KEEP
    return _ordered_step(board, *layouts, cut=order.cut)


def _ordered_step(board: BoardState, target: tuple[Placement, ...], basis: tuple[Placement, ...], *, cut: bool) -> Step:
    """Return what to do with a board that the leader wants to get from its basis to a target."""
    if why := _objection(board, target, basis):
        return Refuse(why)
    have, want = _count(board.slices), Counter(target)
    doomed = _least_worth_keeping(have - want, board)
    if used := [item for item in doomed if item in board.used]:
        return Refuse(f"{', '.join(map(str, used))} is in use")
    if doomed and not cut:
        return Withdraw(doomed)
    if _count(doomed) - Counter(board.withdrawn):
        return Refuse("the cut was allowed before all that it destroys had been reported as withdrawn")
    if not board.listed.isdisjoint(doomed):
        return Withdraw(doomed)
    recut = Recut(destroy=board.orphans + doomed, create=numbered(want - have, board.slices))
    return recut if recut.destroy or recut.create else KEEP


def _switch(board: BoardState) -> EnableMig | SwitchMps | None:
    """Return what brings a board into its mode; None if it is in it, or what is left of another mode still serves."""
    for_mps = board.mode == names.MPS or (not board.switching and any(bin_gb(item.profile) for item in board.slices))
    if board.mps is not for_mps:
        return SwitchMps(for_mps)
    if board.mode == names.MIG and not (board.inventory.mig or board.slices):
        return EnableMig()
    return None


def _fixed_step(board: BoardState, target: Target) -> Step:
    """Return what to do with a board whose layout is fixed: what pods hold stays until they end, the rest does not wait.

    Nobody but pods of its own node can be concerned, so no leader is asked (docs/adr/0024).
    """
    if target.fixture.kept:
        return Withdraw((WHOLE,)) if WHOLE in board.slices else KEEP
    slices = [item for item in board.slices if item != WHOLE]
    have, want = _count(slices), Counter(target.layout)
    doomed = target.spared(item for item in _least_worth_keeping(have - want, board) if item not in board.used)
    known = target.settled and target.is_told(doomed, board.withdrawn)
    if doomed and not (known and board.listed.isdisjoint(doomed)):
        return Withdraw(doomed)
    possible = board.mode != names.MIG or board.inventory.mig
    create = that_fit(inventory_model(board.inventory), have - _count(doomed), want - have) if possible else Counter()
    recut = Recut(destroy=board.orphans + doomed, create=numbered(create, slices))
    return recut if recut.destroy or recut.create else KEEP


def _objection(board: BoardState, target: tuple[Placement, ...], basis: tuple[Placement, ...]) -> str:
    """Return why a board may not be brought into a layout, or "".

    Carrying out a plan takes a board from its basis to its target by way of what the two share. A board in any other
    state has changed since the plan was made.
    """
    if board.mode == names.TIMESLICING or any((item.start is None) != (board.mode == names.MPS) for item in target):
        return f"{_text(Counter(target)) or 'an empty layout'} is no layout of mode {board.mode}"
    if error := layout_fault(inventory_model(board.inventory), target):
        return f"no such layout: {error}"
    have, before, after = _count(board.slices), Counter(basis), Counter(target)
    if not before & after <= have <= before | after:
        return f"its layout has changed since the plan was made: it has {_text(have) or 'no slices'}"
    return ""


def _least_worth_keeping(surplus: Counter[Placement], board: BoardState) -> tuple[Slice, ...]:
    """Return so many slices of each placement: rather those that nobody holds, that are withdrawn already, the last."""
    by_worth = sorted(board.slices, key=lambda item: (item in board.used, item in board.listed, -item.ordinal))
    chosen = [
        item
        for placement, count in surplus.items()
        for item in [item for item in by_worth if item.placement == placement][:count]
    ]
    return tuple(sorted(chosen, key=order_key))


def _count(slices: Iterable[Slice]) -> Counter[Placement]:
    return Counter(item.placement for item in slices)


def _text(layout: Counter[Placement]) -> str:
    return ", ".join(str(Slice(item.profile, item.start)) for item in sorted(layout.elements(), key=by_start))
