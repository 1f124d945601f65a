"""The heartbeat: rows that say when, files that do not grow for ever, numbers for Prometheus."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from fuzzer.campaign.told.logs import (
    HEARTBEAT_FILE,
    MOST_POINTS,
    Heartbeat,
    Progress,
    RotatingLog,
    last_beat,
    prometheus,
    told,
)
from fuzzer.campaign.told.totals import Totals
from fuzzer.language.pairs import LEAF
from fuzzer.ledger.progress import Point, read_pairs, read_points
from tests.campaign.fakes import PROGRAM, TANH

ROW = {"seconds": 61.5, "programs": 12, "new": {"wrong": 2}, "suspects": {"raises": 3}, "paused": ""}


def test_the_last_whole_row_is_read_with_its_time_also_while_the_next_is_written(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path)
    assert heart.due()
    heart.beat(ROW)
    assert not heart.due()
    with (tmp_path / HEARTBEAT_FILE).open("a") as half:
        half.write('{"time": "20')
    row = last_beat(tmp_path)
    assert row is not None
    assert row["programs"] == 12
    assert abs((datetime.now(UTC) - datetime.fromisoformat(row["time"])).total_seconds()) < 60
    assert re.fullmatch(r"runs \(.*\): 12 programs, 2 new fault\(s\); suspects waiting: 3 raises", told(row))
    old = {"time": "2026-01-01T00:00:00+00:00"}
    assert told(row | old).startswith("hangs, or is stopped")
    assert told(row | old | {"process": {"host": "another machine"}}).startswith("was killed, or hangs")
    assert told(row | {"paused": "there is no g++"}).endswith("; paused: there is no g++")
    assert ": 12 programs, 2 new fault(s), 1 unconfirmed; suspects" in told(row | {"unconfirmed": ["wrong"]})
    assert told(row | {"ended": True}).startswith("does not run any more")
    assert last_beat(tmp_path / "none") is None


def test_a_campaign_whose_process_is_gone_was_killed_at_once(tmp_path: Path) -> None:
    heart, child = Heartbeat(tmp_path), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    heart.beat(ROW)
    row = last_beat(tmp_path)
    assert row is not None
    its = {"pid": child.pid, "began": psutil.Process(child.pid).create_time()}
    its = row | {"process": row["process"] | its}
    assert told(its).startswith("runs")
    another = row | {"process": row["process"] | {"began": row["process"]["began"] - 60}}
    assert told(another).startswith("was killed (")  # another process has its number
    child.kill()
    assert wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert told(its).startswith("was killed (")  # before anybody has asked how it ended
    child.wait()
    assert told(its).startswith("was killed (")


def wait_for(happened: Callable[[], bool]) -> bool:
    """Whether it happens within ten seconds."""
    until = time.monotonic() + 10
    while not happened() and time.monotonic() < until:
        time.sleep(0.01)
    return happened()


def test_a_log_keeps_two_files_and_no_more(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "log", most=100)
    for n in range(40):
        log.write({"n": n})
    assert {path.name for path in tmp_path.iterdir()} == {"log", "log.1"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 240


def test_prometheus_reads_every_line(tmp_path: Path) -> None:
    lines = list(prometheus(ROW | {"time": "2026-01-01T00:00:00+00:00"}, "c1"))
    sample = re.compile(r'backfuzz_[a-z_]+\{campaign="c1"(,class="[a-z-]+")?\} [-+.e\d]+')
    assert [line for line in lines if not line.startswith("# ") and not sample.fullmatch(line)] == []
    assert 'backfuzz_programs_total{campaign="c1"} 12' in lines
    assert 'backfuzz_new_faults_total{campaign="c1",class="wrong"} 2' in lines
    assert 'backfuzz_new_faults_total{campaign="c1",class="hangs"} 0' in lines, "its first rise is seen"
    assert 'backfuzz_paused{campaign="c1"} 0' in lines
    paused = prometheus(ROW | {"time": "2026-01-01T00:00:00+00:00", "paused": "there is no g++"}, "c1")
    assert 'backfuzz_paused{campaign="c1"} 1' in list(paused)
    assert 'backfuzz_heartbeat_timestamp_seconds{campaign="c1"} 1767225600' in lines


def test_lines_are_written_from_time_to_time_and_at_the_end_with_the_pairs(tmp_path: Path) -> None:
    progress, totals = Progress(tmp_path), Totals()
    for seconds in range(25):
        totals.drawn += 1
        progress.note(seconds, totals, {"edge": 2 * seconds})
    progress.count(PROGRAM)
    progress.count(TANH)
    assert not read_pairs(tmp_path)
    progress.note(25.5, totals, {"edge": 50}, last=True)
    found = read_points(tmp_path)
    assert found == progress.points
    assert [(point.seconds, point.programs, point.features) for point in found] == [
        (10, 11, {"edge": 20}), (20, 21, {"edge": 40}), (25.5, 25, {"edge": 50})]  # fmt: skip
    assert read_pairs(tmp_path) == {(LEAF, "relu"): 1, (LEAF, "tanh"): 1}


def test_a_long_campaign_writes_ever_more_rarely_and_its_row_holds_few(tmp_path: Path) -> None:
    progress, totals = Progress(tmp_path), Totals()
    for seconds in range(0, 24 * 3600, 5):
        progress.note(seconds, totals, {})
    assert 400 < len(progress.points) < 700
    rows = progress.rows()
    assert MOST_POINTS / 2 < len(rows) <= MOST_POINTS
    assert Point(**rows[-1]) == progress.points[-1]
