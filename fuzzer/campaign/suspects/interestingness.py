"""What candidates show, and the minimizer put to work on the pool: between the library and the workers.

Candidates are asked of the cheapest stage of the compiler that shows the verdict (`searches`); what is left in the end
is built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from fuzzer.judgement.verdict import FINDINGS, Verdict
from fuzzer.language.program import Program, Recipe
from fuzzer.language.text import show
from fuzzer.trial.tasks import examine, record_values
from fuzzer.trial.verify import ask, examine_all
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from minimizer.reduce import Reduction, reduce
from minimizer.same import DETERMINISTIC, Answer, Sameness, Shown, checker, margin

_MOST_KEPT = 20_000  # kept, at about two kilobytes each
# Where a hang is minimized, of a candidate: at least this, and so many times the longest that one took which ended.
# They get smaller; those that begin in a new worker, since one that hung was killed, take up to three times as long.
_LEAST_SECONDS, _TIMES = 10.0, 5.0


class CandidateCache:
    """What candidates showed, run on the pool and kept by the text that goes through its pipe: suspects of one fault
    shrink through the same candidates.

    batch     candidates run at once; all workers' without it.
    examine   the worker's function that runs a candidate.
    final     whether verdicts must survive the rounding model's final look, which takes eight times the replicas.
    hasty     whether a candidate is taken to hang after a few times what those took that ended.

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

    def at(self, stage: str) -> CandidateCache:
        """What candidates show at a stage of the compiler; it is asked of the same workers, and kept apart."""
        with self.lock:
            if stage not in self.stages:
                staged = replace(self.task, place=self.task.place.at(stage))
                self.stages[stage] = type(self)(self.pool, staged, self.batch, self.examine, self.task.final)
            return self.stages[stage]

    def asking(self, also: tuple[str, ...]) -> CandidateCache:
        """What candidates show where these oracles are asked; kept apart from where they are not."""
        if also == self.task.also:
            return self
        with self.lock:
            if also not in self.asked:
                asked = replace(self.task, also=also)
                self.asked[also] = type(self)(self.pool, asked, self.batch, self.examine, self.task.final)
            return self.asked[also]

    def in_haste(self) -> CandidateCache:
        """What candidates show where one that hangs costs a few times what a sound one takes, not the pool's deadline.
        Kept apart: what is only slow may seem to hang."""
        with self.lock:
            if self.hurried is None:
                self.hurried = type(self)(self.pool, self.task, self.batch, self.examine, self.task.final, hasty=True)
            return self.hurried

    def seconds(self) -> float | None:
        """That a candidate may take; None: the pool's deadline, also until one has ended."""
        return max(_LEAST_SECONDS, _TIMES * self.longest) if self.hasty and self.longest else None

    def __call__(self, batch: Sequence[Program]) -> Iterator[Shown]:
        texts = [show(p) for p in batch]
        self.collect()
        for text in sorted(set(texts), key=len):  # the shortest is compiled soonest, and may end the batch
            self.start(text)
        yield from map(self.result, texts)

    def start(self, text: str) -> Future[Report] | None:
        """Run a candidate, unless what it shows is known or it is running already."""
        with self.lock:
            if text in self.kept:
                return None
            if text not in self.running:
                self.running[text] = self.pool.submit(self.examine, self.task, text, seconds=self.seconds())
            return self.running[text]

    def result(self, text: str) -> Shown:
        """What a candidate shows, once it has run."""
        future = self.start(text)
        if future is not None:
            wait([future])
        with self.lock:
            if text in self.running:
                self._keep(text)
            found = self.kept.get(text)
        return self.result(text) if found is None else found  # another lane's answer may have pushed it out

    def verdicts_of(self, program: Program) -> tuple[Verdict, ...]:
        """The verdicts on a candidate, once it has run."""
        text = show(program)
        self.result(text)
        return self.verdicts[text]

    def collect(self) -> None:
        """Keep what runs showed that ended after their batch was decided: no Report waits for ever."""
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
        self.kept[text] = _finding_errors(report)
        self.verdicts[text] = report.verdicts
        if report.rejected:
            self.refused.add(text)
        if report.built:
            self.built.add(text)

    def rerun(self, batch: Sequence[Program]) -> list[Shown]:
        """Every program run once more, whatever it showed before: for what does not show in every run."""
        return [_finding_errors(report) for report in examine_all(self.pool, [(self.task, p) for p in batch])]

    def record(self, program: Program) -> dict[str, Recipe]:
        """What the program's values hold in eager."""
        task = self.task
        return self.pool.result(ask(self.pool, record_values, task, program), task).recorded


def _finding_errors(report: Report) -> Shown:
    """The signatures of a report with their errors. A class that is no finding's is no reason to look further."""
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
    """The caches to shrink a program with, cheapest first: of the first stage that shows the verdict as clearly as a
    candidate must, if one does without building; then the cache itself, for where the result shows nothing when built.
    Each in haste first where the verdict is a hang.
    """
    for found in _patient_searches(program, verdict, cache, how):
        if verdict.signature.verdict == "hangs":
            yield found.in_haste()
        yield found


def _patient_searches(
    program: Program, verdict: Verdict, cache: CandidateCache, how: Sameness
) -> Iterator[CandidateCache]:
    if how.n == 1 and cache.task.place.subject.backend == "inductor":
        from fuzzer.stages import STAGES  # it imports much of inductor

        stages, text = [cache.at(stage) for stage in STAGES], show(program)
        for staged in stages:  # all of them at once
            staged.start(text)
        for staged in stages:
            shown = staged.result(text)
            same = how.judge(verdict.signature, [shown], least=margin(verdict.error)) is Answer.SAME
            if same and text not in staged.built:
                yield staged
                break
    yield cache
