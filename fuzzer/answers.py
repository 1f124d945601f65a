"""What candidates show, and the minimizer put to work on the pool: between the library and the workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from fuzzer.diagnose import examine_all
from fuzzer.execution import worker
from fuzzer.execution.messages import Report
from fuzzer.execution.pool import Pool
from fuzzer.execution.worker import Task, examine
from fuzzer.program import Program, Recipe
from fuzzer.text import show
from fuzzer.verdict import FINDINGS, Verdict
from minimizer.reduce import Reduction, reduce
from minimizer.same import DETERMINISTIC, Sameness, Shown, checker, margin

MOST_ANSWERS = 20_000  # kept, at about a kilobyte each


class Answers:
    """What candidates showed, asked of the pool and kept by text: suspects of one fault shrink through the same ones.

    batch     candidates run at once; all workers' without it.
    examine   the worker's function that runs a candidate.
    final     whether verdicts must survive the rounding model's final look, which takes eight times the replicas.

    A run that nobody waits for any more is not stopped, since that would cost its worker; what it showed is kept for
    when it is asked for again. Lanes may share this.
    """

    def __init__(
        self,
        pool: Pool,
        task: Task,
        batch: int | None = None,
        examine: Callable[[Task, str], Report] = examine,
        final: bool = False,
    ):
        self.pool, self.task, self.examine = pool, replace(task, fixed=(), final=final), examine
        self.batch = max(2, batch or pool.workers)
        self.kept: dict[str, Shown] = {}
        self.refused: set[str] = set()  # texts that eager refused: they were never compiled
        self.running: dict[str, Future[Report]] = {}
        self.lock = threading.Lock()

    def __call__(self, batch: Sequence[Program]) -> Iterator[Shown]:
        texts = [show(p) for p in batch]
        self.harvest()
        for text in sorted(set(texts), key=len):  # the shortest is compiled soonest, and may end the batch
            self.start(text)
        yield from map(self.answer, texts)

    def start(self, text: str) -> Future[Report] | None:
        """Run a candidate, unless what it shows is known or it is running already."""
        with self.lock:
            if text in self.kept:
                return None
            if text not in self.running:
                self.running[text] = self.pool.submit(self.examine, self.task, text)
            return self.running[text]

    def answer(self, text: str) -> Shown:
        """What a candidate shows, once it has run."""
        future = self.start(text)
        if future is not None:
            wait([future])
        with self.lock:
            if text in self.running:
                self._keep(text)
            found = self.kept.get(text)
        return self.answer(text) if found is None else found  # another lane's answer may have pushed it out

    def harvest(self) -> None:
        """Keep what runs showed that ended after their batch was decided: no Report waits for ever."""
        with self.lock:
            for text in [text for text, future in self.running.items() if future.done()]:
                self._keep(text)

    def _keep(self, text: str) -> None:
        if len(self.kept) >= MOST_ANSWERS:
            oldest = next(iter(self.kept))
            del self.kept[oldest]
            self.refused.discard(oldest)
        report = self.pool.result(self.running.pop(text), self.task)
        self.kept[text] = shown(report)
        if report.rejected:
            self.refused.add(text)

    def anew(self, batch: Sequence[Program]) -> list[Shown]:
        """Every program run once more, whatever it showed before: for what does not show in every run."""
        return [shown(report) for report in examine_all(self.pool, [(self.task, show(p)) for p in batch])]

    def record(self, program: Program) -> dict[str, Recipe]:
        """What the program's values hold in eager."""
        task = self.task
        return self.pool.result(self.pool.submit(worker.record, task, show(program)), task).recorded


def shown(report: Report) -> Shown:
    """The signatures of a report with their errors. A class that is no finding's is no reason to look further."""
    return {v.signature: v.error for v in report.verdicts if v.signature.verdict in FINDINGS}


def minimize(
    program: Program,
    verdict: Verdict,
    answers: Answers,
    how: Sameness = DETERMINISTIC,
    expired: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] = lambda line: None,
) -> Reduction:
    """Shrink a program while it clearly shows the verdict's signature; a batch of candidates at once."""
    run = answers if how.n == 1 else answers.anew
    is_same = checker(verdict.signature, run, how, least=margin(verdict.error))
    return reduce(program, is_same, answers.batch, record=answers.record, expired=expired, note=note)
