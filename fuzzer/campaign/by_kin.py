"""Campaigns that carry faults to their kin: programs with one op replaced by a like op, in each dtype and by each
route."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import chain, zip_longest
from typing import Any

from fuzzer.campaign.schedule import WithoutFeedback, submit_numbers
from fuzzer.generation.kin import Kin, kin_of
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool


class ByKin(WithoutFeedback):
    """The kin of these programs, all of it: program n is the n-th."""

    def __init__(self, kin: Sequence[Kin]):
        self.kin, self.ran, self.refused = kin, 0, 0

    def submit(self, pool: Pool, task: Task, *numbers: int) -> Future[Any]:
        return submit_numbers(pool, task, numbers, {number: self.kin[number] for number in numbers})

    def learn(self, n: int, report: Report) -> None:
        self.ran += not report.rejected
        self.refused += bool(report.rejected)

    def progress(self) -> str:
        return f"{self.ran} kin ran and {self.refused} were refused, of {len(self.kin)}"


def in_turns(texts: Sequence[str]) -> list[Kin]:
    """The kin of these programs, each program in turn: first what has its parent's dtype and route. Raises
    ParseError."""
    kin = [list(kin_of(text)) for text in texts]
    plain = [[each for each in own if not (each.dtype or each.route)] for own in kin]
    changed = [[each for each in own if each.dtype or each.route] for own in kin]
    rounds = chain.from_iterable((*zip_longest(*plain), *zip_longest(*changed)))
    return [each for each in rounds if each is not None]
