"""What a campaign can see of the running torch."""

from __future__ import annotations

from typing import Any

import pytest

from fuzzer.campaign.self_check import WITNESS, silent_families
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse, show
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool

INDUCTOR = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")), fresh=True)


@pytest.fixture(scope="module")
def pool() -> Any:
    with Pool(1, ["cpu"]) as made:
        yield made


@pytest.mark.slow
def test_every_family_sees_something_of_the_witness(pool: Pool) -> None:
    silent, report = silent_families(pool, INDUCTOR)
    assert (silent, report.verdict) == ([], "agree")
    assert show(parse(WITNESS)) == WITNESS
