"""The record on a pod (annotation `gpu-request`): what each container asked for and what it was given.

Container resources cannot change later, so the choice is final and is written down. A wish whose record agrees with
the container's resources is answered: it is not resolved again, only checked. Only we write it; a forged one is
replaced (pain W35).
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from policies import names


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one container asked for and was given.

    Attributes:
        asked: annotations with their full keys, or the resource, each with its value as written.
        given: the slice resource and how many.
        mode: of the slice.
        model: the board for which it was chosen; None where several models make an explicit slice.
    """

    asked: dict[str, str]
    given: dict[str, str]
    mode: str
    model: str | None = None


class Record(msgspec.Struct, frozen=True):
    """The whole annotation; containers in the order of the pod, init containers first."""

    v: Literal[1]
    containers: dict[str, Entry]


_decoder = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


def read_record(annotations: Mapping[str, str] | None) -> Mapping[str, Entry]:
    """Return the entries of a pod's record by container; empty if there is none, or none that we have written."""
    text = (annotations or {}).get(names.RECORD)
    if text is None:
        return {}
    try:
        return _decoder.decode(text).containers
    except msgspec.DecodeError:
        return {}  # forged: it counts for nothing, and is replaced


def write_record(entries: Mapping[str, Entry]) -> str:
    """Return the annotation's value: compact JSON."""
    return _encoder.encode(Record(v=1, containers=dict(entries))).decode()
