"""A ledger of many occurrences."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches.ledger import measure_ledger


def test_two_ledgers_of_some_occurrences_are_merged_once(tmp_path: Path) -> None:
    found = measure_ledger(400, tmp_path)
    assert found["merged_occurrences"] == 800
    assert not found["again_changes"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_100_000_occurrences_are_listed_in_two_seconds_and_merged_in_a_minute(tmp_path: Path) -> None:
    found = measure_ledger(100_000, tmp_path)
    assert max(found["findings"], found["faults"], found["search"], found["report"]) < 2
    assert max(found["merge"], found["merge_again"]) < 60
    assert not found["again_changes"]
    assert found["merged_occurrences"] == 200_000
