"""The bench of slopes: a planted leak is flagged, what is flat or comes and goes is not; what a look sees."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from pathlib import Path

import pytest
from benches import slopes
from benches.slopes import (
    Held,
    Sample,
    Sampler,
    Slope,
    Spent,
    cpu_seconds,
    disk_bytes,
    extrapolated,
    growth,
    looking,
    mebibytes,
    open_files,
    shares,
    slope,
    slopes_of_campaign,
    stopped_early,
    windows,
)

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.queue import Triage
from fuzzer.workers.messages import Task

SECONDS = [7.5 * i for i in range(240)]


def noisy(level: float, rise: float, noise: float, seed: int) -> list[float]:
    """A series that rises by so much over its length."""
    rng = random.Random(seed)
    return [level + rise * i / len(SECONDS) + rng.gauss(0, noise) for i in range(len(SECONDS))]


@pytest.mark.parametrize("seed", range(8))
def test_a_leak_is_flagged_and_its_slope_told(seed: int) -> None:
    found = slope(SECONDS, noisy(300, 60, 15, seed))
    assert found.grows
    assert found.low < 60 * 3600 / SECONDS[-1] < found.high
    assert found.an_hour == pytest.approx(120, rel=0.2)


@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_is_not_flagged(seed: int) -> None:
    found = slope(SECONDS, noisy(300, 0, 30, seed))
    assert not found.grows
    assert found.low < 0 < found.high


def test_a_constant_is_not_flagged_nor_what_falls_nor_what_rises_by_little() -> None:
    assert slope(SECONDS, [12.0] * 240) == Slope(12.0, 0.0, 0.0, 0.0, False)
    assert not slope(SECONDS, noisy(300, -60, 15, 1)).grows
    assert not slope(SECONDS, noisy(300, 6, 0, 1)).grows


def test_few_samples_say_nothing() -> None:
    for series in ([], [1.0], [1.0, 2.0, 9.0]):
        found = slope(SECONDS[: len(series)], series)
        assert (found.low, found.high, found.grows) == (-math.inf, math.inf, False)


def test_a_look_sees_memory_files_disk_and_cpu_time(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path)
    sampler.look(0, 0.0)
    held = bytearray(os.urandom(64 * 2**20))
    own = tmp_path / "pool-x" / f"worker-{os.getpid()}"
    own.mkdir(parents=True)
    (own / "kernel.so").write_bytes(held[: 4 * 2**20])
    (tmp_path / "choices.jsonl").write_bytes(held[: 2**20])
    sampler.pool = own.parent
    (tmp_path / "pool-a" / f"worker-{os.getppid()}").mkdir(parents=True)  # of a later pool
    files = [(own / "kernel.so").open("rb") for _ in range(20)]
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    sampler.look(5, 12.5)
    for file in files:
        file.close()
    before, after = sampler.samples
    assert before.workers == ()
    assert after.main_mib - before.main_mib > 48
    assert after.main_files - before.main_files == 20
    (worker,) = after.workers  # this process plays the worker too
    assert (worker.mib, worker.files) == (pytest.approx(after.main_mib, rel=0.01), after.main_files)
    assert worker.disk_mib == pytest.approx(4, abs=0.1)
    assert (after.programs, after.cpu) == (5, 12.5)
    assert worker.age > 0.2
    assert len(held) == 64 * 2**20


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = 2**22 + 1  # beyond the largest number of a process
    assert (cpu_seconds(gone), mebibytes(gone), open_files(gone), disk_bytes(tmp_path / "none")) == (0, 0, 0, 0)


def campaign(leak: float, files: float) -> Sampler:
    """Two workers, replaced every 40 samples, that grow with age; each life starts higher by the leak."""
    sampler, rng, cpu = Sampler(Path("nowhere"), clock=lambda: 0.0), random.Random(3), 0.0
    for i, seconds in enumerate(SECONDS):
        cpu += 3 * 2.5 * rng.uniform(0.5, 1.5)
        lives = [((i + 20 * slot) // 40, (i + 20 * slot) % 40) for slot in range(2)]
        workers = tuple(
            Held(100 + 50 * slot + life, 8.0 * age, 300 + 4 * age + leak * life + rng.gauss(0, 3), 90, 2.0 * age)
            for slot, (life, age) in enumerate(lives)
        )
        sampler.samples.append(Sample(seconds, 3 * i, cpu, 300 + rng.gauss(0, 3), 40 + int(files * i), workers))
    return sampler


def test_what_grows_with_a_workers_age_and_goes_with_it_is_told_apart() -> None:
    sampler = campaign(leak=0, files=0)
    assert [name for name, found in sampler.slopes().items() if found.grows] == []
    assert sampler.slopes()["cpu_seconds_per_program"].level == pytest.approx(2.5, rel=0.1)
    assert growth(sampler.samples, "mib") == pytest.approx(1800, rel=0.05)  # 4 MiB in 8 CPU seconds
    assert growth(sampler.samples, "files") == 0
    assert growth(sampler.samples, "disk_mib") == pytest.approx(900)


def test_long_lives_say_how_workers_grow_and_short_ones_little() -> None:
    old = [Held(1, 10.0 * i, 300.0 + 10 * i, 16, 0.0) for i in range(40)]
    young = [Held(2 + n, 1.0 + i, 300.0 + 200 * i, 16, 0.0) for n in range(30) for i in range(3)]
    looks = [Sample(7.5 * i, i, 0, 0, 0, (held,)) for i, held in enumerate([*old, *young])]
    assert growth(looks, "mib") == pytest.approx(3600)


def test_a_campaign_that_leaks_is_told_and_by_what() -> None:
    for sampler, leak in ((campaign(20, 0), "worker_mib"), (campaign(0, 0.1), "main_files")):
        assert [name for name, found in sampler.slopes().items() if found.grows] == [leak]


def test_samples_are_taken_from_the_first_program_on_and_the_campaign_ends_in_time(tmp_path: Path) -> None:
    now = [100.0]
    sampler = Sampler(tmp_path, clock=lambda: now[0])
    told = Campaign(Plan(Task(), 1), lambda _: None)
    progress = looking(sampler, 24.0)
    now[0] = 500.0
    for _ in range(60):
        progress(told)
        assert not told.course.stopped
        now[0] += 0.4
    assert [sample.seconds for sample in sampler.samples][:3] == pytest.approx([0.0, 0.4, 0.8])
    now[0] += 0.4
    progress(told)
    assert told.course.stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_campaign_and_what_was_measured_is_told(number: int) -> None:
    told, before = Campaign(Plan(Task(), 1), lambda _: None), signal.getsignal(number)
    with stopped_early(told):
        signal.raise_signal(number)
        assert told.course.stopped
    told.course.end()
    assert signal.getsignal(number) == before


def test_what_a_series_would_be_after_fourteen_days_is_an_interval() -> None:
    low, high = extrapolated(slope(SECONDS, noisy(300, 60, 15, 1)))
    assert low < 300 + 120 * 336 < high
    assert extrapolated(Slope(12.0, 0.0, 0.0, 0.0, False)) == (12.0, 12.0)
    assert extrapolated(slope(SECONDS, noisy(300, -60, 0, 1)))[0] == 0.0, "nothing is less than none"


def test_the_rate_and_what_the_campaign_keeps_are_series_too(tmp_path: Path) -> None:
    sampler = campaign(leak=0, files=0)
    assert sampler.slopes()["programs_per_s"].level == pytest.approx(3 / 7.5, rel=0.01)
    (tmp_path / "pool-x" / "worker-1").mkdir(parents=True)
    (tmp_path / "corpus").mkdir()
    for folder in ("pool-x/worker-1", "corpus"):
        (tmp_path / folder / "a").write_bytes(b"x" * 2**20)
    looks = Sampler(tmp_path)
    looks.look(0, 0.0)
    assert looks.samples[0].kept_mib == pytest.approx(1, abs=0.1)


def test_the_shares_of_the_cpu_make_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Campaign(Plan(Task(), 1, db=tmp_path / "a.db", folder=tmp_path), lambda _: None)
    told.triage = Triage(told.plan, "c1", told.totals, lambda _: None)
    monkeypatch.setattr(told.triage, "cpu_seconds", lambda: 20.0)
    told.totals.phases["cpu"] = 100.0
    monkeypatch.setattr(slopes, "spent", lambda _: Spent(15.0, 135.0))
    monkeypatch.setattr(slopes, "cores", lambda: 2)
    found = shares(told, Spent(5.0, 5.0), 100.0)
    assert sum(found.values()) == pytest.approx(1.0)
    assert list(found.values()) == pytest.approx([0.5, 0.1, 0.05, 0.05, 0.3])


def test_a_window_holds_enough_programs() -> None:
    samples = [Sample(float(i), programs, 0, 0, 0, ()) for i, programs in enumerate((0, 1, 4, 5, 5, 9))]
    assert [(a.programs, b.programs) for a, b in windows(samples)] == [(0, 4), (4, 9)]


def test_the_time_with_a_full_corpus_has_slopes_of_its_own() -> None:
    samples = [Sample(s, 0, 0, 300 + min(s, 600) / 6, 40, (), full=s >= 600) for s in SECONDS]
    full = [sample for sample in samples if sample.full]
    assert slopes_of_campaign(samples)["main_mib"].high > 0
    assert slopes_of_campaign(full)["main_mib"] == Slope(400.0, 0.0, 0.0, 0.0, False)
