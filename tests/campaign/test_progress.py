"""How a campaign went on, as its folder and its row tell it."""

from __future__ import annotations

from pathlib import Path

from fuzzer.campaign.progress import MOST_POINTS, PROGRESS_FILE, Point, Progress, read_pairs, read_points
from fuzzer.campaign.totals import Totals
from fuzzer.language.pairs import LEAF
from tests.campaign.fakes import PROGRAM, TANH


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


def test_a_line_that_was_cut_off_is_left_out_and_no_folder_is_no_progress(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.note(10, Totals(), {})
    with (tmp_path / PROGRESS_FILE).open("a") as out:
        out.write('{"seconds": 2')
    assert read_points(tmp_path) == progress.points
    assert read_points(tmp_path / "none") == []
    assert not read_pairs(tmp_path / "none")
