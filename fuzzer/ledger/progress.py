"""How a campaign went on, read back: its moments, and the pairs of operations that its programs held.

progress.jsonl   a line (`Point`) from time to time
pairs.json       "MAKER > READER" -> in how many programs
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
    """What was done by a moment of a campaign.

    seconds    since it began.  programs   that ran.
    new        new findings, by class.  features   that were seen, by family.
    """

    seconds: float
    programs: int
    new: Mapping[str, int]
    features: Mapping[str, int]


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
