"""The tutorial does what it says: its commands run in an empty folder, and what they print is compared.

All of them on the release that it is about: `scripts/test --torch 2.13.0 -m slow tests/test_tutorial.py`. On others,
those that read the ledger, which holds the project's own finding of the same minimal program.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.ledger.checkout import LEDGER
from fuzzer.ledger.store import open_store

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
RELEASE = "2.13.0"
FINDING = "711f9708ad"
RUN_PROGRAMS = ("backfuzz fuzz", "backfuzz replay", "backfuzz export", "python")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
STEPS = [
    (command, printed)
    for block in re.findall(r"```console\n(.*?)```", TUTORIAL, re.DOTALL)
    for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


def type_in(command: str, folder: Path) -> str:
    """What a shell in the folder prints for the command; `backfuzz` and `python` are of this environment."""
    names = folder.parent / "bin"
    names.mkdir(exist_ok=True)
    for name, what in (("backfuzz", f"{sys.executable} -m backfuzz"), ("python", sys.executable)):
        (names / name).write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        (names / name).chmod(0o755)
    env = os.environ | {"PATH": f"{names}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE, text=True).stdout


def compare(command: str, printed: str, folder: Path) -> None:
    got = type_in(command, folder)
    checker, example = doctest.OutputChecker(), doctest.Example(command, printed)
    assert checker.check_output(printed, got, FLAGS), checker.output_difference(example, got, FLAGS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tutorial"
    made.mkdir()
    return made


def test_what_the_tutorial_reads_and_writes_in_a_ledger_is_as_it_says(folder: Path) -> None:
    (folder / LEDGER).parent.mkdir()
    with open_store(ROOT / "findings.db", create=False) as project, open_store(folder / LEDGER) as own:
        finding = project.get(FINDING)
        own.add(replace(finding, place=finding.place | {"torch": f"{RELEASE}+cpu"}))
    steps = [step for step in STEPS if not step[0].startswith(RUN_PROGRAMS)]
    assert len(steps) == 4
    for command, printed in steps:
        compare(command, printed, folder)


def test_output_that_is_not_the_tutorials_is_told(folder: Path) -> None:
    compare("echo 1 fault", "1 ...\n", folder)
    with pytest.raises(AssertionError, match="2 faults"):
        compare("echo 2 faults", "1 ...\n", folder)


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__.split("+")[0] != RELEASE, reason=f"the tutorial is about torch {RELEASE}")
def test_the_tutorial_from_an_empty_folder(folder: Path) -> None:
    assert len(STEPS) == 8
    for command, printed in STEPS:
        compare(command, printed, folder)
