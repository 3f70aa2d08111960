"""Faults of what people wrote, each as `path: value: rule and way out`, and all of them at once.

Decoding stops at the first misfit, which is right for what a program wrote. What a person wrote deserves every fault
in one answer, so `misfits` is asked after decoding has failed.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from msgspec import inspect

_LONGEST: Final = 80  # characters of a value that a message repeats


def fault(path: str, value: object, rule: str) -> str:
    """Return the one form in which faults are told; a long value is cut short."""
    return f"{path}: {_shown(value)}: {rule}"


def misfits(value: object, expected: type) -> list[str]:
    """Return a fault for every place where a JSON or YAML value does not have the shape of a type; none if it has.

    Knows what `policies.model` is made of: structs, mappings, lists, scalars and unions of them with null.
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
        case inspect.StructType(fields=fields), dict():
            yield from _fields_misfit(value, fields, path)
        case inspect.DictType(value_type=inner), dict():
            yield from _items_misfit(value, inner, path)
        case (inspect.VarTupleType(item_type=inner), list()):
            for index, item in enumerate(value):
                yield from _misfits(item, inner, f"{path}[{index}]")


def _fields_misfit(value: dict[object, object], fields: tuple[inspect.Field, ...], path: str) -> Iterator[str]:
    for field in fields:
        inner = f"{path}.{field.encode_name}" if path else field.encode_name
        if field.encode_name in value:
            yield from _misfits(value[field.encode_name], field.type, inner)
        elif field.required:
            yield f"{inner}: missing: {_described(field.type)} is needed"


def _items_misfit(value: dict[object, object], inner: inspect.Type, path: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(key, str):
            yield from _misfits(item, inner, f"{path}[{key}]")
        else:
            yield fault(f"{path}[{key}]", key, "a key must be text: quote it")


def _misfit(path: str, value: object, shape: inspect.Type) -> str:
    quote = ": quote it" if _is_of("", shape) and type(value) in (bool, int, float) else ""
    got = next((name for name, types in _KINDS.values() if type(value) in types), type(value).__name__)
    return fault(path or "document", value, f"must be {_described(shape)}, not {got}{quote}")


def _is_of(value: object, shape: inspect.Type) -> bool:
    """Return whether a value is of the kind, whatever is inside it. A truth value is no number."""
    if isinstance(shape, inspect.UnionType):
        return any(_is_of(value, each) for each in shape.types)
    return type(value) in _KINDS[type(shape)][1]


def _described(shape: inspect.Type) -> str:
    if not isinstance(shape, inspect.UnionType):
        return _KINDS[type(shape)][0]
    wanted = [_described(each) for each in shape.types if not isinstance(each, inspect.NoneType)]
    return wanted[0] if len(wanted) == 1 else "a quantity"  # the one union of scalars in our model


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
    text = words[value] if value is None or isinstance(value, bool) else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
