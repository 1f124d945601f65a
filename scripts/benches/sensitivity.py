"""Does the judge hear? Corrupt recorded compiled gradients and count what the oracles flag.

Each program runs and is judged as in a campaign. Where it agrees, copies of the compiled gradients are corrupted one
way at a time and judged by the same oracles. A corruption counts where it moves an element further from the float64
reference than rounding could (`bound`).
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import Any

import click
import torch

from benches.bound import Bounds
from benches.options import common_options, print_figures, programs_option, task_on
from benches.smallest import Smallest, smallest, table
from fuzzer.generation.draft import Rejected
from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.trial import RAN, Trial
from fuzzer.language.infer import IllTyped
from fuzzer.language.text import identify, parse, show
from fuzzer.language.values import DTYPE_NAMES
from fuzzer.rounding.replay import Unreplayable
from fuzzer.trial.draw import draw_program
from fuzzer.trial.pipeline import Refused, run_both
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

Corrupt = Callable[[torch.Tensor, random.Random], list[int]]  # changes a flat copy; says where, [] where it could not

_FACTORS = {torch.bfloat16: 1.1, torch.float16: 1.1}


@dataclass(frozen=True)
class Corruption:
    """One corrupted gradient: where it was worst, whether that exceeds the bound, what the oracles said."""

    kind: str
    name: str
    dtype: str
    index: int
    reference: float
    compiled: float
    corrupted: float
    bound: float | None
    exceeds: bool
    flagged: str  # the verdict's class, "" where nothing was said


@dataclass(frozen=True)
class Detections(Report):
    """A Report with the corruptions tried, and the smallest errors flagged."""

    corruptions: tuple[Corruption, ...] = ()
    smallest: tuple[Smallest, ...] = ()


# ---------------------------------------------------------------- corruptions


def zero_one(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """One nonzero element becomes zero."""
    at = _any((flat != 0) & torch.isfinite(flat), rng)
    flat[at] = 0
    return at


def swap_two(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """Two unequal elements change places."""
    first = _any(torch.isfinite(flat), rng)
    second = _any((flat != flat[first]) & torch.isfinite(flat), rng) if first else []
    if not second:
        return []
    flat[[*first, *second]] = flat[[*second, *first]]
    return [*first, *second]


def drop_tail(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """The last elements, up to a quarter, become zero."""
    count = rng.randint(1, max(1, flat.numel() // 4))
    start = flat.numel() - count
    where = torch.nan_to_num(flat[start:], posinf=0, neginf=0)
    flat[start:] = 0
    return [start + int(where.abs().argmax())] if bool(where.any()) else []


def scale_one(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """One element times 1.01, or times 1.1 in half precision."""
    at = _any((flat != 0) & torch.isfinite(flat), rng)
    flat[at] *= _FACTORS.get(flat.dtype, 1.01)
    return at


def zero_all(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """Everything becomes zero."""
    where = torch.nan_to_num(flat, posinf=0, neginf=0)
    if not bool(where.any()):
        return []
    at = int(where.abs().argmax())
    flat[:] = 0
    return [at]


def add_unit(flat: torch.Tensor, rng: random.Random) -> list[int]:
    """One integer-valued element becomes the next integer (where the dtype has it)."""
    at = _any((flat == flat.round()) & (flat + 1 != flat), rng)
    flat[at] += 1
    return at


def _any(mask: torch.Tensor, rng: random.Random) -> list[int]:
    positions = mask.nonzero().flatten().tolist()
    return [rng.choice(positions)] if positions else []


KINDS: tuple[Corrupt, ...] = (zero_one, swap_two, drop_tail, scale_one, zero_all, add_unit)


def corrupted(trial: Trial, name: str, tensor: torch.Tensor) -> Trial:
    """The trial with one compiled gradient replaced; what the oracles derived from the trace alone is kept."""
    gradients = {**trial.subject.gradients, name: tensor}
    return trial.with_subject(dataclasses.replace(trial.subject, gradients=gradients, again=None))


def detect(trial: Trial, seed: str) -> tuple[Corruption, ...]:
    """Every kind of corruption once, each on a gradient drawn from those that it can change. Raises Unreplayable."""
    bounds = Bounds(trial.program, trial.trace, trial.targets) if trial.trace is not None else None
    found = []
    for kind in KINDS:
        rng = random.Random(f"{seed}/{kind.__name__}")
        names = [n for n, g in trial.subject.gradients.items() if g is not None and f"{n}.grad" in trial.targets]
        rng.shuffle(names)
        for name in names:
            gradient = trial.subject.gradients[name]
            flat = gradient.detach().flatten().clone()
            touched = kind(flat, rng) if flat.numel() else []
            if not touched or bounds is None:
                continue
            found.append(_judged(trial, bounds, kind.__name__, name, flat.reshape(gradient.shape), touched))
            break
    return tuple(found)


def _judged(
    trial: Trial, bounds: Bounds, kind: str, name: str, changed: torch.Tensor, touched: list[int]
) -> Corruption:
    full = f"{name}.grad"
    before, after = trial.subject.gradients[name].flatten(), changed.flatten()
    reference = bounds.reference[full].flatten()
    at, limit, exceeds = touched[0], None, False
    for candidate in touched:
        at, limit = candidate, bounds.at(full, candidate)
        exceeds = limit is not None and bool(abs(float(after[at]) - float(reference[at])) > limit)
        if exceeds:
            break
    flagged = ""
    if exceeds:  # only those count, and judging is what costs
        copy = corrupted(trial, name, changed)
        said = verdicts(copy)
        trial.known.update({k: v for k, v in copy.known.items() if not (isinstance(k, tuple) and k[0] == "judged")})
        flagged = said[0].signature.verdict if said else ""
    dtype = DTYPE_NAMES[changed.dtype]
    return Corruption(kind, name, dtype, at, float(reference[at]), float(before[at]), float(after[at]),
                      limit, exceeds, flagged)  # fmt: skip


# ---------------------------------------------------------------- in the worker


def _hear(task: Task, index: int) -> Report:
    """Draw program `index` of the task's seed, run and judge it, and where it agrees corrupt it."""
    try:
        program = draw_program(task, index)
    except (Rejected, IllTyped) as error:
        return Report("", rejected=str(error))
    return _hear_text(task, show(program))


def _hear_text(task: Task, text: str) -> Report:
    """Run and judge this program, and where it agrees corrupt it. Raises ParseError."""
    program = parse(text)
    journal().begin(text)
    try:
        trial = run_both(program, task, journal())
        seconds = {"reference": trial.reference.seconds, "subject": trial.subject.seconds}
    except Refused as error:
        return Report(text, rejected=str(error))
    journal().phase("judge")
    try:
        with torch.no_grad():
            found = Report(text, tuple(verdicts(trial)), seconds=seconds)
            if found.verdict != "agree" or trial.subject.outcome != RAN:
                return found
            tried, errors = detect(trial, text), smallest(trial, random.Random(text))
            return Detections(text, corruptions=tried, smallest=tuple(errors), seconds=seconds)
    except Unreplayable as error:
        return Report(text, rejected=f"the trace cannot be replayed: {error}")


# ---------------------------------------------------------------- the figures


def measure_sensitivity(task: Task, programs: int, workers: int) -> dict[str, Any]:
    """Draw until `programs` have run; what was tried, what counts, what was flagged."""
    started = time.perf_counter()
    reports: list[Report] = []
    drawn = 0
    with Pool(workers, [task.place.subject.device]) as pool:
        while (short := programs - sum(not r.rejected for r in reports)) > 0 and drawn < 3 * programs + 20:
            batch = {pool.submit(_hear, task, index): index for index in range(drawn, drawn + short)}
            drawn += short
            reports += [pool.result(future, task) for future in as_completed(batch)]
    return sensitivity_summary(reports) | {"seconds": round(time.perf_counter() - started, 1)}


def sensitivity_summary(reports: list[Report]) -> dict[str, Any]:
    """The figures of these reports."""
    ran = [r for r in reports if not r.rejected]
    tried = [(r, c) for r in ran if isinstance(r, Detections) for c in r.corruptions]
    counted = [c for _, c in tried if c.exceeds]
    missed = [(r, c) for r, c in tried if c.exceeds and not c.flagged]
    missed.sort(key=lambda pair: _excess(pair[1]), reverse=True)
    return {
        "programs": len(ran),
        "agreeing": sum(isinstance(r, Detections) for r in ran),
        "corruptions": len(tried),
        "unbounded": sum(c.bound is None for _, c in tried),
        **_share(counted),
        "flagged_as": dict(Counter(c.flagged for c in counted if c.flagged)),
        "by_dtype": {d: _share([c for c in counted if c.dtype == d]) for d in sorted({c.dtype for c in counted})},
        "by_kind": {k.__name__: _share([c for c in counted if c.kind == k.__name__]) for k in KINDS},
        "smallest_relative_error_flagged": table(s for r in ran if isinstance(r, Detections) for s in r.smallest),
        "missed": [_shown(r, c) for r, c in missed[:100]],
    }


def _shown(report: Report, c: Corruption) -> dict[str, Any]:
    return {"program": identify(parse(report.text)), "text": report.text, **dataclasses.asdict(c)}


def _excess(c: Corruption) -> float:
    return abs(c.corrupted - c.reference) / max(c.bound or 0.0, 1e-300)


def _share(counted: list[Corruption]) -> dict[str, Any]:
    flagged = sum(bool(c.flagged) for c in counted)
    share = round(flagged / len(counted), 4) if counted else None
    return {"exceeding": len(counted), "flagged": flagged, "share": share}


@click.command("sensitivity")
@programs_option(1000)
@common_options
def sensitivity_command(programs: int, workers: int, seed: int, device: str, backend: str, as_json: bool) -> None:
    """How many corrupted gradients beyond rounding do the oracles flag, and how small may an error be?"""
    task = dataclasses.replace(task_on(device, backend, seed), routes=Task.routes)  # by autograd alone
    print_figures(measure_sensitivity(task, programs, workers), as_json)
