"""The same ratios as `calibrate`, of errors: where do faults lie?

Three kinds: gradients of drawn programs, corrupted one way at a time (`sensitivity`); the canaries, whose compiled code
is at fault; the big programs of corpus/planted, whose gradients are doubled.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benches.calibrate import Measured, Ratio, binned, largest, measured, stream
from benches.sensitivity import KINDS
from fuzzer.campaign.canaries import CANARIES, read_program
from fuzzer.judgement.comparison import as_float64, first_spread
from fuzzer.judgement.trial import RAN, Place, Subject, Trial
from fuzzer.language.text import parse
from fuzzer.language.values import DTYPE_NAMES
from fuzzer.trial import tasks as exploration
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

_PLANTED = Path(__file__).parents[2] / "corpus" / "planted"
_NUMERIC = ("no_new_nonfinite", "outputs_agree", "gradients_agree")


# ---------------------------------------------------------------- in the worker


def _explore(task: Task, index: int) -> Report:
    """The campaign's `_explore`, with the ratios of corrupted gradients."""
    return exploration.explore(task, index, corrupted)


def corrupted(report: Report, trial: Trial) -> Report:
    """The Report with the ratio of one gradient for every kind of corruption that some gradient allows."""
    with torch.no_grad():
        found = tuple(_corruptions(trial, report.text)) if trial.subject.outcome == RAN else ()
    return Measured(**vars(report), ratios=found)


def _corruptions(trial: Trial, seed: str) -> Iterator[Ratio]:
    """A ratio a kind, of the first gradient in an order left to chance that it changes. Raises Unreplayable."""
    deviations, order = first_spread(trial).floor(1.0), list(trial.targets)
    for kind in KINDS:
        rng = random.Random(f"{seed}/{kind.__name__}")
        names = [n for n, g in trial.subject.gradients.items() if g is not None and f"{n}.grad" in order]
        for name in rng.sample(names, len(names)):
            gradient, at = trial.subject.gradients[name], order.index(f"{name}.grad")
            flat = gradient.detach().flatten().clone()
            if not flat.numel() or not kind(flat, rng):
                continue
            r = first_spread(trial).reference[at].double()
            value = as_float64(flat.reshape(gradient.shape), r)
            yield Ratio(kind.__name__, name, DTYPE_NAMES[gradient.dtype.to_real()], largest(value, r, deviations[at]))
            break


def examine_corrupted(task: Task, what: tuple[str, str]) -> Report:
    """The Report of a text under a fault, with the ratios. Raises ParseError."""
    fault, text = what
    return report_program(parse(text), replace(task, canary=fault), journal(), on_judged=measured)


# ---------------------------------------------------------------- the figures


def measure_planted_ratios(task: Task, programs: int, workers: int, minutes: float | None = None) -> dict[str, Any]:
    """Corrupt `programs` drawn programs; run canaries and planted programs; the figures."""
    started = time.perf_counter()
    device = task.place.subject.device
    eager = Subject("eager", device)
    canaries = [(c.name, read_program(c.program)) for c in CANARIES if c.oracle in _NUMERIC and not c.quick]
    doubled = [("gradients_doubled", path.read_text()) for path in sorted(big_programs())]
    asked = {
        "canary": (Place(eager, Subject("inductor", device)), canaries),
        "doubled": (Place(eager, eager), doubled),
    }
    with Pool(workers, [device]) as pool:
        drawn = stream(pool, _explore, replace(task, place=Place(eager, eager)), range(programs), minutes)
        ratios = [ratio for _, r in drawn if isinstance(r, Measured) for ratio in r.ratios]
        for kind, (place, texts) in asked.items():
            reports = stream(pool, examine_corrupted, replace(task, place=place), texts, None)
            ratios += [
                Ratio(kind, what[0], "", worst(r)) for what, r in reports if isinstance(r, Measured) and r.ratios
            ]
    return planted_ratios_summary(ratios) | {"programs": len(drawn), "seconds": round(time.perf_counter() - started, 1)}


def big_programs() -> Iterator[Path]:
    return _PLANTED.glob("*.prog")


def worst(report: Measured) -> float:
    """The largest ratio of a program's tensors."""
    return max(ratio.ratio for ratio in report.ratios)


def planted_ratios_summary(ratios: list[Ratio]) -> dict[str, Any]:
    """The ratios as a histogram a kind of fault."""
    kinds = sorted({ratio.side for ratio in ratios})
    shown: dict[str, dict[str, int]] = {}
    for kind in kinds:
        bins = [binned(ratio.ratio) for ratio in ratios if ratio.side == kind]
        shown[kind] = {name: bins.count(name) for name in sorted(set(bins), key=_in_order)}
    return {"faults": {kind: sum(shown[kind].values()) for kind in kinds}, "ratios": {"planted": shown}}


def _in_order(name: str) -> float:
    return {"exact": -1e9, "inf": 1e9}.get(name) or float(name)
