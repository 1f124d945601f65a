"""The machine that a script names, and what the script says on another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzzer.export.machine import ONE_THREAD, PERTURBED, Machine
from fuzzer.export.script import repro
from tests.ledger.found import TWO_OPS, WORST, finding
from tests.scripts import run

HERE = Machine(torch.__version__, "cpu", torch.backends.cpu.get_cpu_capability(), 2)
GONE = finding(TWO_OPS, comparisons=(WORST,))


def uncompiled(text: str) -> str:
    return text.replace("torch.compile(f, fullgraph=True)", "f")


@pytest.mark.parametrize(
    ("machine", "code", "words"),
    [
        (replace(HERE, torch="2.0.0+cpu"), 0, ""),
        (replace(HERE, torch="99.0"), 2, "it cannot be told here: torch < 99.0"),
        (replace(HERE, chip="AVX1024"), 2, "it cannot be told here: no AVX1024"),
    ],
)
def test_gone_is_not_said_on_a_machine_that_need_not_show_it(
    machine: Machine, code: int, words: str, tmp_path: Path
) -> None:
    text = uncompiled(repro(GONE, machine=machine, fixed=(PERTURBED,)))  # the number of threads is this machine's
    text = text.replace('"one thread": torch.get_num_threads() == 1', '"one thread": False')
    done = run(tmp_path, text)
    assert (done.returncode, words in done.stdout) == (code, True), done.stdout + done.stderr


def test_what_shows_is_told_on_any_machine(tmp_path: Path) -> None:
    text = uncompiled(repro(GONE, machine=replace(HERE, torch="99.0")))
    done = run(tmp_path, text.replace("\neager = ", "\ncompiled[0] += 7\neager = ", 1))
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_script_names_the_machine_and_what_it_needs_of_a_worker() -> None:
    lines = repro(GONE, machine=HERE, fixed=(PERTURBED, ONE_THREAD)).splitlines()
    assert lines[1].startswith(f"# Shows on torch {torch.__version__}, cpu ({HERE.chip}, 2 threads). Exits 1")
    assert lines[2].startswith("import ctypes, os, sys, torch")
    assert {PERTURBED, ONE_THREAD} <= set(lines)
    assert "get_num_threads" not in "\n".join(lines), "the script sets it"
    assert str(Machine("2.11.0", "cuda", "NVIDIA H200", 1)) == "torch 2.11.0, cuda (NVIDIA H200)"
    assert "torch.cuda.get_device_name() !=" in "\n".join(Machine("2.11.0", "cuda", "NVIDIA H200", 1).ending(True))


def test_a_line_of_a_script_does_what_a_workers_environment_does(tmp_path: Path) -> None:
    text = f"import ctypes, sys, torch\n{PERTURBED}\nsys.exit(int(torch.empty(64).sum() == 0))\n"
    assert run(tmp_path, text).returncode == 0
