"""The diagnosis of a finding after its verdict. Every part has a time limit and says so when it runs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fuzzer.diagnosis.ablation import Ablation, all_off, by_kind, changes, order, without_ops
from fuzzer.diagnosis.case import Case
from fuzzer.diagnosis.evidence import DIFFERENCE
from fuzzer.diagnosis.memcheck import memcheck
from fuzzer.judgement.verdict import Finding, without_paths
from fuzzer.language.program import Program
from fuzzer.ledger.cause import LEFT, cause_of
from fuzzer.ledger.diagnosed import VERSION, keep_earlier, version_line
from fuzzer.ledger.switches import gone
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool

PROGRAMS, CPU_SECONDS = "programs run", "their CPU seconds"  # all runs of the bisector count as one
# The fields of a diagnosis, in the order of a reader's questions.
FIELDS = ("side", "culprit", "excludes", "stage", "graph", *DIFFERENCE, "original", "settings", "vanishes", "bisector",
          "suspect", "memcheck", "place", PROGRAMS, CPU_SECONDS, VERSION)  # fmt: skip
BUILT = "inductor"  # the stage at which every change takes a full compile
Groups = Mapping[str, Sequence[Ablation]]
_MOST_PROOFS = 3  # changes that are the cause at a stage, but not in the full compile


def diagnose(
    finding: Finding, task: Task, pool: Pool, scratch: Path, expired: Callable[[], bool] = lambda: False
) -> Finding:
    """The finding with stages, ablation, diagnosis and attachments. Parts without time, by `expired` or by the
    diagnosis' own limit (`case.ALLOWANCE`), say so.

    task   runs the program;  scratch   a folder for the bisector's process.
    """
    case = Case(finding, replace(task, fixed=(), fresh=True), pool, scratch, expired)
    evidence = case.evidence
    if finding.signature.verdict == "crashes":  # before the time is spent on programs that die
        evidence.notes["memcheck"] = check_memory(case)
    if evidence.eager_corrupts():
        case.describe()
        evidence.notes["bisector"] = "not run: eager alone is at fault"
    else:
        experiment(case)
    evidence.summarise()
    evidence.notes["memcheck"] = evidence.notes.get("memcheck") or check_memory(case)
    evidence.notes["place"] = f"torch {torch.__version__}, {task.place.subject} against {task.place.reference}"
    evidence.notes |= {PROGRAMS: str(case.experiments), CPU_SECONDS: f"{case.cpu:.0f}"}
    evidence.notes[VERSION] = version_line(finding, cause_of(finding).decided)
    notes = {name: without_paths(evidence.notes[name]) for name in FIELDS}
    files = {name: without_paths(text) for name, text in evidence.files.items()}
    found = replace(finding, stages=evidence.tables["stage"], ablation=evidence.tables["ablation"], diagnosis=notes,
                    attachments=files)  # fmt: skip
    return replace(found, attachments=keep_earlier(found, finding))


def experiment(case: Case) -> None:
    """Run all experiments for the cause; the closer looks are apart."""
    case.run_stages()
    case.describe()
    asked = {change.name: change for change in switch_off(case)}
    for _ in range(_MOST_PROOFS):
        asked |= {change.name: change for change in leave_to_aten(case)}
        if holds_when_built(case, asked):
            break


def switch_off(case: Case) -> list[Ablation]:
    """Run every single change but those of operators, at the stage."""
    program, first = case.program, case.evidence.asked_at
    variants = changes(program, case.at, first)
    kinds = by_kind(variants) if first == BUILT else {}
    later = [v for some in kinds.values() for v in some]
    case.run_ablations([v for v in variants if v not in later])
    take_apart(case, program, {"switches": later}, kinds)
    return variants


def take_apart(case: Case, program: Program, whole: Groups, parts: Groups) -> None:
    """For the stage where each change takes a full compile: run all switches off at once, then those of one kind, then
    one at a time, going deeper only where the finding vanishes."""
    groups = {name: all_off(name, program, case.at, some) for name, some in whole.items() if some}
    shows = case.run_ablations(list(groups.values()))
    for name, group in groups.items():
        some = whole[name]
        if shows[group.name]:
            case.run_ablations([replace(v, skipped=f"not run: {group.name}, it shows still") for v in some])
        elif parts:
            take_apart(case, program, {kind: v for kind, v in parts.items() if len(v) > 1}, {})
            case.run_ablations([v for kind in parts.values() if len(kind) == 1 for v in kind])
        else:
            case.run_ablations(some)


def leave_to_aten(case: Case) -> list[Ablation]:
    """Run the operators that are suspected without inductor's own code for them; the bisector says which, where that
    leaves several or none. Nothing where something else decides it and no operator can take part."""
    evidence, program = case.evidence, case.program
    if order(evidence.first()) < order("aot_eager_decomp_partition") or not evidence.tables["stage"]:
        evidence.notes.setdefault("bisector", f"not run: {case.why_no_bisector() or 'no stage differs'}")
        return []
    suspects: list[Ablation] = []
    if order(case.at.place.subject.backend) >= order("inductor:ir"):
        suspects = without_ops(program, case.at, evidence.suspects())
        case.run_ablations([s for s in suspects if s.name not in evidence.tables["ablation"]])
    if evidence.notes.get("bisector", "not run").startswith("not run"):
        if not evidence.open():
            evidence.notes["bisector"] = f"not run: {case.why_no_bisector() or 'single changes tell it'}"
            return suspects
        case.bisect()
        if op := evidence.bisected_op():
            suspects = [*suspects, *without_ops(program, case.at, [op])]
            case.run_ablations([s for s in suspects[-1:] if s.name not in evidence.tables["ablation"]])
    return suspects


def holds_when_built(case: Case, asked: dict[str, Ablation]) -> bool:
    """Repeat the change that is the cause at the stage with a full compile; returns whether the result is the same."""
    evidence = case.evidence
    guilty = [switch.name for switch in evidence.convicted() if not switch.apart]
    if not evidence.convicted() and len(evidence.culprits()) == 1:
        guilty = [op + LEFT for op in evidence.culprits()]
    for name in guilty[:1]:
        if name in asked and name not in evidence.proved:
            case.prove(replace(asked[name], task=replace(asked[name].task, place=case.task.place)))
            return gone(evidence.tables["ablation"][name])
    return True


def check_memory(case: Case) -> str:
    """The memory checker's result, where useful: if single changes decide a difference, nothing is out of bounds."""
    if over := case.over():
        return f"not run: {over}"
    signature = case.finding.signature
    if case.evidence.convicted() and signature.verdict not in ("crashes", "nondeterministic"):
        return "not run: single changes tell what is at fault"
    return memcheck(case.finding)
