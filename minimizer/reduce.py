"""The driver: proposals from REDUCERS, one gate, batches over workers, the first success in order, to a fixpoint.

The result does not depend on the number or the speed of workers: a batch is asked at once, its answers are taken in
the order of the proposals, and none is taken after the first success.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.program import Program, Recipe, TensorType, canonical
from fuzzer.language.text import show
from minimizer.order import Cost, cost
from minimizer.passes import REDUCERS, Reducer
from minimizer.rewrite import Types, retype
from minimizer.same import Answer

Infer = Callable[[Program], Mapping[str, TensorType]]
Record = Callable[[Program], Mapping[str, Recipe]]
IsSame = Callable[[Sequence[Program]], Iterable[Answer]]
Note = Callable[[str], None]

# The six-node programs of tests/minimizer/test_shrink.py take 5 to 47 queries, proof included. More than ten times the
# most of them is a bound on time, not on quality: at 2 s a query over 8 workers it is about 3 minutes.
_BUDGET = 600


@dataclass(frozen=True)
class Reduction:
    """The result of `reduce`.

    program   the simplest program found that is the same finding; canonical.
    queries   answers taken.
    proof     those of them after the last accepted step, which showed that no proposal is left.
    history   (reducer, cost) of every accepted step, in order; costs fall strictly.
    others    programs that showed another finding, in order of discovery.
    minimal   whether no proposal of any reducer is both simpler and the same finding.
    why       the reason why the search ended: "fixpoint", "budget" or "deadline".
    """

    program: Program
    queries: int
    proof: int
    history: tuple[tuple[str, Cost], ...]
    others: tuple[Program, ...]
    minimal: bool
    why: str


class _Stop(Exception):
    """The search ends here; the message is the Reduction's `why`."""


def reduce(
    program: Program,
    is_same: IsSame,
    workers: int = 1,
    *,
    infer: Infer = infer,
    record: Record = lambda program: {},
    budget: int = _BUDGET,
    expired: Callable[[], bool] = lambda: False,
    note: Note = lambda line: None,
    reducers: Sequence[Reducer] = REDUCERS,
) -> Reduction:
    """The simplest program that reducers reach from this one and that is the same finding.

    is_same   answers for up to `workers` programs at once, in order. It may answer lazily: nothing is taken after the
              first SAME. The program itself counts as the finding without a query.
    infer     types a program, or raises IllTyped. Then nothing can be proposed, and the program stays as it is: torch
              may run what its meta kernels refuse.
    record    returns the recorded contents of a program's values, by name; names may be missing.
    budget    the largest number of answers to take.
    expired   called before each batch; True ends the search with the best program so far.
    note      called with a line for each accepted step.
    """
    try:
        search = _Search(program, is_same, workers, infer, record, budget, expired, note)
    except IllTyped as error:
        return Reduction(program, 0, 0, (), (), False, f"no types: {error}")
    return search.run(reducers)


def typed(candidate: Program, infer: Infer = infer) -> tuple[Program, Mapping[str, TensorType]] | None:
    """The candidate with canonical names and fitting cotangents, and its types; None where it is ill-typed."""
    named = canonical(candidate)
    try:
        types = infer(named)
    except IllTyped:
        return None
    return retype(named, types), types


def _gate(candidate: Program, than: Cost, infer: Infer) -> tuple[Program, Mapping[str, TensorType]] | None:
    """The candidate and its types, if it types and costs less `than`."""
    found = typed(candidate, infer)
    return found if found is not None and cost(found[0]) < than else None


class _Search:
    """The programs found and tried so far."""

    def __init__(
        self,
        program: Program,
        is_same: IsSame,
        workers: int,
        infer: Infer,
        record: Record,
        budget: int,
        expired: Callable[[], bool],
        note: Note,
    ) -> None:
        self.is_same, self.infer, self.record, self.note = is_same, infer, record, note
        self.workers, self.budget, self.expired = max(workers, 1), budget, expired
        self.queries = self.search_queries = 0
        self.history: list[tuple[str, Cost]] = []
        self.others: list[Program] = []
        self.refused: set[str] = set()  # texts of proposals that the gate will never let through
        self.tried: set[str] = set()
        first = canonical(program)
        self.move_to(first, infer(first))

    def move_to(self, program: Program, types: Mapping[str, TensorType]) -> None:
        self.program = program
        self.types = Types(types, lambda: self.record(program))
        self.tried.add(show(program))

    def run(self, reducers: Sequence[Reducer]) -> Reduction:
        try:
            why = self.circle(reducers)
        except _Stop as stop:
            why = str(stop)
        proof = self.queries - self.search_queries
        history, others = tuple(self.history), tuple(self.others)
        return Reduction(self.program, self.queries, proof, history, others, why == "fixpoint", why)

    def circle(self, reducers: Sequence[Reducer]) -> str:
        """Apply the reducers in a circle, until none of them has anything left to propose."""
        idle = 0
        for reducer in itertools.cycle(reducers):
            idle = 0 if self.exhaust(reducer) else idle + 1
            if idle >= len(reducers):
                break
        return "fixpoint"

    def exhaust(self, reducer: Reducer) -> bool:
        """Apply one reducer until it fails; returns whether it ever succeeded.

        After a success it goes on at the same place in its list: a proposal that failed on the larger program mostly
        fails on the smaller one too, and gets its turn in the next round.
        """
        before, place = self.program, 0
        while (success := self.step(reducer, place)) is not None:
            place = success
            self.search_queries = self.queries
            self.history.append((reducer.__name__, cost(self.program)))
            self.note(f"{reducer.__name__}: {len(self.program.nodes)} nodes, {self.queries} queries")
        return self.program is not before

    def step(self, reducer: Reducer, place: int) -> int | None:
        """Follow the first proposal, from this place on, that is the same finding. Returns its place, or None."""
        found = self.candidates(reducer, place)
        while chunk := list(itertools.islice(found, min(self.workers, self.budget - self.queries) or 1)):
            if self.queries >= self.budget:
                raise _Stop("budget")
            if self.expired():
                raise _Stop("deadline")
            answers = iter(self.is_same([candidate for _, candidate, _ in chunk]))
            for (at, candidate, types), answer in zip(chunk, answers, strict=False):
                self.tried.add(show(candidate))
                self.queries += 1
                if answer is Answer.OTHER:
                    self.others.append(candidate)
                elif answer is Answer.SAME:
                    self.move_to(candidate, types)
                    return at
        return None

    def candidates(self, reducer: Reducer, place: int) -> Iterator[tuple[int, Program, Mapping[str, TensorType]]]:
        """The reducer's proposals that pass the gate and are new, each with its place in the list."""
        than, waiting = cost(self.program), set[str]()
        for at, proposal in itertools.islice(enumerate(reducer(self.program, self.types)), place, None):
            raw = show(canonical(proposal))
            passed = None if raw in self.refused else _gate(proposal, than, self.infer)
            text = "" if passed is None else show(passed[0])
            if passed is None or text in self.tried:
                self.refused.add(raw)
            elif text not in waiting:
                waiting.add(text)
                yield (at, *passed)
