"""Where do legal implementations lie? Run them against each other and keep how far each is from the reference.

The programs, workers and oracles are a campaign's (`_explore`). For every compared tensor it keeps the largest

    |value - r| / deviation

of its elements: r the float64 reference, the deviation that of the rounding model's first look, before any factor. The
first look dismisses what stays below FACTOR. Verdicts are final: what differs here survived every look.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fuzzer.judgement.comparison import as_float64, first_spread, within_storage
from fuzzer.judgement.trial import RAN, Trial
from fuzzer.language.text import ParseError, parse
from fuzzer.language.values import DTYPE_NAMES
from fuzzer.rounding.floors import kind
from fuzzer.trial import tasks as exploration
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_HALF = ("bf16", "f16")
BINS_PER_DECADE = 10
_LEAST, _MOST = 1e-6, 1e12  # ratios beyond share the outermost bins
_LARGEST = 10  # ratios of agreeing programs that are shown one by one


@dataclass(frozen=True)
class Ratio:
    """How far one tensor lies from its reference on one side of the trial, in deviations of the first look."""

    side: str
    name: str
    dtype: str
    ratio: float


@dataclass(frozen=True)
class Measured(Report):
    """A Report with the ratios of its tensors, and whether the first look was not enough."""

    ratios: tuple[Ratio, ...] = ()
    beyond: bool = False


# ---------------------------------------------------------------- in the worker


def _explore(task: Task, index: int) -> Report:
    """The campaign's `_explore`, with the ratios."""
    return exploration.explore(task, index, measured)


def _examine(task: Task, text: str) -> Report:
    """The Report of this program, with the ratios. Raises ParseError."""
    return report_program(parse(text), task, journal(), on_judged=measured)


def measured(report: Report, trial: Trial) -> Report:
    """The Report with what the first look saw."""
    with torch.no_grad():
        found = tuple(_ratios(trial)) if trial.subject.outcome == RAN else ()
    return Measured(**vars(report), ratios=found, beyond=beyond_first_look(trial))


def beyond_first_look(trial: Trial) -> bool:
    """Whether replicas were run beyond those of the first look."""
    return sum(isinstance(key, tuple) and key[0] == "spread" for key in trial.known) > 1


def _ratios(trial: Trial) -> Iterator[Ratio]:
    """Of every floating tensor that both sides have. Raises Unreplayable."""
    spread = first_spread(trial)
    deviations = spread.floor(1.0)
    sides = {"reference": trial.named(trial.reference), "subject": trial.named(trial.subject)}
    for at, (name, ref) in enumerate(trial.targets.items()):
        dtype = ref.dtype.to_real()
        both = [tensors[name] for tensors in sides.values()]
        if not dtype.is_floating_point or any(t is None or not within_storage(t) for t in both):
            continue
        for side, tensor in zip(sides, both, strict=True):
            r = spread.reference[at].double()
            value = as_float64(tensor, r)
            if value.shape == r.shape:
                yield Ratio(side, name, DTYPE_NAMES[dtype], largest(value, r, deviations[at]))


def largest(value: torch.Tensor, reference: torch.Tensor, deviation: torch.Tensor) -> float:
    """The largest ratio of a tensor's elements; infinite for an error where no rounding is legal, 0 for none at all."""
    off = (value - reference).abs()
    both = torch.isfinite(value) & torch.isfinite(reference)
    alike = torch.where(kind(value) == kind(reference), 0.0, math.inf)
    found = torch.where(both, torch.where(off == 0, 0.0, off / deviation), alike)
    found = torch.where(torch.isinf(deviation), 0.0, found)  # replicas disagree about being finite
    return float(found.max()) if found.numel() else 0.0


# ---------------------------------------------------------------- the loop


def stream(
    pool: Pool, function: Callable[[Task, Any], Report], task: Task, given: Iterable[Any], minutes: float | None
) -> list[tuple[Any, Report]]:
    """(what was given, its Report), in the order given, until there is no more or the time is up."""
    ends = math.inf if minutes is None else time.monotonic() + 60 * minutes
    waiting = deque(enumerate(given))
    pending: dict[Future[Report], tuple[int, Any]] = {}
    found: list[tuple[tuple[int, Any], Report]] = []
    while True:
        while waiting and len(pending) < 2 * pool.workers and time.monotonic() < ends:
            place = waiting.popleft()
            pending[pool.submit(function, task, place[1])] = place
        if not pending:
            return [(what, report) for (_, what), report in sorted(found, key=lambda pair: pair[0][0])]
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            found.append((pending.pop(future), pool.result(future, task)))


def measure_calibration(
    task: Task, programs: int, workers: int, minutes: float | None = None, keep: Path | None = None
) -> dict[str, Any]:
    """Draw `programs` programs; the figures. What did not agree is written into `keep`."""
    started = time.perf_counter()
    place = task.place
    with Pool(workers, [place.reference.device, place.subject.device]) as pool:
        reports = stream(pool, _explore, task, range(programs), minutes)
        deaths = pool.deaths
    kept = [_kept(index, report, keep) for index, report in reports if report.verdict not in ("agree", "rejected")]
    return {
        "pair": f"{place.reference},{place.subject}",
        "seed": task.seed,
        "dtypes": list(task.limits.dtypes),
        **calibration_summary(reports),
        "deaths": deaths,
        "seconds": round(time.perf_counter() - started, 1),
        "differing": kept,
    }


def _kept(index: int, report: Report, folder: Path | None) -> dict[str, Any]:
    """A row about a program that did not agree; its text goes into the folder."""
    verdict = report.verdicts[0]
    row = {"index": index, "signature": str(verdict.signature), "detail": verdict.detail}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{report.verdict}-{index}.prog"
        path.write_text(f"# {verdict.signature}\n{report.text}")
        row["file"] = str(path)
    return row


# ---------------------------------------------------------------- the figures


def calibration_summary(reports: list[tuple[Any, Report]]) -> dict[str, Any]:
    """Counts, and the ratios as histograms by side and dtype."""
    ran = [(index, r) for index, r in reports if not r.rejected]
    told = [ratio for _, r in ran if isinstance(r, Measured) for ratio in r.ratios]
    sides = {side: [ratio for ratio in told if ratio.side == side] for side in ("reference", "subject")}
    return {
        "programs": len(ran),
        "drawn": len(reports),
        "detectable": sum(r.detectable > 0 for _, r in ran),
        "programs_by_dtype": _by_dtype([r for _, r in ran]),
        "classes": dict(Counter(r.verdict for _, r in reports)),
        "beyond_first_look": sum(isinstance(r, Measured) and r.beyond for _, r in ran),
        "tensors": len(sides["subject"]),
        "bins_per_decade": BINS_PER_DECADE,
        "ratios": {side: _histograms(found) for side, found in sides.items()},
        "largest": _farthest(ran)[:_LARGEST],
    }


def _farthest(reports: Iterable[tuple[Any, Report]]) -> list[dict[str, Any]]:
    """The agreeing programs with their largest ratio, the largest first."""
    agreeing = [
        (index, r.ratios) for index, r in reports if isinstance(r, Measured) and r.verdict == "agree" and r.ratios
    ]
    rows = [{"index": index, **asdict(max(found, key=lambda f: f.ratio))} for index, found in agreeing]
    return sorted(rows, key=lambda row: row["ratio"], reverse=True)


def _by_dtype(reports: Iterable[Report]) -> dict[str, int]:
    """Programs that have a leaf or cotangent of each floating dtype, of either half precision, and of nothing wider."""
    counted: Counter[str] = Counter()
    for report in reports:
        try:
            program = parse(report.text)
        except ParseError:
            continue
        given = {leaf.dtype for leaf in program.leaves} | {o.cotangent.dtype for o in program.outputs if o.cotangent}
        floats = {name for name in given if name.startswith(("f", "bf", "c"))}
        counted.update(floats)
        counted["half"] += bool(floats & set(_HALF))
        counted["half only"] += bool(floats) and floats <= set(_HALF)
    return dict(sorted(counted.items()))


def _histograms(found: Iterable[Ratio]) -> dict[str, dict[str, int]]:
    """dtype -> bin -> tensors. A bin is floor(BINS_PER_DECADE log10(ratio)), or `exact` for 0, or `inf`."""
    counted: dict[str, Counter[str]] = {}
    for ratio in found:
        counted.setdefault(ratio.dtype, Counter())[binned(ratio.ratio)] += 1
    return {dtype: dict(sorted(bins.items(), key=_order)) for dtype, bins in sorted(counted.items())}


def binned(ratio: float) -> str:
    if ratio == 0:
        return "exact"
    if ratio == math.inf:
        return "inf"
    return str(math.floor(BINS_PER_DECADE * math.log10(min(max(ratio, _LEAST), _MOST))))


def _order(item: tuple[str, int]) -> float:
    return {"exact": -math.inf, "inf": math.inf}.get(item[0]) or float(item[0])
