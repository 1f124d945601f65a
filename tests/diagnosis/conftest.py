"""Fixtures of diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzzer.diagnosis.case import Case
from fuzzer.workers.pool import Pool


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bisector: it opens a process of its own."""
    monkeypatch.setattr(Case, "bisect", lambda case: case.evidence.notes.setdefault("bisector", "not run: a test"))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Pool(2, ["cpu"], scratch=tmp_path_factory.mktemp("pool")) as made:
        yield made
