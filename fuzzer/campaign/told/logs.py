"""What a running campaign writes into its folder as JSON lines.

heartbeat.jsonl   how it is, once a minute, for whoever watches from outside; two files, each of MOST_BYTES: the older
                  is heartbeat.jsonl.1
progress.jsonl, pairs.json   how it went on (`ledger.progress`)
"""

from __future__ import annotations

import datetime
import json
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from fuzzer.campaign.told.totals import Totals
from fuzzer.campaign.told.written import append_line, now
from fuzzer.judgement.verdict import CLASSES, FINDINGS
from fuzzer.language.pairs import PairCounts
from fuzzer.ledger.progress import PAIRS_FILE, PROGRESS_FILE, Point

HEARTBEAT_FILE = "heartbeat.jsonl"
BEAT_SECONDS = 60.0
MOST_BYTES = 16 * 2**20  # a month of minutes
_STALE_SECONDS = 3 * BEAT_SECONDS


class RotatingLog:
    """Lines of JSON in a file; when it is full, it takes the place of the one before it, NAME.1."""

    def __init__(self, path: Path, most: int = MOST_BYTES):
        self.path, self.most = path, most

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row. Raises OSError."""
        if self.path.exists() and self.path.stat().st_size > self.most:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        append_line(self.path, json.dumps(row))


class Heartbeat:
    """Writes a row into a campaign's folder when a minute is over."""

    def __init__(self, folder: Path):
        self.log, self.last = RotatingLog(folder / HEARTBEAT_FILE), 0.0

    def due(self) -> bool:
        """Whether a minute is over since the last one."""
        return time.monotonic() - self.last >= BEAT_SECONDS or not self.last

    def beat(self, row: Mapping[str, Any]) -> None:
        """Write a row, with the time and this process."""
        self.last = time.monotonic()
        own = psutil.Process()
        process = {"host": socket.gethostname(), "pid": own.pid, "began": own.create_time()}
        self.log.write({"time": now(), "process": process} | dict(row))


def last_beat(folder: Path) -> dict[str, Any] | None:
    """The last whole row of a campaign's folder; None where there is none."""
    for name in (HEARTBEAT_FILE, f"{HEARTBEAT_FILE}.1"):
        try:
            lines = (folder / name).read_text().splitlines(keepends=True)
        except OSError:
            continue
        for line in reversed(lines):
            if line.endswith("\n"):
                row: dict[str, Any] = json.loads(line)
                return row
    return None


def _runs(process: Mapping[str, Any]) -> bool | None:
    """Whether the process of a row runs; None where another machine must tell."""
    if process.get("host") != socket.gethostname():
        return None
    try:
        found = psutil.Process(process["pid"])
        return abs(found.create_time() - process["began"]) < 1 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _life(row: Mapping[str, Any]) -> str:
    """Whether the campaign of a row lives, in words."""
    if row.get("ended"):
        return "does not run any more"
    runs = _runs(row.get("process", {}))
    if runs is False:
        return "was killed"
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(row["time"])
    if age.total_seconds() < _STALE_SECONDS:
        return "runs"
    return "hangs, or is stopped" if runs else "was killed, or hangs"


def told(row: Mapping[str, Any]) -> str:
    """A row in one line: whether the campaign lives, how far it is, what waits."""
    waiting = ", ".join(f"{count} {name}" for name, count in sorted(row.get("suspects", {}).items()))
    new = sum(row.get("new", {}).values())
    paused = f"; paused: {row['paused']}" if row.get("paused") else ""
    queue = f"; suspects waiting: {waiting}" if waiting else ""
    seen = f", {len(lines)} unconfirmed" if (lines := row.get("unconfirmed")) else ""
    return f"{_life(row)} ({row['time']}): {row['programs']} programs, {new} new fault(s){seen}{queue}{paused}"


def free_bytes(folder: Path) -> int:
    """Bytes that are free where this folder lies."""
    return shutil.disk_usage(folder).free


# Names, types and what they mean, of the numbers that a row has.
_METRICS = {
    "seconds": ("counter", "since the campaign began"),
    "programs": ("counter", "that ran"),
    "suspects_waiting": ("gauge", "for triage"),
    "workers": ("gauge", "processes that run"),
    "worker_deaths": ("counter", "and deadlines that were met"),
    "exploring_deaths": ("counter", "of these, those of drawn programs"),
    "triage_cpu_seconds": ("counter", "of programs that triage asked for"),
    "exploration_cpu_seconds": ("counter", "of programs that were drawn"),
    "memory_bytes": ("gauge", "resident, of all workers"),
    "disk_free_bytes": ("gauge", "where the campaign's folder lies"),
    "paused": ("gauge", "1 while it lacks room on the disk or a compiler"),
}


def prometheus(row: Mapping[str, Any], campaign: str) -> Iterator[str]:
    """A row of a campaign in Prometheus' text format, a line each. Every class has a sample, from 0 on, so that its
    first rise is seen."""
    label = f'campaign="{campaign}"'
    for name, (kind, told) in _METRICS.items():
        if name in row:
            full = f"backfuzz_{name}{'_total' if kind == 'counter' else ''}"
            value = row[name] if isinstance(row[name], int | float) else bool(row[name])
            yield f"# HELP {full} {told}"
            yield f"# TYPE {full} {kind}"
            yield f"{full}{{{label}}} {float(value):.15g}"
    for name, told, key, classes in (
        ("new_faults", "that the ledger did not know, by class", "new", FINDINGS),
        ("judged", "programs, by class", "classes", CLASSES),
    ):
        counts = Counter(row.get(key, {}))
        yield f"# HELP backfuzz_{name}_total {told}"
        yield f"# TYPE backfuzz_{name}_total counter"
        for verdict in classes:
            yield f'backfuzz_{name}_total{{{label},class="{verdict}"}} {counts[verdict]}'
    written = datetime.datetime.fromisoformat(row["time"]).timestamp()
    yield "# HELP backfuzz_heartbeat_timestamp_seconds when this was written"
    yield "# TYPE backfuzz_heartbeat_timestamp_seconds gauge"
    yield f"backfuzz_heartbeat_timestamp_seconds{{{label}}} {written:.0f}"


_LEAST_SECONDS, _SHARE = 10.0, 0.01  # between two lines: a campaign of a day writes some 550
MOST_POINTS = 60  # that a campaign's row of the ledger holds: 6 KiB


class Progress:
    """The progress of a running campaign, written into its own folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.points: list[Point] = []
        self.pairs = PairCounts()

    def count(self, text: str) -> None:
        """Count a program that ran."""
        self.pairs.add(text)

    def note(self, seconds: float, totals: Totals, features: Mapping[str, int], last: bool = False) -> None:
        """Write a line where one is due, and with the last one the pairs."""
        told = self.points[-1].seconds if self.points else 0.0
        if last or seconds - told >= max(_LEAST_SECONDS, _SHARE * seconds):
            self.points.append(Point(round(seconds, 1), totals.programs, dict(totals.new), dict(features)))
            append_line(self.folder / PROGRESS_FILE, json.dumps(asdict(self.points[-1])))
        if last:
            counted = {f"{made} > {reads}": n for (made, reads), n in self.pairs.counted().items()}
            (self.folder / PAIRS_FILE).write_text(json.dumps(counted))

    def rows(self) -> list[dict[str, Any]]:
        """At most MOST_POINTS of the points, the last among them, as plain values."""
        return [asdict(point) for point in thinned(self.points, MOST_POINTS)]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """So many of these at most, evenly, the last among them."""
    step = -(-len(points) // most) if points else 1
    return list(points[::-1][::step][::-1])
