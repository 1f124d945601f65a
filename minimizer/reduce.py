"""The driver: proposals from REDUCERS, one gate, batches over workers, the first success in order, to a fixpoint.

The result does not depend on the batch size or on the speed of workers: answers are used in the order of the
proposals, and an answer that came early (beyond the first success of its batch) waits until its turn comes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuzzer.infer import IllTyped
from fuzzer.program import Program, TensorType, canonical
from fuzzer.text import show
from minimizer.order import Cost, cost
from minimizer.passes import REDUCERS, Reducer
from minimizer.rewrite import Types, retype
from minimizer.same import Answer

Infer = Callable[[Program], Mapping[str, TensorType]]
IsSame = Callable[[Sequence[Program]], Iterable[Answer]]
Note = Callable[[str], None]

# The six-node programs of tests/quality/test_shrink.py take 8 to 47 queries, proof included. More than ten times the
# most of them is a bound on time, not on quality: at 2 s a query over 8 workers it is about 3 minutes.
BUDGET = 600


@dataclass(frozen=True)
class Reduction:
    """The result of `reduce`.

    program   the simplest program found that is the same finding; canonical.
    queries   answers used. Answers that came early and were not needed are not counted.
    history   (reducer, cost) of every accepted step, in order; costs fall strictly.
    others    programs that showed another finding, in the order in which they did.
    minimal   whether no proposal of any reducer is both simpler and the same finding.
    why       "fixpoint", "budget" or "deadline": what ended the search.
    """

    program: Program
    queries: int
    history: tuple[tuple[str, Cost], ...]
    others: tuple[Program, ...]
    minimal: bool
    why: str


class _Stop(Exception):
    """The search ends here; the message is the Reduction's `why`."""


def reduce(
    program: Program,
    is_same: IsSame,
    *,
    infer: Infer,
    batch: int = 1,
    budget: int = BUDGET,
    expired: Callable[[], bool] = lambda: False,
    note: Note | None = None,
    reducers: Sequence[Reducer] = REDUCERS,
) -> Reduction:
    """The simplest program that reducers reach from this one and that is the same finding.

    `is_same` answers for up to `batch` programs at once, in order; the program itself is taken to be the finding and
    not asked. `infer` types a program or raises IllTyped; a program that is ill-typed itself makes this raise. At most
    `budget` answers are used. `expired` is asked before each batch; True ends the search with what has been found.
    """
    search = _Search(program, is_same, infer, batch, budget, expired, note or (lambda line: None))
    why = search.run(reducers)
    return Reduction(
        search.program, search.queries, tuple(search.history), tuple(search.others), why == "fixpoint", why
    )


def gate(candidate: Program, than: Cost, infer: Infer) -> tuple[Program, Types] | None:
    """The candidate with canonical names and fitting cotangents, and its types: if it types and costs less `than`."""
    named = canonical(candidate)
    try:
        types = infer(named)
    except IllTyped:
        return None
    fitting = retype(named, types)
    return (fitting, types) if cost(fitting) < than else None


class _Search:
    """What has been found, tried and answered so far."""

    def __init__(
        self,
        program: Program,
        is_same: IsSame,
        infer: Infer,
        batch: int,
        budget: int,
        expired: Callable[[], bool],
        note: Note,
    ) -> None:
        self.program = canonical(program)
        self.types: Types = infer(self.program)
        self.is_same, self.infer, self.note = is_same, infer, note
        self.batch, self.budget, self.expired = max(batch, 1), budget, expired
        self.queries = 0
        self.history: list[tuple[str, Cost]] = []
        self.others: list[Program] = []
        self.refused: set[str] = set()  # texts as proposed that the gate will never let through
        self.tried: set[str] = {show(self.program)}
        self.early: dict[str, Answer] = {}

    def run(self, reducers: Sequence[Reducer]) -> str:
        """Reducers in a circle, until all of them in a row have nothing left to propose."""
        idle = 0
        try:
            for reducer in itertools.cycle(reducers):
                idle = 0 if self.exhaust(reducer) else idle + 1
                if idle >= len(reducers):
                    break
        except _Stop as stop:
            return str(stop)
        return "fixpoint"

    def exhaust(self, reducer: Reducer) -> bool:
        """Apply one reducer until it fails; whether it ever succeeded.

        After a success it goes on at the same place in its list: what failed on the larger program mostly fails on
        this one too, and gets its turn in the next round.
        """
        before, place = self.program, 0
        while (success := self.step(reducer, place)) is not None:
            place = success
            self.history.append((reducer.__name__, cost(self.program)))
            self.note(f"{reducer.__name__}: {len(self.program.nodes)} nodes, {self.queries} queries")
        return self.program is not before

    def step(self, reducer: Reducer, place: int) -> int | None:
        """Follow the first proposal, from this place on, that is the same finding. Its place, or None."""
        found = self.candidates(reducer, place)
        while chunk := list(itertools.islice(found, min(self.batch, self.budget - self.queries) or 1)):
            if self.queries >= self.budget:
                raise _Stop("budget")
            answers = self.ask([show(candidate) for _, candidate, _ in chunk], [c for _, c, _ in chunk])
            for (at, candidate, types), answer in zip(chunk, answers, strict=True):
                self.tried.add(show(candidate))
                self.queries += 1
                if answer is Answer.SAME:
                    self.program, self.types = candidate, types
                    return at
        return None

    def candidates(self, reducer: Reducer, place: int) -> Iterator[tuple[int, Program, Types]]:
        """The reducer's proposals that pass the gate and were not tried, each with its place in the list."""
        than, waiting = cost(self.program), set[str]()
        for at, proposal in itertools.islice(enumerate(reducer(self.program, self.types)), place, None):
            raw = show(canonical(proposal))
            passed = None if raw in self.refused else gate(proposal, than, self.infer)
            text = "" if passed is None else show(passed[0])
            if passed is None or text in self.tried:
                self.refused.add(raw)
            elif text not in waiting:
                waiting.add(text)
                yield (at, *passed)

    def ask(self, texts: Sequence[str], programs: Sequence[Program]) -> list[Answer]:
        """The answers for these programs, in order; those that came early are not asked again."""
        if self.expired():
            raise _Stop("deadline")
        new = [(text, p) for text, p in zip(texts, programs, strict=True) if text not in self.early]
        answers = self.is_same([p for _, p in new]) if new else []
        for (text, program), answer in zip(new, answers, strict=True):
            self.early[text] = answer
            if answer is Answer.OTHER:
                self.others.append(program)
        return [self.early[text] for text in texts]
