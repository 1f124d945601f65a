"""A finding's minimal program grown into a program that a person would write, by candidates that run on the pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from fuzzer.campaign.suspects.interestingness import CandidateCache
from fuzzer.campaign.suspects.recognition import experimenter
from fuzzer.judgement.verdict import VALUES, Comparison, Finding, Natural, Signature, Verdict, follows, without_paths
from fuzzer.language.program import Program
from fuzzer.language.text import parse, show
from fuzzer.language.values import TORCH_DTYPES
from fuzzer.ledger.cause import cause_of
from fuzzer.ledger.recognise import WITHOUT_COMPILER, kernels_of, known_fault
from fuzzer.ledger.switches import AGREE
from fuzzer.trial.verify import verify
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool
from minimizer.natural import Growth, grow
from minimizer.reduce import typed
from minimizer.same import margin


def grow_finding(
    finding: Finding, task: Task, pool: Pool, folder: Path, expired: Callable[[], bool] = lambda: False
) -> tuple[Finding, Growth]:
    """The finding with its natural program, and how that was found. Where no candidate is more natural, or not all
    fresh processes reproduce the finding with it, the minimal program is the natural one.

    task, pool   where the finding reproduces.  folder   for the files of fresh processes.
    """
    cache = CandidateCache(pool, replace(task, fresh=True), final=True)
    shown: dict[str, Verdict] = {}

    def error_of(program: Program) -> float | None:
        verdict = _same_fault(finding, own, program, cache)
        if verdict is None or verdict.error < least:
            return None
        shown[show(program)] = verdict
        return visible_error(verdict, program)

    program = parse(finding.program)
    own = kernels_of(program)
    minimal = Natural(finding.program, finding.signature, finding.detail, finding.comparisons)
    known = Verdict(finding.signature, finding.detail, finding.comparisons)
    least, error = margin(known.error), visible_error(known, program)
    growth = grow(program, error, error_of, expired=expired)
    natural = None
    if growth.history:
        natural = _verified(growth.program, shown[show(growth.program)], task, pool, folder)
    return replace(finding, natural=natural or minimal), growth


def with_program(finding: Finding, program: Program, task: Task, pool: Pool, folder: Path) -> Finding | None:
    """The finding with a person's program as its natural one; None where not all fresh processes reproduce its fault
    with that program."""
    found = typed(program)
    if found is None:
        return None
    cache = CandidateCache(pool, replace(task, fresh=True), final=True)
    verdict = _same_fault(finding, kernels_of(parse(finding.program)), found[0], cache)
    natural = None if verdict is None else _verified(found[0], verdict, task, pool, folder)
    return None if natural is None else replace(finding, natural=natural)


def _verified(program: Program, shown: Verdict, task: Task, pool: Pool, folder: Path) -> Natural | None:
    """The program as a natural one, with the verdict of a fresh process; None where not all of them reproduce the
    finding."""
    told = verify(program, task, shown.signature, pool.workers, task.place.devices, folder)
    if told.reproduced < told.runs or told.verdict is None:
        return None
    verdict = told.verdict
    return Natural(show(program), verdict.signature, without_paths(verdict.detail), verdict.comparisons)


def visible_error(verdict: Verdict, program: Program) -> float:
    """The largest relative error that a reader sees: 0 where torch.testing.assert_close passes at its defaults,
    infinite where a side is not finite or nothing was measured."""
    eager = verdict.signature.verdict == "eager-suspect"
    pairs = [(c, c.eager if eager else c.compiled, c.float64 if eager else c.eager) for c in verdict.comparisons]
    dtypes = [_dtype(program, c) for c in verdict.comparisons]
    return max((_visible(a, b, d) for (_, a, b), d in zip(pairs, dtypes, strict=True)), default=math.inf)


def _visible(actual: float, expected: float, dtype: torch.dtype) -> float:
    try:
        torch.testing.assert_close(torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=dtype))
    except AssertionError:
        off = abs(actual - expected)
        return off / abs(expected) if math.isfinite(off) and expected else math.inf
    return 0.0


def _dtype(program: Program, comparison: Comparison) -> torch.dtype:
    """The dtype of the compared tensor; for a complex tensor, the dtype of its parts."""
    names = {f"{leaf.name}.grad": leaf.dtype for leaf in program.leaves}
    names |= {o.value: o.cotangent.dtype for o in program.outputs if o.cotangent is not None}
    found = TORCH_DTYPES[names.get(comparison.name, "f32")]
    return found.to_real() if found.is_complex else found if found.is_floating_point else torch.float32


def _same_fault(finding: Finding, own: set[str], program: Program, cache: CandidateCache) -> Verdict | None:
    """The verdict of a candidate, once it has run, that reproduces the finding's fault; None where none does.

    own   the kernels of the finding's program.

    A candidate with all these kernels reproduces it with the finding's signature, or with another pattern whose cause
    is the same by the rule that joins findings. Where other values changed the oracle or the kernels, the experiments
    that identify the finding must give the same answers for the candidate.
    """
    held = own <= kernels_of(program)
    for verdict in cache.verdicts_of(program):
        if held and follows(finding.signature, verdict.signature):
            return verdict
        if not alike(finding.signature, verdict.signature):
            continue
        if held and verdict.signature.oracle == finding.signature.oracle and _one_cause(finding, program, verdict):
            return verdict
        return verdict if _told_alike(finding, program, verdict, cache.task, cache.pool) else None
    return None


def _one_cause(finding: Finding, program: Program, verdict: Verdict) -> bool:
    """Whether the candidate would join the finding's fault, were its diagnosis the same."""
    shown = Natural(show(program), verdict.signature, verdict.detail, verdict.comparisons)
    return cause_of(replace(finding, natural=shown).grown).shares(cause_of(finding))


def alike(own: Signature, shown: Signature) -> bool:
    """Whether two signatures may be of one fault under other values."""
    same = (own.verdict, own.direction) == (shown.verdict, shown.direction)
    return same and own.pattern in VALUES and shown.pattern in VALUES


def _told_alike(finding: Finding, program: Program, verdict: Verdict, task: Task, pool: Pool) -> bool:
    """Whether the experiments that identify the finding give the same answers for the candidate; False where there are
    none."""
    questions = [q for known in known_fault("", [finding]) for q in known.questions if q != WITHOUT_COMPILER]
    answer = experimenter(program, verdict.signature, task, pool)
    return bool(questions) and all(
        (told := answer(q.name)) != "" and not told.startswith("not run") and (told == AGREE) is q.agrees
        for q in questions
    )
