"""What a page tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.export.gather import moment, of_campaign, of_ledger
from fuzzer.language.errors import UsageError
from fuzzer.language.pairs import LEAF
from fuzzer.ledger.progress import PAIRS_FILE, PROGRESS_FILE
from fuzzer.ledger.store import open_store
from tests.export.reported import APART, RAISES, WRONG, filled


def test_a_ledger_tells_all_of_its_faults_the_most_urgent_first(tmp_path: Path) -> None:
    with filled(tmp_path / "findings.db") as store:
        found = of_ledger(store, tmp_path)
    assert [found.findings[fault.id].id for fault in found.open] == [WRONG.id, RAISES.id]
    assert [found.findings[fault.id].id for fault in found.apart] == [APART.id]
    assert [point.seconds for point in found.points["c1"]] == [10, 20, 40]
    assert found.at_fault["slice_scatter", "sum"] == 1
    assert found.exercised[LEAF, "relu"] == 1
    assert "differed" in found.counted


def test_a_campaigns_folder_tells_more_than_its_row(tmp_path: Path) -> None:
    folder = tmp_path / "c1"
    folder.mkdir()
    (folder / PROGRESS_FILE).write_text('{"seconds": 1, "programs": 1, "new": {}, "features": {}}\n')
    (folder / PAIRS_FILE).write_text('{"leaf > relu": 12}')
    with filled(tmp_path / "findings.db") as store:
        found = of_ledger(store, tmp_path)
        assert found.exercised == {(LEAF, "relu"): 12}
        for reference in (str(folder), "c1"):
            one = of_campaign(store, reference, tmp_path)
            assert ([fault.occurrences for fault in one.faults], [c.id for c in one.campaigns]) == ([1], ["c1"])
            assert one.findings[one.faults[0].id].id == WRONG.id
            assert (one.exercised, len(one.points["c1"])) == ({(LEAF, "relu"): 12}, 1)


def test_a_campaign_of_which_there_is_only_a_row_or_only_a_folder(tmp_path: Path) -> None:
    with filled(tmp_path / "findings.db") as store:
        found = of_campaign(store, "c1", tmp_path)
        assert len(found.points["c1"]) == 3
        assert found.exercised["slice_scatter", "sum"] == 1
        (tmp_path / "c2").mkdir()
        assert not of_campaign(store, "c2", tmp_path).faults
        with pytest.raises(UsageError, match="no campaign c3"):
            of_campaign(store, "c3", tmp_path)


def test_a_ledger_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "none.db") as store:
        found = of_ledger(store, tmp_path)
    assert not found.faults
    assert not found.campaigns


@pytest.mark.parametrize(
    ("text", "hour"), [("2026-01-01T10:00:00+02:00", 8), ("2026-01-01T10:00:00", 10), ("2026-01-01", 0), ("", None)]
)
def test_times_are_read_in_utc(text: str, hour: int | None) -> None:
    found = moment(text)
    assert (found.hour if found else None) == hour
