"""What admission may write on a pod, and what of GPUs it may leave there: told by the design, not by the code.

For laws and for the fuzzer: `touched` is what really differs between two pods, `unanswered` what is left in an admitted
pod that looks like a wish for a GPU and is none that anybody has answered.
"""

import json
import re
from fractions import Fraction

_GPU = r"nvidia\.com~1(gpu|gpu\.shared|gpu-[^/]*|mig-[^/]*)"
_CONTAINER = r"/spec/(containers|initContainers)/\d+"
_TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"
_OURS = re.compile(
    "|".join(
        (
            r"/metadata/annotations/nos\.nebuly\.com~1(gpu-request|evicted-for|released-at)",
            r"/metadata/labels/nos\.nebuly\.com~1capacity",
            rf"{_CONTAINER}/resources/(limits|requests)/{_GPU}",
            rf"{_CONTAINER}/securityContext/runAsUser",
            rf"{_CONTAINER}/env/\+CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            r"/spec/hostIPC",
            r"/spec/schedulerName",
            r"/spec/schedulingGates/\+nos\.nebuly\.com/admission",
            rf"{_TERMS}/\+",
            rf"{_TERMS}/\d+/matchExpressions/\+",
        )
    )
)
"""Paths that admission may write; `+` is an item behind those that were there, with its name if it has one."""

_ABSENT = object()


def touched(before, after, path=""):
    """Yield the path of everything that differs, down to the leaf: absent, null and empty are three different things.

    Only where something was put into a parent that was absent or null is the parent itself no difference.
    """
    if isinstance(after, dict) and after and before in (None, _ABSENT):
        before = {}
    if isinstance(after, list) and after and before in (None, _ABSENT):
        before = []
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            step = str(key).replace("~", "~0").replace("/", "~1")
            yield from touched(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}/{step}")
    elif isinstance(before, list) and isinstance(after, list):
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from touched(one, other, f"{path}/{index}")
        for gone in range(len(after), len(before)):
            yield f"{path}/{gone}"
        for new in after[len(before) :]:
            yield f"{path}/+{new.get('name', '') if isinstance(new, dict) else ''}"
    elif type(before) is not type(after) or before != after:
        yield path


def not_ours(before, after):
    """Return the paths that differ and that admission may not write."""
    return [path for path in touched(before, after) if not _OURS.fullmatch(path)]


_SLICE = re.compile(r"nvidia\.com/(gpu-[1-9][0-9]*gb|mig-([1-9]c\.)?[1-9]g\.[1-9][0-9]*gb(\.[a-z.]+|-me)?)")
_LIKE_A_SLICE = re.compile(r"nvidia\.com/(gpu-[0-9]|mig-)", re.IGNORECASE)
_ASKING = re.compile(r"nos\.nebuly\.com/gpu-(fraction|memory|count)(\..*)?")
_KEYS = ("gpu-fraction", "gpu-memory", "gpu-count", "gpu-mode", "gpu-container", "non-preemptible", "gpu-request")


def unanswered(pod, foreign=()):
    """Yield what is left of an admitted pod's wishes that nobody has answered. `foreign` are another plugin's resources.

    Answered is a whole number of GPUs; a slice that stands in the record of its container and in limits and requests
    alike; an annotation that asks and that stands in a record. A slice of another plugin is that one's to answer.
    """
    notes = pod["metadata"].get("annotations") or {}
    record = json.loads(notes.get("nos.nebuly.com/gpu-request", '{"containers":{}}'))["containers"]
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        resources = container.get("resources") or {}
        amounts = [resources.get(kind) or {} for kind in ("limits", "requests")]
        for name in {*amounts[0], *amounts[1]}:
            if name not in foreign and not _is_answered(name, amounts, record.get(container["name"], {})):
                yield f"{container['name']}: {name}: {[each.get(name) for each in amounts]}"
    asked = {key: value for entry in record.values() for key, value in entry["asked"].items()}
    for key, value in notes.items():
        if asked.get(key) != value if _ASKING.fullmatch(key) else _is_near_miss(key):
            yield f"{key}: {value}"


def _is_answered(name, amounts, entry):
    if name.startswith("nos.nebuly.com/"):
        return False
    if name == "nvidia.com/gpu":
        return all(_whole(each[name]) for each in amounts if name in each)
    if _LIKE_A_SLICE.match(name) or name == "nvidia.com/gpu.shared":
        nothing = all(_zero(each[name]) for each in amounts if name in each)
        known = _SLICE.fullmatch(name) or name == "nvidia.com/gpu.shared"
        given = entry.get("given", {}).get(name)
        return bool(known) and (nothing or [_value(each.get(name)) for each in amounts] == [_value(given)] * 2)
    return True


def _whole(quantity):
    value = _value(quantity)
    return value >= 0 and value == int(value)


def _zero(quantity):
    return _value(quantity) == 0


_UNITS = {"n": "1e-9", "u": "1e-6", "m": "1e-3", **{unit: f"1e{3 * n}" for n, unit in enumerate("kMGTPE", 1)},
          **{f"{unit}i": str(1024**n) for n, unit in enumerate("KMGTPE", 1)}}  # fmt: skip


def _value(quantity):
    """Return a quantity as a number; -1 for what is none."""
    number, unit = re.fullmatch(r"([-+0-9.]*(?:[eE][-+]?[0-9]+)?)(.*)", str(quantity), re.DOTALL).groups()
    try:
        return min(Fraction(number) * Fraction(_UNITS[unit] if unit else 1), Fraction(2**63 - 1))
    except (ValueError, KeyError):
        return -1


def _is_near_miss(key):
    kind = key.removeprefix("nos.nebuly.com/").partition(".")[0].lower()
    return key.startswith("nos.nebuly.com/") and min(_edits(kind, ours) for ours in _KEYS) in (1, 2)


def _edits(one, other):
    """Return the edit distance (insert, delete, replace), the textbook's way."""
    rows = [[i + j if 0 in (i, j) else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
    return rows[-1][-1]
