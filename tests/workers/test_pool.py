"""The pool: however a worker ends, there is a Report, and the others go on."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzer.language.errors import NoMachine
from fuzzer.trial.tasks import examine
from fuzzer.workers import accelerator
from fuzzer.workers.accelerator import check_devices
from fuzzer.workers.messages import Report
from fuzzer.workers.pool import Pool, spent_by_thread, spent_seconds
from fuzzer.workers.start import FILE_BYTES
from tests.workers import worker_faults as faults
from tests.workers.asked import ROOT, TASK, ask

# how a worker ends, the phase it is in, and the verdict's signature
ENDS = [
    (faults.segfault, "backward", "worker_survives/crashes/backward/SIGSEGV"),
    (faults.segfault, "forward", "worker_survives/crashes/forward/SIGSEGV"),
    (faults.abort, "backward", "worker_survives/crashes/backward/SIGABRT"),
    (faults.leave, "forward", "worker_survives/crashes/forward/exit status 7"),
    pytest.param(faults.hang, "backward", "worker_survives/hangs/backward/deadline", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("function", "phase", "signature"), ENDS)
def test_the_end_of_a_worker_is_a_verdict_and_the_pool_goes_on(
    pool: Pool, function: Callable[..., Report], phase: str, signature: str
) -> None:
    deaths = pool.deaths
    told = ask(pool, function, phase)
    assert told.text == faults.TEXT
    assert [str(v.signature)[: len(signature)] for v in told.verdicts] == [signature]
    assert pool.deaths == deaths + 1
    assert ask(pool, faults.fine, "still here").stderr == "still here"


def test_a_worker_that_prints_for_ever_fills_no_disk(pool: Pool) -> None:
    assert ask(pool, faults.print_much, str(FILE_BYTES)).stderr == "written"
    assert ask(pool, faults.print_much, str(FILE_BYTES + 1)).stderr == "File too large"
    assert ask(pool, faults.print_much, "0").stderr == "written"


def test_a_task_may_have_a_deadline_of_its_own_and_costs_that(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        assert ask(pool, faults.fine, "warm").stderr == "warm"
        before, own, started = spent_seconds(), spent_by_thread(), time.monotonic()
        told = pool.result(pool.submit(faults.hang, TASK, "backward", seconds=1.0), TASK)
        assert [str(v.signature) for v in told.verdicts] == ["worker_survives/hangs/backward/deadline"]
        assert time.monotonic() - started < 30
        assert spent_seconds() - before == pytest.approx(1.0)
        assert spent_by_thread() - own == pytest.approx(1.0)
        others: list[float] = []
        thread = threading.Thread(target=lambda: others.append(spent_by_thread()))
        thread.start()
        thread.join()
        assert others == [0.0], "another thread took no Report"


@pytest.mark.parametrize("phase", ["reference judge", "begin", "judge"])
def test_a_worker_that_dies_outside_the_code_under_test_accuses_nobody(pool: Pool, phase: str) -> None:
    told = ask(pool, faults.leave, phase)
    assert told.verdict == "rejected"
    assert phase in told.rejected
    assert told.text == faults.TEXT


def test_a_worker_that_dies_before_a_program_was_drawn_names_the_seed(pool: Pool) -> None:
    told = ask(pool, faults.die_undrawn, "17")
    assert (told.text, told.verdict) == ("", "rejected")
    assert "program 17 of seed 1" in told.rejected


@pytest.mark.parametrize("function", [faults.fill_python_memory, faults.fill_torch_memory], ids=lambda f: f.__name__)
def test_exhausted_memory_is_a_report(pool: Pool, function: Callable[..., Report]) -> None:
    told = ask(pool, function, "judge")
    assert told.verdict == "rejected"
    assert "memory" in told.rejected
    assert told.text == faults.TEXT
    assert ask(pool, faults.fine, "still here").stderr == "still here"


def test_the_tail_of_stderr_comes_with_a_death(pool: Pool) -> None:
    assert "about to read address zero" in ask(pool, faults.segfault, "forward").stderr


def test_deaths_among_many_tasks_hit_only_their_own(tmp_path: Path) -> None:
    plan = [
        faults.fine,
        faults.segfault,
        faults.fine,
        faults.leave,
        faults.fine,
        faults.fine,
        faults.abort,
        faults.fine,
    ]
    with Pool(2, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        futures = [pool.submit(f, TASK, "forward") for f in plan]
        told = [pool.result(f, TASK) for f in futures]
    assert [bool(report.verdicts) for report in told] == [f is not faults.fine for f in plan]
    assert pool.deaths == 3


def test_an_abandoned_task_costs_its_worker_and_nothing_else(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=120, scratch=tmp_path) as pool:
        assert ask(pool, faults.fine, "warm").stderr == "warm"
        started = time.monotonic()
        pool.abandon([pool.submit(faults.hang, TASK, "backward")])
        assert ask(pool, faults.fine, "still here").stderr == "still here"
        assert time.monotonic() - started < 60
        assert not pool.owners


def test_a_program_is_run_and_judged_in_a_worker(pool: Pool) -> None:
    told = ask(pool, examine, faults.TEXT)
    assert (told.verdict, told.text) == ("agree", faults.TEXT)
    assert (told.detectable, told.elements) == (4, 4)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with Pool(2, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        made = Path(ask(pool, faults.litter, "kernel").stderr)
        assert made.is_relative_to(tmp_path)
        ask(pool, faults.abort, "forward")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_behind_after_an_exception(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Pool(1, ["cpu"], deadline=20, scratch=tmp_path) as pool:
            pool.submit(faults.hang, TASK, "forward")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_a_recycled_worker_takes_its_directory_with_it(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path, fresh=True) as pool:
        made = [Path(ask(pool, faults.litter, name).stderr) for name in "abc"]
        until = time.monotonic() + 10
        while made[0].parent.parent.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not made[0].parent.parent.exists()


@pytest.mark.slow
def test_the_directory_of_a_worker_that_is_killed_idle_is_removed_and_no_task_is_lost(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path) as pool:
        made = Path(ask(pool, faults.litter, "kernel").stderr)
        assert made.exists()
        os.kill(int(ask(pool, faults.tell, "pid").stderr), signal.SIGKILL)
        assert ask(pool, faults.fine, "again").stderr == "again"
        assert not made.exists()


def test_fresh_workers_run_one_task_each(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=20, scratch=tmp_path, fresh=True) as pool:
        assert len({ask(pool, faults.tell, "pid").stderr for _ in range(3)}) == 3


def test_workers_have_caches_of_their_own_and_one_thread(local_pool: Pool) -> None:
    seen = ast.literal_eval(ask(local_pool, faults.tell, "environment").stderr)
    for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR"):
        assert Path(seen[key]).is_relative_to(local_pool.scratch)
    assert ask(local_pool, faults.tell, "threads").stderr == "1"
    assert Path(ast.literal_eval(ask(local_pool, faults.tell, "temporary").stderr)).is_relative_to(local_pool.scratch)


INTERRUPTED = """
import os, signal
from tests.workers import worker_faults as faults
from fuzzer.workers.pool import Pool
from fuzzer.workers.messages import Task
if __name__ == "__main__":
    os.setpgrp()
    signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))
    with Pool(1, ["cpu"]) as pool:
        os.killpg(0, signal.SIGINT)  # the fork server imports now
        print(pool.result(pool.submit(faults.tell, Task(), "threads"), Task()).stderr)
"""


@pytest.mark.slow
def test_ctrl_c_is_ours_alone_also_while_the_fork_server_starts() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["heard", "1"], done.stderr
    assert "Traceback" not in done.stderr


def test_a_device_that_is_not_there_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    check_devices(["cpu"])
    monkeypatch.setattr(accelerator, "count_devices", lambda kind: 0)
    with pytest.raises(NoMachine, match="no CUDA device"):
        check_devices(["cpu", "cuda"])
    with pytest.raises(NoMachine, match="no XPU device: none is found, or this torch is built without XPU"):
        check_devices(["xpu"])
    monkeypatch.setattr(accelerator, "count_devices", lambda kind: 1)
    with pytest.raises(NoMachine, match="no device cuda:1: this machine has 1"):
        check_devices(["cuda:1"])


def test_what_is_behind_waits_for_all_else_and_the_pool_knows_that_it_is_engaged(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        assert not pool.engaged()
        first = pool.submit(faults.sleep, TASK, 0.5, behind=True)
        while not any(task for _, task, _ in pool.executor.at_work()):
            time.sleep(0.01)
        ended: list[str] = []
        for name, behind in (("exploring", True), ("triage", False), ("more triage", False)):
            future = pool.submit(faults.fine, TASK, name, behind=behind)
            future.add_done_callback(lambda _, name=name: ended.append(name))  # type: ignore[misc]
        assert pool.engaged()
        assert first.result() is not None
        while len(ended) < 3:
            time.sleep(0.01)
        assert ended == ["triage", "more triage", "exploring"]
        assert pool.engaged(), "another may follow"
        time.sleep(1.1)
        assert not pool.engaged()
