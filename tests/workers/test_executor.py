"""The executor under injected faults: no task is lost, nobody else is disturbed, and programs flow again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fuzzer.judgement.verdict import CORRUPT_HEAP
from fuzzer.workers import executor as executors
from fuzzer.workers.executor import GONE, Executor, handled_signal, process_state
from fuzzer.workers.interface import Stopped
from fuzzer.workers.messages import Report
from fuzzer.workers.pool import Pool
from fuzzer.workers.server import server_pids
from tests.workers import worker_faults as faults
from tests.workers.asked import ROOT, TASK, ask

RECOVERS = 30.0  # seconds within which programs flow again; a third of it where nothing else runs (measurements.md)


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (faults.leave_quietly, "worker_survives/crashes/backward/exit status 0"),
        (faults.close_everything, "worker_survives/crashes/backward/closed its pipe"),
        (faults.flood, "worker_survives/crashes/backward/SIGABRT"),
    ],
    ids=["exit 0", "closed pipe", "flood of stderr"],
)
def test_a_worker_that_is_gone_is_noticed_at_once_and_told(
    pool: Pool, function: Callable[..., Report], signature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_END_SECONDS", 0.5)
    ask(pool, faults.fine, "warm")
    pool.deadline, before, started = 60.0, pool.deadline, time.monotonic()
    try:
        told = ask(pool, function, "backward")
    finally:
        pool.deadline = before
    assert [str(v.signature)[: len(signature)] for v in told.verdicts] == [signature]
    assert told.text == faults.TEXT
    assert len(told.stderr) <= 8000
    assert time.monotonic() - started < RECOVERS
    assert ask(pool, faults.fine, "still here").stderr == "still here"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells what a thread has blocked")
def test_a_worker_that_hangs_in_the_handler_of_a_fatal_signal_died_of_that(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_HANDLER_SECONDS", 1.5)
    before = ask(pool, faults.tell, "pid").stderr
    pool.deadline, deadline, started = 60.0, pool.deadline, time.monotonic()
    try:
        assert ask(pool, faults.sleep, 3.5).stderr == "slept", "a healthy worker is left alone"
        assert (ask(pool, faults.tell, "pid").stderr, handled_signal(int(before))) == (before, 0)
        told = ask(pool, faults.abort_in_a_handler, "backward")
    finally:
        pool.deadline = deadline
    assert [(v.signature.pattern, v.detail.split()[-4]) for v in told.verdicts] == [(CORRUPT_HEAP, "SIGABRT,")]
    assert time.monotonic() - started < RECOVERS


@pytest.mark.parametrize("function", [faults.raise_exit, faults.raise_interrupt])
def test_what_ends_a_process_ends_no_worker_where_it_is_raised(pool: Pool, function: Callable[..., Report]) -> None:
    before, deaths = ask(pool, faults.tell, "pid").stderr, pool.deaths
    told = ask(pool, function, "backward")
    assert told.verdict == "rejected"
    assert told.text == faults.TEXT
    assert (ask(pool, faults.tell, "pid").stderr, pool.deaths) == (before, deaths)


def test_a_worker_that_somebody_stops_goes_on(pool: Pool) -> None:
    started = time.monotonic()
    assert ask(pool, faults.stop_itself, "backward").stderr == "went on"
    assert time.monotonic() - started < 3.5


def test_a_program_whose_worker_is_killed_from_outside_runs_again_and_is_accused_the_second_time(
    pool: Pool, tmp_path: Path
) -> None:
    deaths = pool.deaths
    assert ask(pool, faults.killed_once, str(tmp_path / "once")).stderr == "the second time"
    assert pool.deaths == deaths
    told = ask(pool, faults.killed_always, str(tmp_path / "always"))
    assert [v.signature.pattern for v in told.verdicts] == ["SIGKILL"]
    assert (tmp_path / "always").read_text() == "xx"


@pytest.mark.slow
@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_fork_server_that_is_killed_or_stopped_costs_no_task(tmp_path: Path, signal_sent: int) -> None:
    with Pool(2, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        pids = {ask(pool, faults.tell, "pid").stderr for _ in range(4)}
        hangs = pool.submit(faults.sleep, TASK, 2.0)
        [server] = server_pids()
        time.sleep(0.2)
        os.kill(server, signal_sent)
        started = time.monotonic()
        os.kill(int(min(pids)), signal.SIGKILL)  # a new worker is needed
        assert [ask(pool, faults.fine, n).stderr for n in "ab"] == ["a", "b"]
        assert time.monotonic() - started < RECOVERS
        assert pool.result(hangs, TASK).stderr == "slept"
        assert pool.deaths == 0
        environment = ask(pool, faults.tell, "environment").stderr
        assert "'OMP_NUM_THREADS': '1'" in environment, "the new server's environment is as clean as the old one's"


@pytest.mark.slow
def test_workers_outlive_their_fork_server_and_another_one_starts_meanwhile(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        pid = ask(pool, faults.tell, "pid").stderr
        [server] = server_pids()
        os.kill(server, signal.SIGKILL)
        started = time.monotonic()
        assert ask(pool, faults.tell, "pid").stderr == pid
        assert time.monotonic() - started < 3.0, "nothing was imported anew"
        while server_pids() == [server] and time.monotonic() - started < RECOVERS:
            time.sleep(0.05)
        assert server_pids() != [server]
        told = ask(pool, faults.segfault, "forward")  # the first time nobody says how its worker ended
        assert [v.signature.pattern.split()[0] for v in told.verdicts] == ["SIGSEGV"]


def _ends_at_once(pool: Pool) -> BaseProcess:
    process = pool.context.Process(target=os._exit, args=(3,), daemon=True)
    process.start()
    return process


def test_a_worker_that_cannot_start_is_told_and_descriptors_do_not_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_BACK_OFF_SECONDS", 0.05)
    pool = Pool(1, ["cpu"], scratch=tmp_path)

    executor = Executor(1, lambda number, pipe: _ends_at_once(pool), 1, lambda pid: None)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Stopped, match="no worker can be started"):
        executor.schedule(faults.fine, (TASK, "x"), 60).result(60)
    executor.join()
    assert len(os.listdir("/proc/self/fd")) <= before
    pool.close()


def test_where_workers_no_longer_start_their_device_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_BACK_OFF_SECONDS", 0.05)
    lives: list[tuple[int, int]] = []

    def lived(number: int, tasks: int) -> str:
        lives.append((number, tasks))
        return "no device answers" if len(lives) == 3 else ""

    pool = Pool(1, ["cpu"], scratch=tmp_path)
    executor = Executor(1, lambda number, pipe: _ends_at_once(pool), 1, lambda pid: None, lived=lived)
    executor.started = True  # others did before
    with pytest.raises(Stopped, match="no device answers"):
        executor.schedule(faults.fine, (TASK, "x"), 60).result(60)
    executor.join()
    pool.close()
    assert lives == [(0, 0)] * 3


def test_workers_do_not_leak_descriptors(tmp_path: Path) -> None:
    def fewest() -> int:
        """Those open in the quietest moment of half a second: a worker that begins or leaves has some meanwhile."""
        counts = []
        for _ in range(50):
            counts.append(len(os.listdir("/proc/self/fd")))
            time.sleep(0.01)
        return min(counts)

    with Pool(1, ["cpu"], scratch=tmp_path, fresh=True) as pool:
        ask(pool, faults.fine, "x")
        at_first = fewest()
        for _ in range(8):
            ask(pool, faults.fine, "x")
        for thread in pool.executor.leaving:
            thread.join()
        assert fewest() <= at_first + 4, "of eight workers that were replaced, each would have left one at least"


def test_a_stopped_executor_fails_its_tasks_and_leaves_no_process(tmp_path: Path) -> None:
    pool = Pool(1, ["cpu"], scratch=tmp_path)
    pid = int(ask(pool, faults.tell, "pid").stderr)
    futures = [pool.submit(faults.hang, TASK, "forward") for _ in range(3)]
    pool.close(kill=True)
    assert [type(future.exception(5)) for future in futures] == [Stopped] * 3
    assert process_state(pid) == ""
    assert not list(tmp_path.iterdir())
    with pytest.raises(Stopped):
        pool.submit(faults.fine, TASK, "late")


HANGS = """
import sys
from pathlib import Path
from tests.workers import worker_faults as faults
from fuzzer.workers.pool import Pool
from fuzzer.workers.server import server_pids
from fuzzer.workers.messages import Task
if __name__ == "__main__":
    pool = Pool(1, ["cpu"], scratch=Path(sys.argv[1]))
    pool.submit(faults.hang_in_c, Task(), sys.argv[2]).result()
"""


@pytest.mark.slow
def test_nothing_outlives_a_parent_that_is_killed_and_the_next_removes_what_it_left(tmp_path: Path) -> None:
    """Neither a worker that hangs in native code, nor a compiler that it started, nor folders."""
    scratch, told = tmp_path / "own", tmp_path / "told"
    scratch.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, "-c", HANGS, str(scratch), str(told)], cwd=ROOT, env=environment)
    until = time.monotonic() + 120
    while not (told.exists() and told.read_text().count(" ")) and time.monotonic() < until:
        time.sleep(0.05)
    pids = list(map(int, told.read_text().split()))
    running.kill()
    running.wait()
    until = time.monotonic() + RECOVERS
    while any(process_state(pid) not in GONE for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert [process_state(pid) for pid in pids if process_state(pid) not in GONE] == []
    assert list(scratch.iterdir())
    with Pool(1, ["cpu"], scratch=scratch) as pool:
        assert list(scratch.iterdir()) == [pool.scratch]
