"""How the start of a sandbox is told: lines through a pipe, from its supervisor to whoever waits for it."""

from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import msgspec

from console.sandbox.errors import SandboxError


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a step is done, all is `ready`, or it `failed` and why."""

    step: str = ""
    ready: bool = False
    failed: str = ""


def notifier(pipe: BinaryIO) -> Callable[[Notice], None]:
    """Return a function that sends notices through an unbuffered pipe, for as long as somebody reads them."""

    def notify(notice: Notice) -> None:
        with suppress(BrokenPipeError):  # Whoever waited has gone; the lifeline says whether the sandbox goes too.
            pipe.write(msgspec.json.encode(notice) + b"\n")

    return notify


def follow(pipe: BinaryIO, on_step: Callable[[str], None]) -> None:
    """Return once the sandbox is ready, with each step told on the way.

    Raises SandboxError with the reason if it fails, EOFError if its supervisor ends without a word.
    """
    for line in pipe:
        notice = msgspec.json.decode(line, type=Notice)
        if notice.ready:
            return
        if notice.failed:
            raise SandboxError(notice.failed)
        on_step(notice.step)
    raise EOFError
