"""A pool of one worker on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzzer.execution.pool import Pool
from tests.execution.asked import DEADLINE


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Pool(1, ["cpu"], deadline=DEADLINE, scratch=tmp_path_factory.mktemp("scratch")) as running:
        yield running
