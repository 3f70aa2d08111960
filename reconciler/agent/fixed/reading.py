"""Reads a file that a person wrote as YAML, with every fault of its shape at once."""

from typing import TypeVar

import msgspec
import yaml

from policies.faults import UnsoundError, misfits

_T = TypeVar("_T")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a file: what is not known in it is a fault."""


def read_file(text: str, shape: type[_T]) -> _T:
    """Return the document of a file; null is the same as leaving a field out. Raises UnsoundError with all faults."""
    try:
        document: object = _without_nulls(yaml.safe_load(text))
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise UnsoundError([f"no YAML: {where}"]) from error
    if found := misfits(document, shape):
        raise UnsoundError(found)
    return msgspec.convert(document, shape)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
