"""How a result is compared with what a scenario expects of it: a partial, see README.md."""

import json
import re

MISSING = object()
LIST_RULES = {"containsAll", "containsNone", "size"}


def differences(want, got, path="$"):
    """Yield one line for each place where `got` does not match the partial `want`."""
    if want is None:
        if got is not MISSING and got is not None:
            yield f"{path}: expected nothing, got {_short(got)}"
    elif got is MISSING:
        yield f"{path}: missing, expected {_short(want)}"
    elif isinstance(want, dict) and want and want.keys() <= LIST_RULES:
        yield from _list_differences(want, got, path)
    elif isinstance(want, dict | list):
        yield from _inner_differences(want, got, path)
    elif isinstance(want, str) and want.startswith("re:"):
        text = got if isinstance(got, str) else json.dumps(got)
        if not re.search(want[3:], text, re.DOTALL | re.IGNORECASE):
            yield f"{path}: {_short(got)} does not match {want[3:]!r}"
    elif want != got or isinstance(want, bool) != isinstance(got, bool):
        yield f"{path}: expected {_short(want)}, got {_short(got)}"


def _inner_differences(want, got, path):
    """Compare an object by the keys that are wanted, a list item by item."""
    if type(want) is not type(got) or (isinstance(want, list) and len(want) != len(got)):
        yield f"{path}: expected {_short(want)}, got {_short(got)}"
    elif isinstance(want, dict):
        for key, value in want.items():
            yield from differences(value, got.get(key, MISSING), f"{path}.{key}")
    else:
        for index, (wanted, found) in enumerate(zip(want, got, strict=True)):
            yield from differences(wanted, found, f"{path}[{index}]")


def _list_differences(want, got, path):
    """Compare a list by rules; each item of containsAll takes an element of its own, in order."""
    if not isinstance(got, list):
        yield f"{path}: expected a list, got {_short(got)}"
        return
    left = list(got)
    for item in want.get("containsAll", []):
        hit = next((found for found in left if not any(differences(item, found))), MISSING)
        if hit is MISSING:
            yield f"{path}: no item like {_short(item)} in {_short(got)}"
        else:
            left.remove(hit)
    for item in want.get("containsNone", []):
        if any(not any(differences(item, found)) for found in got):
            yield f"{path}: an item like {_short(item)} should not be there"
    if "size" in want and len(got) != want["size"]:
        yield f"{path}: {len(got)} items, expected {want['size']}"


def _short(value):
    text = json.dumps(value, ensure_ascii=False) if value is not MISSING else "nothing"
    return text if len(text) <= 200 else text[:197] + "..."
