"""Who runs next: exploring and triage share the workers; their rules in a campaign are in test_loop and test_queue."""

from __future__ import annotations

import pytest

from fuzzer.campaign.turns import batches, had_its_share, in_flight, lanes


@pytest.mark.parametrize(
    ("suspects", "flat", "engaged", "most"),
    [(0, True, False, 10), (9, False, False, 10), (9, True, False, 4), (9, True, True, 4), (0, False, True, 7)],
)
def test_exploring_gives_way_to_triage_that_is_at_work_and_to_many_suspects_on_a_plateau(
    suspects: int, flat: bool, engaged: bool, most: int
) -> None:
    assert batches(8, suspects, lambda: flat, engaged) == most


def test_one_worker_is_all_triages_while_that_is_at_work() -> None:
    assert batches(1, 0, lambda: False, True) == 0
    assert [in_flight(n) for n in (1, 2, 8)] == [2, 3, 10]
    assert [lanes(n) for n in (1, 4, 8, 64)] == [1, 1, 2, 4]


def test_triage_has_a_quarter_of_the_cpu_and_a_minute_anyway() -> None:
    assert not had_its_share(59.0, 0.0, lambda: False)
    assert had_its_share(101.0, 300.0, lambda: False)
    assert not had_its_share(99.0, 300.0, lambda: False)
    assert not had_its_share(101.0, 300.0, lambda: True)
