"""What guidance costs: CPU seconds of each tier and family, beside what drawing, compiling and judging take.

The same programs run in three ways, each in a process of its own, one after the other, another way first each time:
without features; with those of trace and compile; with the compiler's lines too. What takes milliseconds does not show
in such differences, so the families of trace and compile are timed one by one. Lines slow the compiler itself: of them
the difference counts, times the share of programs of which a campaign records them. Differences are of the process
alone: the C++ compiler, a process of its own, takes as long with features as without, but never twice the same.
"""

from __future__ import annotations

import contextlib
import gc
import math
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzer.coverage.features import TRACE_WORDS, feature_ids
from fuzzer.coverage.lines import recorded_share
from fuzzer.coverage.structure import COMPILED_WORDS
from fuzzer.coverage.watch import watch_inductor
from fuzzer.generation.draft import Rejected
from fuzzer.guidance.candidates import CANDIDATES, CandidateSpec, record_candidate
from fuzzer.guidance.novelty import FeatureCounts
from fuzzer.guidance.parents import CountingCorpus
from fuzzer.judgement.trial import Trial
from fuzzer.trial.draw import MAX_REDRAWS, draw_program
from fuzzer.trial.exercise import as_compiled
from fuzzer.trial.pipeline import REFUSED, is_detectable, record_reference, report_trial
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.usage import cpu_seconds

WAYS = ("plain", "structure", "lines")
SHARED = ("graphs", "values", "written", "numbers")  # what several families need


@dataclass(frozen=True)
class TimedReport(Report):
    """A Report with CPU seconds: `drawing`, the `rest` and what of it is the process' `own`, a further `candidate`; and
    those of the feedback's parts."""

    cpu: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)


def run_ways(task: Task, what: tuple[int, str]) -> Report:
    """Program number n in one of WAYS, with what it cost."""
    index, way = what
    started = cpu_seconds()
    try:
        trial = _first_heard(task, index)
        drawn = cpu_seconds()
        gc.collect()  # or it would be a matter of chance who pays for it
        marks = cpu_seconds(), time.process_time()
        told, parts = _compiled(trial, task, way)
        rest, own = cpu_seconds() - marks[0], time.process_time() - marks[1]
    except (Rejected, *REFUSED) as error:
        return Report("", rejected=str(error))
    cpu = {"drawing": drawn - started, "rest": rest, "own": own}
    if way == "structure":
        others = [
            record_candidate(task, index, n, FeatureCounts(), CandidateSpec(), near=True).stats.seconds
            for n in range(1, CANDIDATES)
        ]
        cpu["candidate"] = statistics.mean(others)
    return TimedReport(**vars(told), cpu=cpu, parts=parts)


def _first_heard(task: Task, index: int) -> Trial:
    """The first drawing in whose gradients a fault can show, or the last. Raises what refuses a program."""
    for attempt in range(MAX_REDRAWS + 1):
        trial = record_reference(draw_program(task, index, attempt), task, journal())
        if is_detectable(trial, journal()):
            break
    return trial


def _compiled(trial: Trial, task: Task, way: str) -> tuple[Report, dict[str, float]]:
    """The Report of a trial that was recorded, and the seconds that each part of the feedback took."""
    if way == "plain":
        return report_trial(trial, task, journal()), {}
    if way == "lines":
        return report_trial(trial, replace(task, features=True, lines=1.0), journal()), {}
    with watch_inductor(trial.program.route.name, lambda: journal().phase_name) as watch:
        told = report_trial(trial, task, journal())
    spent = defaultdict[str, float](float, graphs=watch.seconds["graphs"], fused=watch.seconds["kernels"])
    with _clocked(spent, "cotangents"):
        trace = as_compiled(trial)
    words = {}
    for family, words_of in TRACE_WORDS.items():
        with _clocked(spent, family):
            words[family] = frozenset(words_of(trace))
    with _clocked(spent, "values"):
        _ = [one.values for one in watch.graphs]
    with _clocked(spent, "written"):
        _ = [one.kernel_texts for one in watch.graphs]
    for family, compiled_of in COMPILED_WORDS.items():
        with _clocked(spent, family):
            words[family] = frozenset(compiled_of(watch.graphs, watch.counted))
    with _clocked(spent, "numbers"):
        features = feature_ids(words)
    return replace(told, features=features), dict(spent)


@contextlib.contextmanager
def _clocked(spent: dict[str, float], what: str) -> Iterator[None]:
    """Add the CPU seconds of a `with` block."""
    started = time.process_time()
    yield
    spent[what] += time.process_time() - started


# ---------------------------------------------------------------- the measurement


def measure_feedback(task: Task, programs: int) -> dict[str, Any]:
    """Run `programs` programs in all ways; what each tier and family costs."""
    task = replace(task, final=False)
    rows = []
    with contextlib.ExitStack() as stack:
        pools = {way: stack.enter_context(Pool(1, [task.place.subject.device])) for way in WAYS}
        for index in range(programs):
            row = {}
            for turn in range(len(WAYS)):
                way = WAYS[(index + turn) % len(WAYS)]
                future = pools[way].submit(run_ways, task, (index, way))
                future.exception()  # waits
                row[way] = pools[way].result(future, task)
            rows.append(row)
    return feedback_summary(
        [row for row in rows if all(isinstance(report, TimedReport) for report in row.values())], recorded_share()
    )


def feedback_summary(rows: Sequence[dict[str, Any]], recorded: float) -> dict[str, Any]:
    """The figures of programs that ran in all ways. recorded: the share of programs of which lines are recorded."""
    base = _mean(row["plain"].cpu["drawing"] + row["plain"].cpu["rest"] for row in rows)
    parts = {name: _mean(row["structure"].parts.get(name, 0.0) for row in rows) for name in rows[0]["structure"].parts}
    candidates = (CANDIDATES - 1) * _mean(row["structure"].cpu["candidate"] for row in rows)
    trace = {name: parts[name] for name in ("cotangents", *TRACE_WORDS)}
    compile = {name: parts.get(name, 0.0) for name in (*COMPILED_WORDS, *SHARED)}
    lines, error = _difference(rows, "lines", "structure")
    tiers = {"trace": sum(trace.values()), "compile": sum(compile.values()), "lines": recorded * lines}
    tiers["campaign"] = learning([row["lines"] for row in rows])
    paired = {way: _difference(rows, way, "plain") for way in WAYS[1:]}
    return {
        "share": round(sum(tiers.values()) / base, 4),
        "share_with_candidates": round((sum(tiers.values()) + candidates) / base, 4),
        "shares": {tier: round(seconds / base, 4) for tier, seconds in {**tiers, "candidates": candidates}.items()},
        "families": {name: round(seconds / base, 5) for name, seconds in {**trace, **compile}.items()},
        "lines": {
            "recorded_share": recorded,
            "where_recorded": round(lines / base, 4),
            "error": round(error / base, 4),
        },
        "paired": {way: {"share": round(d / base, 4), "error": round(e / base, 4)} for way, (d, e) in paired.items()},
        "cpu_seconds_per_program": round(base, 3),
        "programs": len(rows),
        "python": platform.python_version(),
        "rows": [{way: _rounded(row[way].cpu) for way in WAYS} for row in rows],
    }


def learning(reports: Sequence[Report]) -> float:
    """CPU seconds a program that the campaign itself takes to learn, and to pack the counts that travel."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        corpus = CountingCorpus(Path(folder) / "corpus", {}).start()
        for report in reports:
            corpus.learn(report)
            corpus.seen.packed()
    return (time.process_time() - started) / max(len(reports), 1)


def _difference(rows: Sequence[dict[str, Any]], way: str, other: str) -> tuple[float, float]:
    """The mean of what a way takes more than another, and its standard error."""
    found = [row[way].cpu["own"] - row[other].cpu["own"] for row in rows]
    spread = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.inf
    return statistics.mean(found), spread


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(spent, 3) for name, spent in seconds.items()}


def _mean(values: Iterator[float]) -> float:
    return statistics.mean(values)
