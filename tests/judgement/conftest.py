"""What the tests of this folder share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fewer_replicas(fewer_replicas: None) -> None:
    """No judgement here hangs on the replicas of the final look; `benches.bench` is tested with all of them."""
