"""The interestingness test of the minimizer: candidates run on the pool, and their verdicts are kept.

Candidates run at the cheapest stage of the compiler that reproduces the verdict (`searches`). The minimal program is
then compiled in full.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from fuzzer.judgement.verdict import FINDINGS, Verdict
from fuzzer.language.program import Program, Recipe
from fuzzer.language.text import show
from fuzzer.stages import STAGES
from fuzzer.trial.tasks import examine, record_values
from fuzzer.trial.verify import ask, examine_all
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from minimizer.reduce import Reduction, reduce
from minimizer.same import DETERMINISTIC, Answer, Sameness, Shown, checker, margin

# Verdicts that a cache keeps, at some two kilobytes each: those of a search or two. There is a cache for each stage and
# each set of oracles that somebody asked.
_MOST_KEPT = 512
# Where a hang is minimized, of a candidate: at least this, and so many times the longest that one took which ended.
# They get smaller; those that begin in a new worker, since one that hung was killed, take up to three times as long.
_LEAST_SECONDS, _TIMES = 10.0, 5.0


class CandidateCache:
    """The verdicts on candidates that ran on the pool, kept by the text that goes through its pipe: suspects of one
    fault shrink through the same candidates.

    batch     candidates that run at once; None: as many as there are workers.
    examine   the worker's function that runs a candidate.
    final     whether verdicts must survive the rounding model's final look, which takes eight times the replicas.
    hasty     whether a candidate counts as hanging after a few times the seconds of those that ended.

    A run that nobody waits for any more goes on, since stopping it would cost its worker. Its verdicts are kept for the
    next time. Several lanes may share a cache.
    """

    def __init__(
        self,
        pool: Pool,
        task: Task,
        batch: int | None = None,
        examine: Callable[[Task, str], Report] = examine,
        final: bool = False,
        hasty: bool = False,
    ):
        self.pool, self.task, self.examine = pool, replace(task, fixed=(), final=final), examine
        self.batch = max(2, batch or pool.workers)
        self.hasty, self.longest = hasty, 0.0  # seconds of a candidate that ended
        self.kept: dict[str, Shown] = {}
        self.verdicts: dict[str, tuple[Verdict, ...]] = {}  # behind what is kept
        self.refused: set[str] = set()  # texts that eager refused: they were never compiled
        self.built: set[str] = set()  # texts that a stage could not run: they were built
        self.running: dict[str, Future[Report]] = {}
        self.stages: dict[str, CandidateCache] = {}
        self.asked: dict[tuple[str, ...], CandidateCache] = {}
        self.hurried: CandidateCache | None = None
        self.lock = threading.Lock()

    def on(self, backend: str) -> CandidateCache:
        """The cache of another backend, such as a stage of the compiler: the same workers, other verdicts."""
        if backend == self.task.place.subject.backend:
            return self
        with self.lock:
            if backend not in self.stages:
                staged = replace(self.task, place=self.task.place.on(backend))
                self.stages[backend] = type(self)(self.pool, staged, self.batch, self.examine, self.task.final)
            return self.stages[backend]

    def asking(self, also: tuple[str, ...]) -> CandidateCache:
        """The cache of a task with these oracles in `also`; its verdicts are kept apart."""
        if also == self.task.also:
            return self
        with self.lock:
            if also not in self.asked:
                asked = replace(self.task, also=also)
                self.asked[also] = type(self)(self.pool, asked, self.batch, self.examine, self.task.final)
            return self.asked[also]

    def in_haste(self) -> CandidateCache:
        """The cache in which a candidate that hangs costs a few times the seconds of one that ends, not the pool's
        deadline. Its verdicts are kept apart, since a slow candidate may seem to hang."""
        with self.lock:
            if self.hurried is None:
                self.hurried = type(self)(self.pool, self.task, self.batch, self.examine, self.task.final, hasty=True)
            return self.hurried

    def seconds(self) -> float | None:
        """The seconds that a candidate may take; None: the pool's deadline, also until a candidate has ended."""
        return max(_LEAST_SECONDS, _TIMES * self.longest) if self.hasty and self.longest else None

    def __call__(self, batch: Sequence[Program]) -> Iterator[Shown]:
        texts = [show(p) for p in batch]
        self.collect()
        for text in sorted(set(texts), key=len):  # the shortest is compiled soonest, and may end the batch
            self.start(text)
        yield from map(self.result, texts)

    def start(self, text: str) -> Future[Report] | None:
        """Run a candidate, unless its verdicts are known or it runs already."""
        with self.lock:
            if text in self.kept:
                return None
            if text not in self.running:
                self.running[text] = self.pool.submit(self.examine, self.task, text, seconds=self.seconds())
            return self.running[text]

    def result(self, text: str) -> Shown:
        """The errors of a candidate by signature, once it has run."""
        return self._once_run(text)[0]

    def verdicts_of(self, program: Program) -> tuple[Verdict, ...]:
        """The verdicts on a candidate, once it has run."""
        return self._once_run(show(program))[1]

    def _once_run(self, text: str) -> tuple[Shown, tuple[Verdict, ...]]:
        while True:
            future = self.start(text)
            if future is not None:
                wait([future])
            with self.lock:
                if text in self.running:
                    self._keep(text)
                if text in self.kept:  # else another lane's answer pushed it out
                    return self.kept[text], self.verdicts[text]

    def collect(self) -> None:
        """Keep the verdicts of runs that ended after their batch was decided: no Report waits for ever."""
        with self.lock:
            for text in [text for text, future in self.running.items() if future.done()]:
                self._keep(text)

    def _keep(self, text: str) -> None:
        if len(self.kept) >= _MOST_KEPT:
            oldest = next(iter(self.kept))
            del self.kept[oldest], self.verdicts[oldest]
            self.refused.discard(oldest)
            self.built.discard(oldest)
        report = self.pool.result(self.running.pop(text), self.task)
        if "subject" in report.seconds:
            self.longest = max(self.longest, report.seconds["reference"] + report.seconds["subject"])
        self.kept[text] = finding_errors(report)
        self.verdicts[text] = report.verdicts
        if report.rejected:
            self.refused.add(text)
        if report.built:
            self.built.add(text)

    def rerun(self, batch: Sequence[Program]) -> list[Shown]:
        """Every program run once more, though its verdicts are known: for a fault that does not reproduce each time."""
        return [finding_errors(report) for report in examine_all(self.pool, [(self.task, p) for p in batch])]

    def record(self, program: Program) -> dict[str, Recipe]:
        """Recipes of the program's values in eager, by name."""
        task = self.task
        return self.pool.result(ask(self.pool, record_values, task, program), task).recorded


def finding_errors(report: Report) -> Shown:
    """The errors of a report by signature, of those classes that are findings."""
    return {v.signature: v.error for v in report.verdicts if v.signature.verdict in FINDINGS}


def minimize_with(
    program: Program,
    verdict: Verdict,
    cache: CandidateCache,
    how: Sameness = DETERMINISTIC,
    expired: Callable[[], bool] = lambda: False,
    note: Callable[[str], None] = lambda line: None,
) -> Reduction:
    """Shrink a program while it clearly shows the verdict's signature; a batch of candidates at once."""
    run = cache if how.n == 1 else cache.rerun
    is_same = checker(verdict.signature, run, how, least=margin(verdict.error))
    return reduce(program, is_same, cache.batch, record=cache.record, expired=expired, note=note)


def searches(program: Program, verdict: Verdict, cache: CandidateCache, how: Sameness) -> Iterator[CandidateCache]:
    """The caches with which to shrink a program, cheapest first: that of the first stage that reproduces the verdict as
    clearly as a candidate must, if a stage does; then the cache itself, in case the result agrees when it is
    compiled in full. For a hang, each comes in haste first."""
    for found in _patient_searches(program, verdict, cache, how):
        if verdict.signature.verdict == "hangs":
            yield found.in_haste()
        yield found


def _patient_searches(
    program: Program, verdict: Verdict, cache: CandidateCache, how: Sameness
) -> Iterator[CandidateCache]:
    if how.n == 1 and cache.task.place.subject.backend == "inductor":
        stages, text = [cache.on(f"inductor:{stage}") for stage in STAGES], show(program)
        for staged in stages:  # all of them at once
            staged.start(text)
        for staged in stages:
            shown = staged.result(text)
            same = how.judge(verdict.signature, [shown], least=margin(verdict.error)) is Answer.SAME
            if same and text not in staged.built:
                yield staged
                break
    yield cache
