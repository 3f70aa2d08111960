"""What is read of a daemon's output and logs, and that they stay short."""

import pytest

from reconciler.agent.mps.logs import MOST, Logs

FAILED = "[2024-12-10 06:38:01.170 Control    64] Server 92 exited with status 1\n"


@pytest.fixture
def files(tmp_path):
    return tmp_path / "output", tmp_path / "control.log", tmp_path / "server.log"


def test_a_server_that_fails_is_news_once(files):
    """A19: the line is that of a real control daemon; either file may have it."""
    output, control, server = files
    logs = Logs((output, control), (server,))
    assert logs.failed_server() == ""
    output.write_text("[2024-12-10 06:38:01.120 Control    64] Accepting connection...\n" + FAILED)
    assert logs.failed_server() == "Server 92 exited with status 1"
    assert logs.failed_server() == ""
    control.write_text(FAILED.replace("92", "95"))
    assert logs.failed_server() == "Server 95 exited with status 1"


def test_a_server_that_ends_well_is_no_news(files):
    output, *_ = files
    logs = Logs((output,))
    output.write_text(FAILED.replace("status 1", "status 0"))
    assert logs.failed_server() == ""


def test_what_was_there_before_is_no_news(files):
    output, *_ = files
    output.write_text(FAILED)
    logs = Logs((output,))
    logs.skip()
    assert logs.failed_server() == ""


def test_files_are_cut_short_and_read_on(files):
    """They may lie in memory, and a probe every 20 seconds writes a few lines."""
    output, _, server = files
    logs = Logs((output,), (server,))
    for path in (output, server):
        path.write_bytes(b"x" * (MOST + 1))
    assert logs.failed_server() == ""
    assert (output.stat().st_size, server.stat().st_size) == (0, 0)
    output.write_text(FAILED)
    assert logs.failed_server() == "Server 92 exited with status 1"


def test_a_file_that_is_cut_short_under_its_writer_has_a_hole_that_is_not_read(files):
    output, *_ = files
    logs = Logs((output,))
    with output.open("wb", buffering=0) as writer:
        writer.write(b"x" * (MOST + 1))
        logs.failed_server()
        writer.write(FAILED.encode())
        assert logs.failed_server() == "Server 92 exited with status 1"
        assert logs.last_words() == ""


@pytest.mark.parametrize(
    ("output", "control", "words"),
    [
        pytest.param("[2024 Control 1] one\n[2024 Control 1] Failed to start : invalid argument\n\n", "other\n",
                     "Failed to start : invalid argument", id="the-last-line-without-its-time"),
        pytest.param("", "[2024 Control 1] bound\n", "bound", id="of-the-first-file-that-has-one"),
        pytest.param("x" * 1000, "", "x" * 300, id="no-more-than-a-condition-bears"),
        pytest.param(None, None, "", id="none"),
    ],
)  # fmt: skip
def test_last_words(files, output, control, words):
    for path, text in zip(files, (output, control), strict=False):
        if text is not None:
            path.write_text(text)
    assert Logs(files[:2]).last_words() == words
