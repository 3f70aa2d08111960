"""What is published about boards, typed in afresh: tables, names, memory, and what makes a layout legal. Nothing of ours.

Sources: NVIDIA's MIG user guide (supported profiles), listings of drivers (`nvidia-smi mig -lgip`, `-lgipp`) for A30,
A100, H100, H100 NVL and RTX PRO 6000, mig-parted's configuration and its pull requests for H200, GH200, B200, GB200.
"""

from collections import Counter
from functools import cache

# profile: compute slices, memory units, starts, most on one board, id; D is double memory.
SEVEN = {
    "1g": (1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 19),
    "1g+me": (1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 20),
    "1gD": (1, 2, (0, 2, 4, 6), 4, 15),
    "2g": (2, 2, (0, 2, 4), 3, 14),
    "3g": (3, 4, (0, 4), 2, 9),
    "4g": (4, 4, (0,), 1, 5),
    "7g": (7, 8, (0,), 1, 0),
}
A30 = {
    "1g": (1, 1, (0, 1, 2, 3), 4, 14),
    "1g+me": (1, 1, (0, 1, 2, 3), 1, 21),
    "2g": (2, 2, (0, 2), 2, 5),
    "2g+me": (2, 2, (0, 2), 1, 6),
    "4g": (4, 4, (0,), 1, 0),
}
RTX = {
    "1g": (1, 3, (0, 3, 6, 9), 4, 14),
    "1g+me": (1, 3, (0, 3, 6, 9), 1, 21),
    "1g+gfx": (1, 3, (0, 3, 6, 9), 4, 47),
    "1g+me.all": (1, 3, (0, 3, 6, 9), 1, 65),
    "1g-me": (1, 3, (0, 3, 6, 9), 4, 67),
    "2g": (2, 6, (0, 6), 2, 5),
    "2g+gfx": (2, 6, (0, 6), 2, 35),
    "2g+me.all": (2, 6, (0, 6), 1, 64),
    "2g-me": (2, 6, (0, 6), 2, 66),
    "4g": (4, 12, (0,), 1, 0),
    "4g+gfx": (4, 12, (0,), 1, 32),
}
COMPUTE, UNITS = {"SEVEN": 7, "A30": 4, "RTX": 4}, {"SEVEN": 8, "A30": 4, "RTX": 12}
TABLES = {"SEVEN": SEVEN, "A30": A30, "RTX": RTX}

# product: (table, GB in names by memory units, GiB that drivers print by memory units; empty where none was read)
BOARDS = {
    "NVIDIA-A30": ("A30", {1: 6, 2: 12, 4: 24}, {1: "5.81", 2: "11.69", 4: "23.44"}),
    "NVIDIA-A100-SXM4-40GB": ("SEVEN", {1: 5, 2: 10, 4: 20, 8: 40}, {1: "4.75", 2: "9.62", 4: "19.50", 8: "39.25"}),
    "NVIDIA-A100-PCIE-40GB": ("SEVEN", {1: 5, 2: 10, 4: 20, 8: 40}, {1: "4.75", 2: "9.62", 4: "19.50", 8: "39.25"}),
    "NVIDIA-A100-SXM4-80GB": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.50", 2: "19.50", 4: "39.25", 8: "78.50"}),
    "NVIDIA-A100-80GB-PCIe": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.50", 2: "19.50", 4: "39.25", 8: "78.50"}),
    "NVIDIA-A800-SXM4-80GB": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.50", 2: "19.50", 4: "39.25", 8: "78.50"}),
    "NVIDIA-A800-80GB-PCIe": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.50", 2: "19.50", 4: "39.25", 8: "78.50"}),
    "NVIDIA-H100-80GB-HBM3": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.75", 2: "19.62", 4: "39.50", 8: "79.25"}),
    "NVIDIA-H100-PCIe": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.75", 2: "19.62", 4: "39.50", 8: "79.25"}),
    "NVIDIA-H800": ("SEVEN", {1: 10, 2: 20, 4: 40, 8: 80}, {1: "9.75", 2: "19.62", 4: "39.50", 8: "79.25"}),
    "NVIDIA-H100-NVL": ("SEVEN", {1: 12, 2: 24, 4: 47, 8: 94}, {1: "10.75", 2: "21.62", 4: "46.38", 8: "93.12"}),
    "NVIDIA-GH200-480GB": ("SEVEN", {1: 12, 2: 24, 4: 48, 8: 96}, {}),
    "NVIDIA-H200": ("SEVEN", {1: 18, 2: 35, 4: 71, 8: 141}, {1: "16.00", 2: "32.25", 4: "69.50", 8: "140.00"}),
    "NVIDIA-H200-NVL": ("SEVEN", {1: 18, 2: 35, 4: 71, 8: 141}, {1: "16.00", 2: "32.25", 4: "69.50", 8: "140.00"}),
    "NVIDIA-GH200-144G-HBM3e": ("SEVEN", {1: 18, 2: 36, 4: 72, 8: 144}, {}),
    "NVIDIA-B200": ("SEVEN", {1: 23, 2: 45, 4: 90, 8: 180}, {1: "20.50", 2: "44.25"}),
    "NVIDIA-GB200": ("SEVEN", {1: 23, 2: 47, 4: 93, 8: 186}, {2: "45.50"}),
    "NVIDIA-B300-SXM6-AC": ("SEVEN", {1: 34, 2: 67, 4: 135, 8: 269}, {}),
    "NVIDIA-GB300": ("SEVEN", {1: 35, 2: 70, 4: 139, 8: 278}, {}),
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": (
        "RTX", {3: 24, 6: 48, 12: 96}, {3: "23.62", 6: "47.38", 12: "95.12"},
    ),
}  # fmt: skip


def name_of(product, kind):
    """Return what a profile of a table is called on a product: `1gD` of an A100-40 is `1g.10gb`."""
    table, gigabytes, _ = BOARDS[product]
    suffix = kind[2:].removeprefix("D")
    return f"{kind[:2]}.{gigabytes[TABLES[table][kind][1]]}gb{suffix}"


def kind_of(product, name):
    """Return a profile's kind in the table of its product."""
    return next(kind for kind in TABLES[BOARDS[product][0]] if name_of(product, kind) == name)


def media_suffice(profiles):
    """Return whether profiles go together as to media engines: one +me or +me.all; beside the latter none but -me."""
    extended = [name for name in profiles if name.endswith(("+me", "+me.all"))]
    everything = [name for name in profiles if name.endswith("+me.all")]
    others = [name for name in profiles if name not in everything and not name.endswith("-me")]
    return len(extended) <= 1 and not (everything and others)


def lies_legally(table, layout):
    """Return whether a layout of (kind, start) pairs is legal on a board of a table."""
    rows = TABLES[table]
    units = [unit for kind, start in layout for unit in range(start, start + rows[kind][1])]
    counts = Counter(kind for kind, _ in layout)
    return (
        all(start in rows[kind][2] for kind, start in layout)
        and len(units) == len(set(units))
        and sum(rows[kind][0] for kind, _ in layout) <= COMPUTE[table]
        and all(count <= rows[kind][3] for kind, count in counts.items())
        and media_suffice([kind for kind, _ in layout])
    )


@cache
def layouts(table):
    """Return every legal layout of a table's boards as a set of (kind, start), the empty one included."""
    places = [(kind, start) for kind, row in TABLES[table].items() for start in row[2]]
    found, frontier = {frozenset()}, [frozenset()]
    while frontier:
        grown = {layout | {place} for layout in frontier for place in places if place not in layout} - found
        frontier = [layout for layout in grown if lies_legally(table, layout)]
        found.update(frontier)
    return found


@cache
def maximal_sets(table):
    """Return the sets of kinds (sorted) that a board can be and to which nothing can be added, with the places."""
    sets = {tuple(sorted(kind for kind, _ in layout)) for layout in layouts(table)}
    return {one for one in sets if not any(tuple(sorted((*one, kind))) in sets for kind in TABLES[table])}
