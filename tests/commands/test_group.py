"""What all commands have in common."""

from __future__ import annotations

import click
import pytest

from fuzzer.commands import main
from tests.commands.calls import call

COMMANDS: dict[str, click.Command] = dict(main.commands)


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("name", [*COMMANDS, ""])
def test_help_says_what_a_command_does(name: str) -> None:
    done = call(*([name] if name else []), "--help")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) > 4
    assert "Exit codes:" in done.stdout or not name


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_a_usage_error(name: str) -> None:
    assert call(name, "--no-such-option").exit_code == 2


def test_the_version_is_that_of_the_distribution() -> None:
    assert call("--version").stdout.startswith("backfuzz, version ")
