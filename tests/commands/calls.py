"""Commands called in this process or in one of their own, and a finding for them to read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner, Result

from fuzzer.commands import main
from fuzzer.judgement.verdict import Comparison, Finding, Signature

ROOT = Path(__file__).parents[2]
SEED = ROOT / "corpus" / "seeds" / "select_scatter_mean.prog"
EAGER = ("--compare", "eager", "aot_eager", "--device", "cpu", "--workers", "1")  # a subject that compiles in no time
RELU = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
"""
PLANTED = RELU.replace('route("', 'settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})\nroute("')
FINDING = Finding(
    signature=Signature("gradients_agree", "wrong", "backward", "scattered"),
    detail="x0.grad[2]: compiled 0, eager 1",
    original=RELU,
    program=RELU,
    place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": torch.__version__},
    reproduced=3,
    runs=3,
    comparisons=(Comparison("x0.grad", (2,), 1.0, 0.0, 1.0, 0.0, 1, 4),),
    stages={"eager": "agree", "inductor": "wrong"},
    ablation={"inductor.max_fusion_size=1": "agree"},
    created="2026-01-01T00:00:00+00:00",
)


def call(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(done: Result, code: int = 2) -> str:
    """The one line on stderr with which a command refused; stdout is empty and there is no traceback."""
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


# What `python -m backfuzz` does, but for the canaries, which are half a minute of compiles.
WITHOUT_CANARIES = """
import backfuzz
from fuzzer.campaign import loop
loop.run_canaries = lambda *_, **__: []
backfuzz.main()
"""


def fuzz(*arguments: str, canaries: bool = True, **options: Any) -> subprocess.Popen[str]:
    """`backfuzz fuzz` in a process group of its own, as a shell would start it."""
    program = ("-m", "backfuzz") if canaries else ("-c", WITHOUT_CANARIES)
    command = [sys.executable, *program, "fuzz", *EAGER, "--db", "new.db", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, start_new_session=True, env=environment, **pipes, **options)  # type: ignore[call-overload]


def wait_until(happened: Callable[[], bool], running: subprocess.Popen[Any]) -> None:
    started = time.monotonic()
    while not happened():
        assert running.poll() is None, "it ended before"
        assert time.monotonic() - started < 300
        time.sleep(0.1)
