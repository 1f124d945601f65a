"""Does the cheap first look dismiss what the closest would flag?

Every tensor of a program is judged by both looks: as the sides left it, and with an error planted into each of its
elements, of a size around the first look's floor. The judgement goes element by element, so each is a trial of its own.
An error is dismissed where the first look admits it and the final one does not.
"""

from __future__ import annotations

import random
import time
from dataclasses import astuple, dataclass
from typing import Any

import click
import torch

from benches.options import json_option, print_figures, programs_option, seed_option, workers_option
from benches.stream import stream
from fuzzer.judgement.comparison import as_float64, outside_floor, spread, within_storage
from fuzzer.judgement.trial import RAN, Place, Trial, parse_subject
from fuzzer.language.errors import UsageError
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import DIFFERENTIABLE
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import identify, parse
from fuzzer.rounding.floors import FACTOR, FINAL_LOOK, FIRST_LOOK
from fuzzer.trial import tasks as exploration
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

# Planted errors are 2**-REACH to 2**REACH floors large, log-uniform; where the floor is 0, as many units of the value.
_REACH = 4.0
_SHOWN = 10


@dataclass(frozen=True)
class Look:
    """Of one program: elements planted, and how many of their errors each look flags; those that only the last does."""

    planted: int = 0
    first: int = 0
    final: int = 0
    dismissed: int = 0

    def __add__(self, other: Look) -> Look:
        return Look(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Looked(Report):
    """A Report with what both looks said of planted errors."""

    look: Look = Look()


# ---------------------------------------------------------------- in the worker


def _explore(task: Task, index: int) -> Report:
    """The campaign's `_explore`, then both looks at planted errors."""
    return exploration.explore(task, index, looked)


def looked(report: Report, trial: Trial) -> Report:
    """The Report with both looks."""
    with torch.no_grad():
        found = compared(trial, random.Random(report.text)) if trial.subject.outcome == RAN else Look()
    return Looked(**vars(report), look=found)


def compared(trial: Trial, rng: random.Random) -> Look:
    """Both looks at every floating tensor: both sides' own, and one with errors planted. Raises Unreplayable."""
    nearest, closest = (spread(trial, look).floors(FACTOR) for look in (FIRST_LOOK, FINAL_LOOK))
    sides = trial.named(trial.reference), trial.named(trial.subject)
    found = Look()
    for at, (name, ref) in enumerate(trial.targets.items()):
        r = trial.model.reference[at].double()
        owned = [t for side in sides if (t := side[name]) is not None and within_storage(t)]
        values = [value for t in owned if (value := as_float64(t, r)).shape == r.shape]
        floating = ref.dtype.to_real().is_floating_point
        if floating:
            values.append(look_at_planted(r, nearest[at], ref.dtype.to_real(), rng))
        for value in values:
            first, final = outside_floor(value, r, nearest[at]), outside_floor(value, r, closest[at])
            found += Look(0, int(first.sum()), int(final.sum()), int((final & ~first).sum()))
        found += Look(planted=r.numel() * floating)
    return found


def look_at_planted(
    reference: torch.Tensor, floor: torch.Tensor, dtype: torch.dtype, rng: random.Random
) -> torch.Tensor:
    """The reference with an error in each element, as a tensor of `dtype` could hold it, in float64."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    drawn = torch.rand(2, *reference.shape, generator=generator, dtype=torch.float64).to(reference.device)
    size = torch.where(floor > 0, floor, reference.abs() * torch.finfo(dtype).eps)
    size = torch.where(torch.isfinite(size), size, 0.0)
    moved = reference + torch.where(drawn[0] < 0.5, -1, 1) * size * 2 ** (_REACH * (2 * drawn[1] - 1))
    return moved.to(dtype).double()


# ---------------------------------------------------------------- the figures


def measure_first_look(task: Task, programs: int, workers: int, minutes: float | None = None) -> dict[str, Any]:
    """Draw `programs` programs; what was planted, what each look flags, what the first dismisses wrongly."""
    started = time.perf_counter()
    place = task.place
    with Pool(workers, [place.reference.device, place.subject.device]) as pool:
        reports = [report for _, report in stream(pool, _explore, task, range(programs), minutes)]
    return first_look_summary(reports) | {"seconds": round(time.perf_counter() - started, 1)}


def first_look_summary(reports: list[Report]) -> dict[str, Any]:
    """The figures of these reports."""
    found = [r for r in reports if isinstance(r, Looked)]
    wrong = [r for r in found if r.look.dismissed]
    return {
        "programs": len(found),
        "planted": sum(r.look.planted for r in found),
        "flagged_by_first": sum(r.look.first for r in found),
        "flagged_by_final": sum(r.look.final for r in found),
        "dismissed": sum(r.look.dismissed for r in wrong),
        "programs_dismissed": len(wrong),
        "missed": [{"program": identify(parse(r.text)), "text": r.text, **vars(r.look)} for r in wrong[:_SHOWN]],
    }


# ---------------------------------------------------------------- the command


def _pair(text: str, device: str) -> Place:
    """`A,B`: the reference side and the side on trial. Raises UsageError."""
    sides = [parse_subject(side, device) for side in text.split(",")]
    if len(sides) != 2 or sides[0].backend != "eager" or sides[0].threads > 1:
        raise UsageError(f"--pair takes two sides, the first of them eager with one thread, not {text!r}")
    return Place(*sides)


def _dtypes(text: str) -> tuple[str, ...]:
    """The dtypes of a list with commas. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in DIFFERENTIABLE:
            raise UsageError(f"no dtype {name!r}; known are {', '.join(DIFFERENTIABLE)}")
    return names


@click.command("first-look")
@programs_option(1000)
@click.option("--minutes", default=None, type=click.FloatRange(min=0), help="Stop drawing after this time.")
@click.option(
    "--pair",
    default="eager,eager",
    show_default=True,
    metavar="A,B",
    help="Two sides, each backend, backend@device or backend@cpu/THREADS; the first is the reference: eager.",
)
@click.option("--dtypes", default="f32,f64,bf16,f16", show_default=True, help="Dtypes to draw from, with commas.")
@click.option("--size", default=64, show_default=True, type=click.IntRange(1), help="The longest dimension.")
@seed_option
@click.option("--device", default="cpu", show_default=True, is_eager=True, help="The device of sides that name none.")
@workers_option
@json_option
def first_look_command(
    programs: int, minutes: float | None, pair: str, dtypes: str, size: int, seed: int, device: str, workers: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Does the cheap first look dismiss an error that the final look flags?

    Errors around the floor are planted in every element of every tensor.
    """
    limits = Limits(max_size=size, max_numel=size**2, dtypes=_dtypes(dtypes))
    task = Task(_pair(pair, device), seed, limits, routes=ANY_BACKEND)
    print_figures(measure_first_look(task, programs, workers, minutes), as_json)
