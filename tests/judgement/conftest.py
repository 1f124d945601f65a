"""What the tests of this folder share."""

from __future__ import annotations

import pytest

from fuzzer.judgement import comparison
from fuzzer.rounding.floors import SECOND_LOOK


@pytest.fixture(autouse=True)
def _fewer_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """No judgement here hangs on the replicas of the last look; `benches.bench` is tested with all of them."""
    monkeypatch.setattr(comparison, "FINAL_LOOK", SECOND_LOOK)
