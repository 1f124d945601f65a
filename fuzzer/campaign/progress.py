"""How a campaign went on: what was done by when, and which pairs of operations its programs held.

progress.jsonl   a line (`Point`) from time to time
pairs.json       "MAKER > READER" -> in how many programs
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fuzzer.campaign.totals import Totals
from fuzzer.campaign.written import append_line
from fuzzer.language.pairs import pairs

PROGRESS_FILE, PAIRS_FILE = "progress.jsonl", "pairs.json"
_LEAST_SECONDS, _SHARE = 10.0, 0.01  # between two lines: a campaign of a day writes some 550
MOST_POINTS = 60  # that a campaign's row of the ledger holds: 6 KiB


@dataclass(frozen=True)
class Point:
    """What was done by a moment of a campaign.

    seconds    since it began.  programs   that ran.
    new        new findings, by class.  features   that were seen, by family.
    """

    seconds: float
    programs: int
    new: Mapping[str, int]
    features: Mapping[str, int]


class Progress:
    """The progress of a running campaign, written into its own folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.points: list[Point] = []
        self.pairs: Counter[tuple[str, str]] = Counter()

    def count(self, text: str) -> None:
        """Count a program that ran."""
        self.pairs.update(pairs(text))

    def note(self, seconds: float, totals: Totals, features: Mapping[str, int], last: bool = False) -> None:
        """Write a line where one is due, and with the last one the pairs."""
        told = self.points[-1].seconds if self.points else 0.0
        if last or seconds - told >= max(_LEAST_SECONDS, _SHARE * seconds):
            self.points.append(Point(round(seconds, 1), totals.programs, dict(totals.new), dict(features)))
            append_line(self.folder / PROGRESS_FILE, json.dumps(asdict(self.points[-1])))
        if last:
            counted = {f"{made} > {reads}": n for (made, reads), n in sorted(self.pairs.items())}
            (self.folder / PAIRS_FILE).write_text(json.dumps(counted))

    def rows(self) -> list[dict[str, Any]]:
        """At most MOST_POINTS of the points, the last among them, as plain values."""
        return [asdict(point) for point in thinned(self.points, MOST_POINTS)]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """So many of these at most, evenly, the last among them."""
    step = -(-len(points) // most) if points else 1
    return list(points[::-1][::step][::-1])


def read_points(folder: Path) -> list[Point]:
    """The points of a campaign's folder; a last line that was cut off is left out."""
    try:
        lines = (folder / PROGRESS_FILE).read_text().splitlines(keepends=True)
    except OSError:
        return []
    return [Point(**json.loads(line)) for line in lines if line.endswith("\n")]


def read_pairs(folder: Path) -> Counter[tuple[str, str]]:
    """In how many programs of a campaign's folder each pair was; empty where the campaign did not end."""
    try:
        counted = json.loads((folder / PAIRS_FILE).read_text())
    except OSError:
        return Counter()
    return Counter({(made, reads): n for key, n in counted.items() for made, reads in [key.split(" > ")]})
