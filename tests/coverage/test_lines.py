"""Lines of the compiler that programs reach: once a process, on all threads, of existing files only."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzzer.coverage import lines
from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.draw import program_task
from fuzzer.trial.tasks import report_words
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool

ROOT = Path(__file__).parents[2]
MONITORED = sys.version_info >= (3, 12)
INDUCTOR = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")), fresh=True, lines=1.0)
SMALL = """program(1)
route("autograd")
x0 = leaf(f32[4, 3], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[4, 3], seed=2))
"""

if lines.recorded_share() == 0:
    pytest.skip("before Python 3.12 recording lines needs coverage, which is not installed", allow_module_level=True)


def test_lines_are_recorded_of_more_programs_where_they_guide_and_cost_little() -> None:
    assert lines.recorded_share() == (lines.WATCHED_SHARE if MONITORED else lines.TRACED_SHARE)


# Stands in for torch: what is recorded there is known to the line.
IR = """def lower(x):
    if x:
        return 1
    return 2
"""
BEGIN = """
import _thread, json, sys, threading
from fuzzer.coverage.lines import trace_this_thread, record_lines
import torch._inductor.ir as ir, torch.other as other

def told(function):
    with record_lines() as reached:
        function()
    return sorted(reached.lines)
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Run a script beside the stand-in; what it prints last, as JSON."""
    for name, text in (("__init__", ""), ("_inductor/__init__", ""), ("_inductor/ir", IR), ("other", IR)):
        path = tmp_path / "torch" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def run(script: str) -> Any:
        # coverage.py is where torch is; the stand-in comes first
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        done = subprocess.run([sys.executable, "-c", BEGIN + script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return json.loads(done.stdout)

    return run


def test_a_line_counts_for_the_first_that_reaches_it(run: Any) -> None:
    found = run("print(json.dumps([told(lambda: ir.lower(x)) for x in (1, 1, 0)]))")
    assert found == [[["_inductor/ir.py", 2], ["_inductor/ir.py", 3]], [], [["_inductor/ir.py", 4]]]


def test_what_runs_between_two_recordings_counts_when_it_runs_in_one(run: Any) -> None:
    found = run("told(lambda: None); ir.lower(1); print(json.dumps(told(lambda: ir.lower(1))))")
    assert found == [["_inductor/ir.py", 2], ["_inductor/ir.py", 3]]


def test_a_worker_tells_everything_to_the_next_campaign(run: Any) -> None:
    found = run(
        "def lines(campaign):\n    with record_lines(campaign) as reached:\n        ir.lower(1)\n"
        "    return len(reached.lines)\n"
        "print(json.dumps([lines(name) for name in ('one', 'one', 'other', 'other', 'one')]))"
    )
    assert found == [2, 0, 2, 0, 2]


def test_only_existing_files_of_the_compiler_count(run: Any) -> None:
    made_up = "\n".join(f"exec(compile('x = 1', {path!r}, 'exec'))" for path in ("<eval_with_key>.1", "ir.py"))
    beside = "exec(compile('x = 1', ir.__file__.replace('ir.py', 'made_up.py'), 'exec'))"
    found = run(f"def step():\n    other.lower(1)\n    {made_up.replace(chr(10), chr(10) + '    ')}\n    {beside}\n"
                "print(json.dumps(told(step)))")  # fmt: skip
    assert found == []


def test_threads_that_python_did_not_start_are_seen(run: Any) -> None:
    """As autograd's, on which the backward is compiled on CUDA: threading knows nothing of it."""
    found = run(
        "done = threading.Event()\n"
        "def work():\n    trace_this_thread(); ir.lower(1); done.set()\n"
        "def step():\n    _thread.start_new_thread(work, ()); done.wait(10)\n"
        "print(json.dumps(told(step)))"
    )
    assert found == [["_inductor/ir.py", 2], ["_inductor/ir.py", 3]]


@pytest.mark.skipif(not MONITORED, reason="sys.monitoring came with Python 3.12")
def test_the_interpreter_is_not_asked_again_for_what_it_told(run: Any) -> None:
    found = run(
        "from fuzzer.coverage import lines\n"
        "told(lambda: ir.lower(1))\n"
        "asked, before = [], lines._monitor().line\n"
        "def line(code, number):\n    asked.append(code.co_filename); return before(code, number)\n"
        "sys.monitoring.register_callback(lines.TOOL, sys.monitoring.events.LINE, line)\n"
        "again = [told(lambda: ir.lower(1)) for _ in range(3)]\n"
        "print(json.dumps([again, [name for name in asked if name == ir.__file__]]))"
    )
    assert found == [[[], [], []], []]


@pytest.mark.skipif(MONITORED, reason="coverage.py traces before Python 3.12 only")
def test_nothing_is_traced_once_a_recording_has_ended(run: Any) -> None:
    traced = "[sys.gettrace() is None, threading.gettrace() is None]"
    assert (
        run(f"before = {traced}; told(lambda: ir.lower(1)); print(json.dumps([before, {traced}]))") == [[True] * 2] * 2
    )


def test_of_how_many_programs_lines_are_recorded_depends_on_their_numbers_alone() -> None:
    task = replace(INDUCTOR, lines=1 / 16)
    found = [program_task(task, n).lines for n in range(800)]
    assert set(found) == {0.0, 1.0}
    assert found == [program_task(task, n).lines for n in range(800)]
    assert 25 < sum(found) < 80
    assert {program_task(INDUCTOR, n).lines for n in range(50)} == {1.0}
    assert {program_task(replace(task, lines=0.0), n).lines for n in range(50)} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_compile_of_the_backward_is_seen_and_nothing_where_nobody_asks(device: str) -> None:
    import torch
    from torch._inductor import lowering

    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    task = replace(INDUCTOR, place=Place(Subject("eager", device), Subject("inductor", device)))
    with Pool(1, [device]) as pool:
        asked = (task, replace(task, lines=0.0), task)
        first, without, again = (pool.result(pool.submit(report_words, t, SMALL), t) for t in asked)
    found = {tuple(word.split()) for word in first.files["source"].splitlines()}
    assert len(found) > 10_000
    # the gradient of relu alone holds a where; on CUDA it is compiled on autograd's own thread
    body, start = inspect.getsourcelines(lowering.where)
    assert any(("_inductor/lowering.py", str(n)) in found for n in range(start + 1, start + len(body)))
    assert "source" not in without.files
    assert len(again.files["source"].splitlines()) < len(found) / 20
    assert len(first.features["source"]) == len(found)
