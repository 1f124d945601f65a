"""`scripts/bench minimize`: how small, how soon. Every candidate is compiled and judged, as in a campaign.

The faults are those of `planted`, each in a program of at least 20 nodes and made real in the worker; and those of the
programs in corpus/starts, which torch has itself or plants. The minimizer knows nothing of any of them. Side by side,
on the latter: PyTorch's own minifier (`minifier`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benches import minifier, planted
from fuzzer.campaign.suspects.interestingness import CandidateCache, minimize_with, searches
from fuzzer.export.script import repro
from fuzzer.judgement.verdict import FINDINGS, Finding, Verdict
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.trial.tasks import examine
from fuzzer.trial.verify import RUNS, matching
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from minimizer.same import DETERMINISTIC, Shown

_PROGRAMS = Path(__file__).parents[2] / "corpus" / "planted"


_PLACE = {"backend": "inductor", "against": "eager", "device": "cpu"}  # a GPU's reproducer moves its inputs


@dataclass(frozen=True)
class Row:
    """One reduction.

    fault      name of the program, in corpus/planted or corpus/starts.
    start      nodes of the starting program;  nodes  of the minimal one.
    extent     elements of its leaves;  largest  its longest dimension.
    lines      of the reproducer.
    queries    candidates run before the proof;  proof  those that showed that nothing simpler is left.
    compiles   those of `queries` that were compiled: eager refuses some.
    seconds    wall time before the proof;  proof_seconds  of the proof.
    reproduced of RUNS runs of the minimal program in fresh processes with caches off, those that showed it again.
    program    the minimal program.
    """

    fault: str
    start: int
    nodes: int
    extent: int
    largest: int
    lines: int
    queries: int
    proof: int
    compiles: int
    seconds: float
    proof_seconds: float
    minimal: bool
    reproduced: int
    program: str


def measure_minimizing(
    task: Task, workers: int, names: list[str], say: Callable[[str], None], minifier_seconds: float = 0.0
) -> dict[str, Any]:
    """Reduce every fault, or those named, on this many workers. Raises NoMachine.

    With `minifier_seconds`, PyTorch's minifier has that long for each of the faults that need nothing planted.
    """
    starts = {name: program for name, program in minifier.starts().items() if name in names or not names}
    planted_here = sorted(path.stem for path in _PROGRAMS.glob("*.prog") if path.stem in names or not names)
    with Pool(workers, [task.place.subject.device]) as pool:
        rows = list(_reductions(replace(task, final=False), pool, planted_here, starts, say))
    theirs = []
    if minifier_seconds and starts:
        for row in minifier.measure_minifier(starts, minifier_seconds, task.place.subject.device, workers):
            say(f"minifier: {row}")
            theirs.append(row)
    figures: dict[str, Any] = {"rows": [asdict(row) for row in rows], "faults": len(rows), "minifier": theirs}
    if rows:
        figures |= {
            "median_nodes": statistics.median(row.nodes for row in rows),
            "most_nodes": max(row.nodes for row in rows),
            "largest_dim": max(row.largest for row in rows),
            "median_lines": statistics.median(row.lines for row in rows),
            "median_compiles": statistics.median(row.compiles for row in rows),
            "most_compiles": max(row.compiles for row in rows),
            "median_queries": statistics.median(row.queries for row in rows),
            "median_proof": statistics.median(row.proof for row in rows),
            "median_seconds": round(statistics.median(row.seconds for row in rows), 1),
            "most_seconds": max(row.seconds for row in rows),
            "median_proof_seconds": round(statistics.median(row.proof_seconds for row in rows), 1),
            "minimal_share": sum(row.minimal for row in rows) / len(rows),
            "reproduced_share": sum(row.reproduced for row in rows) / (RUNS * len(rows)),
        }
    return figures


def _reductions(
    task: Task, pool: Pool, names: list[str], starts: Mapping[str, Program], say: Callable[[str], None]
) -> Iterator[Row]:
    cases = [(name, parse((_PROGRAMS / f"{name}.prog").read_text()), planted.examine_planted) for name in names]
    cases += [(name, program, examine) for name, program in starts.items()]
    for name, program, own_examine in cases:
        own = replace(task, canary=name) if own_examine is planted.examine_planted else task
        program = replace(program, comment=())
        report = pool.result(pool.submit(own_examine, own, show(program)), own)
        if report.verdicts and report.verdict in FINDINGS:
            row = _reduction(name, program, report.verdicts[0], own_examine, own, pool)
            say(_line(row))
            yield row
        else:
            say(f"{name}: not shown here ({report.verdict} {report.rejected})".rstrip())


class CountingCache(CandidateCache):
    """Answers that count the compiles behind those that were taken."""

    compiles = 0

    @property
    def all_compiles(self) -> int:
        """Those at stages too."""
        return self.compiles + sum(staged.compiles for staged in self.stages.values())  # type: ignore[attr-defined]

    def result(self, text: str) -> Shown:
        found = super().result(text)
        self.compiles += text not in self.refused
        return found


def _reduction(
    label: str, program: Program, verdict: Verdict, examine: Callable[[Task, str], Report], task: Task, pool: Pool
) -> Row:
    """The row of one fault, which shows as this verdict."""
    started = time.monotonic()
    cache = CountingCache(pool, task, examine=examine)
    steps = [(started, 0)]  # when the last one was taken, and compiles until then
    for looks in searches(program, verdict, cache, DETERMINISTIC):
        found = minimize_with(
            program, verdict, looks, note=lambda _: steps.append((time.monotonic(), cache.all_compiles))
        )
        ended, text = time.monotonic(), show(found.program)
        fresh = [pool.submit(examine, replace(task, fresh=True), text) for _ in range(RUNS)]
        reports = [pool.result(future, task) for future in fresh]
        if any(matching(report, verdict.signature) for report in reports):
            break
    seen = next((v.comparisons for report in reports if (v := matching(report, verdict.signature))), ())
    leaves = found.program.leaves
    return Row(
        label,
        len(program.nodes),
        len(found.program.nodes),
        sum(leaf.type.numel for leaf in leaves),
        max((size for leaf in leaves for size in leaf.shape), default=0),
        len(repro(Finding(verdict.signature, verdict.detail, text, text, _PLACE, 0, 0, seen)).splitlines()),
        found.queries - found.proof,
        found.proof,
        steps[-1][1],
        round(steps[-1][0] - started, 1),
        round(ended - steps[-1][0], 1),
        found.minimal,
        sum(matching(report, verdict.signature) is not None for report in reports),
        text,
    )


def _line(row: Row) -> str:
    size = f"{row.start} -> {row.nodes} nodes, {row.extent} elements, dims <= {row.largest}, {row.lines} lines"
    cost = f"{row.queries} + {row.proof} queries, {row.compiles} compiles, {row.seconds} + {row.proof_seconds} s"
    return f"{row.fault}: {size}; {cost}; {'minimal' if row.minimal else 'not minimal'}, {row.reproduced}/{RUNS}"
