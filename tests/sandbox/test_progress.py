"""Lines for a person who waits: passing ones are for a terminal only."""

import io

from console.sandbox.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_the_lines_that_stay_and_no_other() -> None:
    log = io.StringIO()
    progress = Progress(log)
    progress.passing("etcd: 1 of 565 packages")
    progress.line("etcd: built in 38 s")
    assert log.getvalue() == "etcd: built in 38 s\n"


def test_on_a_terminal_each_line_takes_the_place_of_a_passing_one() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.passing("etcd: 1 of 565 packages")
    progress.passing("etcd: 2 of 565 packages")
    progress.line("etcd: built in 38 s")
    assert terminal.getvalue() == (
        "etcd: 1 of 565 packages\r\x1b[Ketcd: 2 of 565 packages\r\x1b[Ketcd: built in 38 s\n"
    )


def test_a_passing_line_never_breaks_into_two(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    Progress(terminal).passing("x" * 100)
    assert terminal.getvalue() == "x" * 19
