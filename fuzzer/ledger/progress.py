"""The progress of a campaign, read from its folder, and the pairs of operations in its programs.

progress.jsonl   a line (`Point`) from time to time
pairs.json       "MAKER > READER" -> number of programs that hold the pair
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRESS_FILE, PAIRS_FILE = "progress.jsonl", "pairs.json"


@dataclass(frozen=True)
class Point:
    """The counts of a campaign at one moment.

    seconds    since it began.  programs   that ran.
    new        new findings, by class.  features   seen so far, by family.
    """

    seconds: float
    programs: int
    new: Mapping[str, int]
    features: Mapping[str, int]


def read_points(folder: Path) -> list[Point]:
    """The points in a campaign's folder; a last line that was cut off is left out."""
    try:
        lines = (folder / PROGRESS_FILE).read_text().splitlines(keepends=True)
    except OSError:
        return []
    return [Point(**json.loads(line)) for line in lines if line.endswith("\n")]


def read_pairs(folder: Path) -> Counter[tuple[str, str]]:
    """How many programs of a campaign held each pair; empty where the campaign did not end."""
    try:
        counted = json.loads((folder / PAIRS_FILE).read_text())
    except OSError:
        return Counter()
    return Counter({(made, reads): n for key, n in counted.items() for made, reads in [key.split(" > ")]})
