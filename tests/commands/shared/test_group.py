"""What all commands have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fuzzer.commands import main
from tests.commands.calls import FINDING, ROOT, call

COMMANDS = {name: main.get_command(click.Context(main), name) for name in main.modules}


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


@pytest.mark.parametrize(("name", "told"), [("shw", "no command 'shw'; did you mean show?"), ("x", "no command 'x'")])
def test_an_unknown_command_is_a_usage_error(name: str, told: str) -> None:
    done = call(name)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {told}")


def test_the_version_is_that_of_the_distribution() -> None:
    assert call("--version").stdout.startswith("backfuzz, version ")


# ---------------------------------------------------------------- start-up

WITHOUT_TORCH = """
import sys
from click.testing import CliRunner
from fuzzer.commands import main
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, line.split())
    print(done.exit_code, "torch" in sys.modules, line)
"""


def python(code: str, lines: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The code in a fresh process, which reads these lines."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, env=own)


def test_what_reads_and_what_refuses_does_not_wait_for_torch(db: Path) -> None:
    """It takes more than a second to import, several times as long as all else that these do."""
    answers = {
        "--help": 0,
        **{f"{name} --help": 0 for name in COMMANDS},
        f"faults --db {db}": 0,
        f"faults --findings --db {db}": 0,
        f"triage --db {db}": 0,
        f"triage {FINDING.id} confirmed --db {db}": 0,
        f"show {FINDING.id} --no-diagnose --db {db}": 0,
        f"merge {db} --db {db}": 0,
        f"report --db {db} --campaign none": 2,
        "status": 2,
        "cmin": 2,
        "ops": 0,
        "fuzz --ops nonsense": 2,
        "fuzz --no-such-option": 2,
    }
    done = python(WITHOUT_TORCH, lines="\n".join(answers))
    assert done.stdout.splitlines() == [f"{code} False {line}" for line, code in answers.items()], done.stderr


def test_a_shell_completes_verbs_and_options_without_torch() -> None:
    atexit = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))"
    asked = {"_BACKFUZZ_COMPLETE": "bash_complete", "COMP_WORDS": "backfuzz fuzz --mi", "COMP_CWORD": "2"}
    done = python(f"{atexit}\nimport backfuzz\nbackfuzz.main()", **asked)
    assert done.stdout.splitlines() == ["plain,--minutes", "False"], done.stderr


def test_a_reader_that_has_enough_ends_a_command_quietly() -> None:
    command = f"{sys.executable} -m backfuzz ops | true; echo ${{PIPESTATUS[0]}}"
    own = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=own)
    assert (done.stdout, done.stderr) == ("141\n", "")
