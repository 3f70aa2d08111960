"""Reads a file that a person wrote as YAML, with every fault of its shape at once."""

from typing import Final, TypeVar

import msgspec
import yaml

from policies.faults import UnsoundError, misfits

LONGEST: Final = 256 * 1024  # characters: some thousands of lines, which take seconds to read
DEEPEST: Final = 20  # levels: what is read here has eight
LONGEST_WORD: Final = 1000  # characters: numbers of more digits cannot even be told

_T = TypeVar("_T")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of a file: what is not known in it is a fault."""


def read_file(text: str, shape: type[_T]) -> _T:
    """Return the document of a file; null is the same as leaving a field out. Raises UnsoundError with all faults."""
    if len(text) > LONGEST:
        raise UnsoundError([f"{len(text)} characters: at most {LONGEST} are read: leave out what no node uses"])
    try:
        document: object = _without_nulls(yaml.load(text, _Loader))  # noqa: S506 (it is a safe one)
    except (
        Exception
    ) as error:  # PyYAML lets through whatever Python says of a value: that of a date, of a number, of base64
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


class _Loader(yaml.SafeLoader):
    """Reads a document that is no larger than its text: what refers to itself, or to others, could be without end."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refused(f"*{event.anchor}: no aliases: write out what it stands for", event)
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # half a character, which JSON allows to be written, is no text
            if len(event.value) > LONGEST_WORD:
                raise _refused(f"a value of {len(event.value)} characters: at most {LONGEST_WORD}", event)
        if self._depth == DEEPEST:
            raise _refused(f"more than {DEEPEST} levels, one in another", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _refused(why: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.YAMLError(f"{why}{event.start_mark}")
