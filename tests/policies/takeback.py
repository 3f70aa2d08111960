"""Whom claimants displace by section 4, carried out step by step on plain lists: slow, and to be read beside the design.

For one case: pods of one slice of an A100-40 each, claimants that all need the same slice and stay within their min
(rule 1), quotas of GB without max whose mins are all that the boards have. Where claimants need different slices, whom
the later ones displace depends on the boards that the plan gives to the earlier ones, of which nothing is known here:
boards are tried out slice by slice, from NVIDIA's table of profiles.
"""

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from policies import names
from policies.governing import QuotaView
from tests.policies.cluster import bound, cluster, gated, node, used

PROFILES = {
    "1g.5gb": (1, 1, range(7)),
    "2g.10gb": (2, 2, (0, 2, 4)),
    "3g.20gb": (3, 4, (0, 4)),
    "4g.20gb": (4, 4, (0,)),
}
"""Compute slices, memory units of 5 GB, starts."""

COMPUTE, UNITS = 7, 0xFF


class One(NamedTuple):
    """A pod: on a slice, or (without a board) one that waits for it."""

    key: str
    profile: str
    created: int
    priority: int
    board: str = ""
    start: int = -1

    @property
    def team(self):
        return self.key.partition("/")[0]

    @property
    def gigabytes(self):
        return 5 * PROFILES[self.profile][1]


def victims(mins, holders, claims):
    """Return (claimant, victim) in the order in which they are chosen; None if somebody cannot be helped.

    Args:
        mins: GB that each team owns.
        holders: who runs.
        claims: who waits.
    """
    over, staying, granted, found = over_quota(mins, holders), list(holders), [], []
    boards = {pod.board for pod in holders}
    for claim in sorted(claims, key=lambda pod: (-pod.priority, pod.created, pod.key)):
        taken = []
        while room(boards, staying, claim.profile) <= len(granted):
            use = Counter()
            for pod in (*staying, *granted):
                use[pod.team] += pod.gigabytes
            assert use[claim.team] + claim.gigabytes <= mins[claim.team], "claims stay within min"
            may_go = [pod for pod in staying if pod.key in over and use[pod.team] > mins[pod.team]]
            if not may_go:
                return None
            straddling = {pod.key for pod in may_go if use[pod.team] - pod.gigabytes < mins[pod.team]}
            taken.append(min(may_go, key=lambda pod: rank(pod, claim, pod.key in straddling)))
            staying.remove(taken[-1])
        for victim in reversed(taken[:]):
            if room(boards, [*staying, victim], claim.profile) > len(granted):
                staying.append(victim)
                taken.remove(victim)
        granted.append(claim)
        found += [(claim.key, victim.key) for victim in taken]
    return found


def over_quota(mins, holders):
    """Return the keys of the pods that are over-quota: the running ones by older, then higher priority, smaller, name."""
    found, running = set(), Counter()
    for pod in sorted(holders, key=lambda pod: (pod.created, -pod.priority, pod.gigabytes, pod.profile, pod.key)):
        running[pod.team] += pod.gigabytes
        if running[pod.team] > mins[pod.team]:
            found.add(pod.key)
    return found


def rank(pod, claim, straddles):
    """Return a victim's place: not straddling first, lowest priority, newest, larger in what the claim lacks, name."""
    return straddles, pod.priority, -pod.created, -pod.gigabytes, pod.profile != claim.profile, pod.key


def room(boards, holders, profile):
    """Return how many slices of a profile all boards together can have beside those that are held."""
    held = {board: [] for board in boards}
    for pod in holders:
        held[pod.board].append((pod.profile, pod.start))
    return sum(most(slices, profile) for slices in held.values())


def most(held, profile):
    """Return how many slices of a profile a board can have beside those that are held: starts of one do not overlap."""
    slices = list(held)
    for start in PROFILES[profile][2]:
        if fits([*slices, (profile, start)]):
            slices.append((profile, start))
    return len(slices) - len(held)


def fits(slices):
    """Return whether a board can bear slices: no memory unit twice, and enough compute slices."""
    taken = 0
    for profile, start in slices:
        units = ((1 << PROFILES[profile][1]) - 1) << start
        if units & (taken | ~UNITS):
            return False
        taken |= units
    return sum(PROFILES[profile][0] for profile, _ in slices) <= COMPUTE


# Clusters -------------------------------------------------------------------------------------------------------------


def lent_boards(chance, boards, profile, count):
    """Return (mins, holders, claims): full boards of two teams that borrow, and claims of two that take theirs back."""
    holders = []
    for board in range(boards):
        slices = []
        places = [(kind, start) for kind, (_, _, starts) in PROFILES.items() for start in starts]
        chance.shuffle(places)
        for kind, start in places:
            if fits([*slices, (kind, start)]):
                slices.append((kind, start))
                key, created, priority = f"{chance.choice('bc')}/{len(holders):03}", *_random_rank(chance)
                holders.append(One(key, kind, created, priority, f"n{board:02}", start))
    claims = [One(f"{chance.choice('ad')}/{number:02}", profile, *_random_rank(chance)) for number in range(count)]
    asked = Counter()
    for claim in claims:
        asked[claim.team] += claim.gigabytes
    share, rest = divmod(40 * boards - asked.total(), 4)
    return {team: asked[team] + share + (rest if team == "a" else 0) for team in "abcd"}, holders, claims


def view_of(mins, holders, claims):
    """Return the same as a view."""
    layouts = {}
    for pod in holders:
        layouts.setdefault(pod.board, []).append(used(pod.profile, pod.start) | {"pod": pod.key})
    pods = [
        bound(pod.key, pod.board, pod.profile, created=_time(8, pod.created), priority=pod.priority) for pod in holders
    ]
    pods += [gated(pod.key, pod.profile, created=_time(9, pod.created), priority=pod.priority) for pod in claims]
    quotas = tuple(
        QuotaView(
            kind=names.ELASTIC_QUOTA, namespace=team, name="q", namespaces=(team,),
            min={names.GPU_MEMORY_QUOTA: least * 1000},
        )
        for team, least in mins.items()
    )  # fmt: skip
    return replace(
        cluster([node(name, placements={"0": layout}) for name, layout in layouts.items()], pods, 1.8e9), quotas=quotas
    )


def _random_rank(chance):
    """Return (created, priority)."""
    return chance.randrange(60), chance.choice((0, 0, 0, 5))


def _time(hour, minute):
    return f"2026-03-02T{hour:02}:{minute:02}:00Z"
