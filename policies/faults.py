"""Faults of what people wrote, each as `path: value: rule and way out`, and all of them at once.

Decoding stops at the first misfit, which is right for what a program wrote. What a person wrote deserves every fault
in one answer, so `misfits` is asked after decoding has failed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

import msgspec
from msgspec import inspect

_LONGEST: Final = 80  # characters of a value that a message repeats


class UnsoundError(ValueError):
    """What a struct's `__post_init__` raises if its fields, each well-formed, cannot stand so: a fault for each.

    The paths of the faults begin at the struct.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


def fault(path: str, value: object, rule: str) -> str:
    """Return the one form in which faults are told; a long value is cut short."""
    return f"{path}: {_shown(value)}: {rule}"


def misfits(value: object, expected: type) -> list[str]:
    """Return a fault for every place where a JSON or YAML value does not have the shape of a type; none if it has.

    Knows what our types are made of: structs, mappings, lists, scalars with bounds or a pattern, words, `object`, and
    unions of them.
    """
    return list(_misfits(value, _shape(expected), ""))


# ---------------------------------------------------------------------------------------------------------------------


@cache
def _shape(expected: type) -> inspect.Type:
    return inspect.type_info(expected)


def _misfits(value: object, shape: inspect.Type, path: str) -> Iterator[str]:
    if not _is_of(value, shape):
        yield _misfit(path, value, shape)
        return
    match shape, value:
        case inspect.UnionType(types=types), _:
            yield from (found for each in types if _is_of(value, each) for found in _misfits(value, each, path))
        case inspect.StructType(), dict():
            yield from [*_fields_misfit(value, shape, path)] or _unsound(value, shape, path)
        case inspect.DictType(value_type=inner), dict():
            yield from _items_misfit(value, inner, path)
        case (inspect.VarTupleType(item_type=inner), list()):
            for index, item in enumerate(value):
                yield from _misfits(item, inner, f"{path}[{index}]")
        case inspect.IntType(), int() if not _is_within(value, shape):
            yield fault(path or "document", value, f"must be {_bounds(shape)}")
        case inspect.StrType(pattern=str(pattern)), str() if not re.search(pattern, value):
            yield fault(path or "document", value, f"must match {pattern}")


def _fields_misfit(value: dict[object, object], shape: inspect.StructType, path: str) -> Iterator[str]:
    for field in shape.fields:
        inner = _inside(path, field.encode_name)
        if field.encode_name in value:
            yield from _misfits(value[field.encode_name], field.type, inner)
        elif field.required:
            yield f"{inner}: missing: {_described(field.type)} is needed"
    known = [field.encode_name for field in shape.fields]
    for key in value if shape.forbid_unknown_fields else ():
        if key not in known:
            yield fault(_inside(path, str(key)), value[key], f"there is no such field: there are {', '.join(known)}")


def _unsound(value: object, shape: inspect.StructType, path: str) -> Iterator[str]:
    """Yield what a struct, all parts of which fit, says itself."""
    try:
        msgspec.convert(value, shape.cls)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, UnsoundError):
            yield from (_inside(path, found) for found in error.__cause__.faults)


def _inside(path: str, inner: str) -> str:
    return f"{path}.{inner}" if path else inner


def _items_misfit(value: dict[object, object], inner: inspect.Type, path: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(key, str):
            yield from _misfits(item, inner, f"{path}[{key}]")
        else:
            yield fault(f"{path}[{key}]", key, "a key must be text: quote it")


def _misfit(path: str, value: object, shape: inspect.Type) -> str:
    quote = ": quote it" if _is_of("", shape) and type(value) in (bool, int, float) else ""
    got = next((name for name, types in _KINDS.values() if type(value) in types), type(value).__name__)
    kind = "" if isinstance(value, str) and _has_words(shape) else f", not {got}{quote}"
    return fault(path or "document", value, f"must be {_described(shape)}{kind}")


def _is_of(value: object, shape: inspect.Type) -> bool:
    """Return whether a value is of the kind, whatever is inside it. A truth value is no number."""
    if isinstance(shape, inspect.UnionType):
        return any(_is_of(value, each) for each in shape.types)
    if isinstance(shape, inspect.LiteralType):
        return isinstance(value, str) and value in shape.values
    if isinstance(shape, inspect.CustomType):
        return True  # `object`: what stands there is read elsewhere
    return type(value) in _KINDS[type(shape)][1]


def _is_within(value: int, shape: inspect.IntType) -> bool:
    low, high = _span(shape)
    return (low is None or value >= low) and (high is None or value <= high)


def _bounds(shape: inspect.IntType) -> str:
    low, high = _span(shape)
    if low is not None and high is not None:
        return f"from {low} to {high}"
    return f"at least {low}" if high is None else f"at most {high}"


def _span(shape: inspect.IntType) -> tuple[int | None, int | None]:
    """Return the least and the greatest number that is allowed; None where there is no bound."""
    low = shape.ge if shape.gt is None else shape.gt + 1
    return low, shape.le if shape.lt is None else shape.lt - 1


def _has_words(shape: inspect.Type) -> bool:
    return isinstance(shape, inspect.LiteralType) or (
        isinstance(shape, inspect.UnionType) and any(map(_has_words, shape.types))
    )


def _described(shape: inspect.Type) -> str:
    if isinstance(shape, inspect.LiteralType):
        return f"one of {', '.join(map(str, shape.values))}"
    if not isinstance(shape, inspect.UnionType):
        return _KINDS[type(shape)][0]
    if any(isinstance(each, inspect.FloatType) for each in shape.types):
        return "a quantity"  # the one union of scalars in our model
    wanted = [each for each in shape.types if not isinstance(each, inspect.NoneType)]
    return _described(wanted[0]) if len(wanted) == 1 else " or ".join(map(_alternative, wanted))


def _alternative(shape: inspect.Type) -> str:
    """Return what one of several kinds is; of a struct its fields too, for nothing else says which they are."""
    if not isinstance(shape, inspect.StructType):
        return _described(shape)
    return f"{_described(shape)} with {' or '.join(field.encode_name for field in shape.fields)}"


# What we call a kind, and the Python types by which JSON and YAML values of it come.
_KINDS: Final[Mapping[type[inspect.Type], tuple[str, tuple[type, ...]]]] = {
    inspect.StructType: ("an object", (dict,)),
    inspect.DictType: ("an object", (dict,)),
    inspect.VarTupleType: ("a list", (list,)),
    inspect.StrType: ("text", (str,)),
    inspect.BoolType: ("true or false", (bool,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.NoneType: ("null", (type(None),)),
}


def _shown(value: object) -> str:
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else re.sub(r"\s+", " ", str(value))
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return short if text and text == text.strip() else f'"{short}"'  # else nobody sees what is wrong with it
