"""What the supervisor says to whoever waits for the start."""

import os

import pytest

from console.sandbox.errors import SandboxError
from console.sandbox.notices import Notice, follow, notifier


def _said(*notices: Notice) -> int:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        for notice in notices:
            notifier(pipe)(notice)
    return read_end


def test_steps_are_told_until_it_is_ready() -> None:
    steps: list[str] = []
    with os.fdopen(_said(Notice(step="etcd"), Notice(step="kwok"), Notice(ready=True)), "rb") as pipe:
        follow(pipe, steps.append)
    assert steps == ["etcd", "kwok"]


def test_a_failure_is_told_in_the_words_of_the_supervisor() -> None:
    with (
        os.fdopen(_said(Notice(failed="etcd ended\nits log")), "rb") as pipe,
        pytest.raises(SandboxError, match=r"^etcd ended\nits log$"),
    ):
        follow(pipe, print)


def test_a_supervisor_that_ends_without_a_word_is_no_success() -> None:
    with os.fdopen(_said(Notice(step="etcd")), "rb") as pipe, pytest.raises(EOFError):
        follow(pipe, lambda _: None)


def test_nobody_needs_to_listen() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb", buffering=0) as pipe:
        notifier(pipe)(Notice(ready=True))
