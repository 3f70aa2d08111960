"""Random clusters that are partly in use, and pods that ask for somewhat more than is left; what the walk makes of them.

Plain data first, from the published tables, so that the oracle (`tests.policies.ilp`) shares nothing with the planner.
"""

from dataclasses import dataclass
from functools import cache

from policies import names
from policies.annotations import BoardInventory, write_inventory
from policies.catalogue import by_product
from policies.placement import resource_of
from policies.plan import plan
from policies.supply import survey
from policies.view import view_node, view_pod
from tests.builders import make_pod
from tests.policies.cluster import bound, free, node, used
from tests.policies.facts import BOARDS, TABLES, kind_of, lies_legally, name_of

MPS_BOARDS = {"NVIDIA-A100-SXM4-40GB": 40, "Tesla-T4": 16, "NVIDIA-L4": 24}
"""Nominal GB; all of them serve 48 clients."""


@dataclass(frozen=True)
class Board:
    """A board: (profile, start) of its slices in use and of those that exist and are free; MPS slices have no start."""

    product: str
    mode: str
    used: tuple[tuple[str, int | None], ...] = ()
    free: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True)
class Node:
    """A node with room for so many CPUs and pods beside those that run."""

    name: str
    zone: str
    boards: tuple[Board, ...]
    cpu: int = 1000
    pods: int = 1000


@dataclass(frozen=True)
class Ask:
    """What a pod asks for: (profile, count) pairs on one node, CPUs, a zone if it matters."""

    slices: tuple[tuple[str, int], ...]
    cpu: int = 0
    zone: str = ""

    def may_use(self, one):
        return self.zone in ("", one.zone)


# ----------------------------------------------------------------------------------------------------------------------


def random_case(chance, nodes, boards):
    """Return nodes with up to so many boards each, and what pods ask for, in order: 0.9 to 1.4 times what is left."""
    products = chance.sample(sorted(BOARDS), chance.choice((1, 1, 2, 3)))
    mps = chance.sample(sorted(MPS_BOARDS), 1) if chance.random() < 0.3 else []
    tight = chance.random() < 0.3
    made = tuple(
        Node(
            f"n{number:02}",
            chance.choice("ab"),
            tuple(_board(chance, products, mps) for _ in range(chance.randint(1, boards))),
            cpu=chance.randint(8, 40) if tight else 1000,
            pods=chance.randint(2, 20) if tight else 1000,
        )
        for number in range(nodes)
    )
    kinds = [_ask(chance, products, mps) for _ in range(chance.randint(2, 10))]
    left = sum(_left(board) for one in made for board in one.boards) * chance.uniform(0.9, 1.4)
    asked = []
    while left > 0:
        asked.append(chance.choice(kinds))
        left -= sum(count * _share(profile, products) for profile, count in asked[-1].slices)
    return made, asked


def single_board(chance):
    """Return one board in a node and what pods of one slice ask for, as in `random_case`."""
    product = chance.choice(sorted(BOARDS))
    board = _mig_board(chance, product)
    names_of = _names(product)
    asked = [Ask(((chance.choice(names_of), 1),)) for _ in range(chance.randint(1, 7))]
    return (Node("n00", "a", (board,)),), asked


def walk(nodes, asked):
    """Return the planner's plan for pods `p/0000`, `p/0001` and so on."""
    sites = []
    for one in nodes:
        running = [
            view_pod(bound(f"x/{one.name}-{index}-{number}", one.name, profile))
            for index, board in enumerate(one.boards)
            for number, (profile, _) in enumerate(board.used)
        ]
        sites.append(survey(view_node(_as_node(one, len(running))), running))
    return plan([view_pod(_as_pod(number, ask)) for number, ask in enumerate(asked)], sites)


def key(number):
    return f"p/{number:04}"


# ----------------------------------------------------------------------------------------------------------------------


def _board(chance, products, mps):
    if mps and chance.random() < 0.4:
        (product,) = mps
        left, held = MPS_BOARDS[product], []
        while (size := chance.randint(1, 12)) <= left and chance.random() < 0.6:
            held.append((f"{size}gb", None))
            left -= size
        cut = chance.randint(0, len(held))
        return Board(product, names.MPS, tuple(held[:cut]), tuple(held[cut:]))
    return _mig_board(chance, chance.choice(products))


def _mig_board(chance, product):
    table, layout = BOARDS[product][0], []
    places = [(kind, start) for kind, row in TABLES[table].items() for start in row[2]]
    for place in chance.sample(places, chance.choice((0, 2, 4, 8))):
        if lies_legally(table, [*layout, place]):
            layout.append(place)
    fate = [chance.random() for _ in layout]
    named = [(name_of(product, kind), start) for kind, start in layout]
    return Board(
        product,
        names.MIG,
        tuple(item for item, what in zip(named, fate, strict=True) if what < 0.5),
        tuple(item for item, what in zip(named, fate, strict=True) if what >= 0.6),
    )


@cache
def _names(product):
    """Return the profiles of a product, plain ones more than once: they are asked for more often."""
    kinds = TABLES[BOARDS[product][0]]
    return [name_of(product, kind) for kind in kinds for _ in range(4 if kind[2:] in ("", "D") else 1)]


def _ask(chance, products, mps):
    if mps and chance.random() < 0.3:
        profiles = {f"{chance.randint(1, 14)}gb": 1}
    else:
        known = _names(chance.choice(products))
        profiles = {chance.choice(known): chance.choice((1, 1, 1, 1, 2, 3))}
        if chance.random() < 0.15:
            profiles.setdefault(chance.choice(known), 1)
    zone = chance.choice("ab") if chance.random() < 0.3 else ""
    return Ask(tuple(sorted(profiles.items())), chance.choice((0, 0, 2, 4)), zone)


def _left(board):
    """Return the share of a board that nobody uses."""
    if board.mode == names.MPS:
        return 1 - sum(int(profile[:-2]) for profile, _ in board.used) / MPS_BOARDS[board.product]
    return 1 - sum(_share(profile, [board.product]) for profile, _ in board.used)


def _share(profile, products):
    """Return the share of a board that a slice takes, on the first product that makes it: compute or memory."""
    for product in products:
        table, gigabytes, _ = BOARDS[product]
        if profile in _names(product):
            compute, units = TABLES[table][kind_of(product, profile)][:2]
            most = max(gigabytes)
            return max(compute / (7 if table == "SEVEN" else 4), units / most)
    return int(profile[:-2]) / 24 if profile[:-2].isdecimal() else 0.5


def _as_node(one, running):
    inventory = [
        BoardInventory(
            index=index,
            uuid=f"GPU-{index}",
            model=board.product,
            memory_mib=by_product(board.product).memory_mib,
            profiles=by_product(board.product).profiles,
            mig=board.mode == names.MIG,
            mode=board.mode,
            compute_slices=by_product(board.product).compute,
            memory_units=by_product(board.product).memory_units,
        )
        for index, board in enumerate(one.boards)
    ]
    placements = {
        str(index): [used(*item) for item in board.used] + [free(*item) for item in board.free]
        for index, board in enumerate(one.boards)
    }
    return node(
        one.name,
        labels={"zone": one.zone},
        annotations=write_inventory(inventory),
        placements=placements,
        resources={"cpu": str(one.cpu), "pods": str(one.pods + running)},
    )


def _as_pod(number, ask):
    limits = {resource_of(profile): str(count) for profile, count in ask.slices}
    limits |= {"cpu": str(ask.cpu)} if ask.cpu else {}
    fields = {"nodeSelector": {"zone": ask.zone}} if ask.zone else {}
    return make_pod(key(number), limits=limits, gates=(names.GATE,), **fields)
