"""What is printed: tables that line up, sentences that fit, and states one after another."""

import json
from datetime import datetime

import pytest
import yaml

from console.output import TABLE, columns, terminal_width, wrapped
from console.screen import Screen


def test_numbers_stand_right_below_each_other():
    assert columns([("QUOTA", "USED", "MIN"), ("team-a", "1", "100Gi"), ("b", "17.142", "-")]).splitlines() == [
        "QUOTA     USED    MIN",
        "team-a       1  100Gi",
        "b       17.142      -",
    ]


def test_a_sentence_is_broken_where_the_width_is_known_and_names_never_are():
    text = "team-a/train waits: nos.nebuly.com/gpu-memory is used up"
    assert wrapped(text, 24).splitlines() == ["team-a/train waits:", "  nos.nebuly.com/gpu-memory", "  is used up"]
    assert wrapped(text, None) == text


REASONS = [("POD", "REASON"), ("team-a/train", "needs 3g.20gb; 1 board has 20 GB free, not contiguous")]


def test_the_last_column_goes_on_below_itself_in_a_terminal():
    assert columns(REASONS, left=2, width=46).splitlines() == [
        "POD           REASON",
        "team-a/train  needs 3g.20gb; 1 board has 20 GB",
        "              free, not contiguous",
    ]


@pytest.mark.parametrize("width", [None, 43], ids=["a pipe", "a terminal that leaves it 29 columns"])
def test_the_last_column_stays_in_one_line(width):
    assert columns(REASONS, left=2, width=width).splitlines() == [
        "POD           REASON",
        "team-a/train  needs 3g.20gb; 1 board has 20 GB free, not contiguous",
    ]


def test_a_pipe_has_no_width(capsys):
    assert terminal_width() is None


@pytest.fixture
def screen(monkeypatch):
    def make(output, *, terminal=False):
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        return Screen(output, lambda: datetime(2026, 1, 31, 12, 0, 5))  # noqa: DTZ001 - local time, as people read it

    return make


def test_in_a_pipe_states_follow_each_other_and_none_is_told_twice(screen, capsys):
    shown = screen(TABLE)
    for state in ("one", "one", "two"):
        shown.show(state)
    assert capsys.readouterr().out == "12:00:05\n\none\n\n12:00:05\n\ntwo\n\n"


def test_on_a_terminal_a_state_takes_the_place_of_the_last_one(screen, capsys):
    screen(TABLE, terminal=True).show("one")
    assert capsys.readouterr().out == "\x1b[H\x1b[2J\x1b[3J12:00:05  (Ctrl-C ends)\n\none\n"


@pytest.mark.parametrize(
    ("output", "read"),
    [
        pytest.param("json", lambda text: [json.loads(line) for line in text.splitlines()], id="json: a line each"),
        pytest.param("yaml", lambda text: list(yaml.safe_load_all(text)), id="yaml: a document each"),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_programs_read_a_stream_of_states(screen, capsys, output, read, terminal):
    shown = screen(output, terminal=terminal)
    states = [{"waiting": {}}, {"waiting": {}}, {"waiting": {"a/b": {"reason": "AboveMax"}}}]
    for state in states:
        shown.show(state)
    assert read(capsys.readouterr().out) == [states[0], states[2]]
