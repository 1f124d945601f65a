"""What is shown of work that takes long."""

from __future__ import annotations

import gc
import io
import re
import time

import click
import pytest
from click.testing import CliRunner

from fuzzer.commands.shared import waiting
from fuzzer.commands.shared.waiting import Waiting, starting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until(stream: io.StringIO, text: str) -> str:
    """What the stream has once it has this text."""
    ends = time.monotonic() + 10
    while text not in stream.getvalue() and time.monotonic() < ends:
        time.sleep(0.01)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)


def test_on_a_terminal_it_counts_and_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Waiting("canaries", lambda: "[2] at work", lambda: 3, 8, stream) as shown:
        assert "3/8" in until(stream, "3/8")
        assert "canaries: [2] at work" in until(stream, "[2] at work")
    shown.stop()
    assert stream.getvalue().endswith("\x1b[2K"), "the line is erased"


def test_elsewhere_a_line_a_minute_says_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with Waiting("canaries", stream=stream):
        time.sleep(0.05)
    assert stream.getvalue() == "", "not a minute yet"
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.02)
    with Waiting("canaries", lambda: "2 at work", lambda: 3, 8, stream):
        told = until(stream, "\n")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d canaries: 2 at work \(3 of 8\)\n", told)


def test_the_start_is_shown_until_the_command_ends_however_that_is() -> None:
    shown: list[Waiting] = []

    @click.command()
    def fails() -> None:
        shown.append(starting())
        assert shown[0].thread.is_alive()
        assert not gc.isenabled(), "imports are quicker so"
        raise click.UsageError("no")

    assert CliRunner().invoke(fails).exit_code == 2
    shown[0].thread.join(10)
    assert not shown[0].thread.is_alive()
    assert gc.isenabled()
