"""The progress of a campaign, read back."""

from __future__ import annotations

from pathlib import Path

from fuzzer.campaign.told.logs import (
    Progress,
)
from fuzzer.campaign.told.totals import Totals
from fuzzer.ledger.progress import PROGRESS_FILE, read_pairs, read_points


def test_a_line_that_was_cut_off_is_left_out_and_no_folder_is_no_progress(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.note(10, Totals(), {})
    with (tmp_path / PROGRESS_FILE).open("a") as out:
        out.write('{"seconds": 2')
    assert read_points(tmp_path) == progress.points
    assert read_points(tmp_path / "none") == []
    assert not read_pairs(tmp_path / "none")
