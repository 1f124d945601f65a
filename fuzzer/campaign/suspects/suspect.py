"""One suspect: minimized, verified, stored, diagnosed."""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.core import Core
from fuzzer.campaign.suspects.growing import grow_finding
from fuzzer.campaign.suspects.interestingness import CandidateCache, minimize_with, searches
from fuzzer.campaign.suspects.patience import add_patiently, write_patiently
from fuzzer.campaign.suspects.recognition import Met, fault_elsewhere, met_as_known
from fuzzer.campaign.suspects.sort import core_of, is_sortable, sort_on
from fuzzer.diagnosis.diagnose import diagnose
from fuzzer.judgement.oracles import ASKED, about_bare
from fuzzer.judgement.promise import why_unsupported
from fuzzer.judgement.verdict import FINDINGS, Finding, Signature, Verdict, without_paths
from fuzzer.language.program import Program
from fuzzer.language.text import show
from fuzzer.ledger.store import open_store
from fuzzer.trial.pipeline import without_settings
from fuzzer.trial.verify import RUNS, examine_all, matching, verify
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool
from minimizer.reduce import Reduction
from minimizer.same import DETERMINISTIC, Sameness, sameness


class Step(enum.Enum):
    """What is to be done with a suspect next; `turns` says in which order. The value names its CPU seconds."""

    SORT = "sorting"  # find its core, and with that its key
    EXPLAIN = "explaining"  # hold its core against the faults that are known
    CONFIRM = "confirming"  # build its core once, and tell it
    WHOLE = "building whole"  # the same for one that cannot be sorted: it is its own core
    SETTLE = "settling"  # minimize its core, verify, store, diagnose
    DOUBT = "doubting"  # hold it against the fault of its cluster, which it joined by its key
    GROW = "growing"  # grow the program of its finding


@dataclass(frozen=True)
class Suspect:
    """A program whose trial did not agree, waiting for triage.

    stage    of the compiler, where the trial ended at one; "" where the program was compiled in full.
    core     once it is sorted, where a stage shows it.  step  what is next.
    source   of the program, or of the suspect whose candidate it is (`mixture.source_of`); "" where nobody knows.
    slip     whether it is no program of the campaign, but a candidate that showed another finding than its suspect.
    apart    whether it was told apart from the cluster that it had joined.
    finding  that it became.
    text     the program's: two suspects are equal if their texts are, since -0.0 == 0.0 in a program.
    """

    program: Program = field(compare=False)
    signature: Signature
    stage: str = ""
    core: Core | None = field(default=None, compare=False)
    step: Step = field(default=Step.SORT, compare=False)
    source: str = field(default="", compare=False)
    slip: bool = field(default=False, compare=False)
    apart: bool = field(default=False, compare=False)
    finding: Finding | None = field(default=None, compare=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", show(self.program))

    @property
    def silent(self) -> bool:
        """Whether it is a gradient that is wrong without a word."""
        return (self.signature.verdict, self.signature.direction) == ("wrong", "backward")

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        return ops_of(self.program)


def ops_of(program: Program) -> frozenset[str]:
    """The names of a program's ops."""
    return frozenset(node.op for node in program.nodes)


@dataclass(frozen=True)
class TriageOutcome:
    """The result of triage for a suspect: a finding (new or known), or the reason why there is none.

    fault        the known fault that explains the suspect, where it was recognised or is in another ledger.
    experiments  by which the suspect was recognised, without being minimized.
    """

    finding: Finding | None
    new: bool
    note: str
    others: tuple[Program, ...] = ()
    reduction: Reduction | None = None
    unfinished: bool = False  # the time was up before the program was minimal: no finding, the suspect is kept
    fault: str = ""
    experiments: int = 0


def triage_suspect(
    suspect: Suspect,
    plan: Plan,
    cache: CandidateCache,
    place: dict[str, str],
    campaign: str = "",
    expired: Callable[[], bool] = lambda: False,
    recognised: bool = True,
) -> TriageOutcome:
    """Minimize, verify and diagnose one suspect, and store it when it is new. A suspect that reproduces a known fault
    is not minimized, where it may be `recognised`. One without a core is first built as a whole."""
    if about_bare((suspect.signature.oracle,)):
        return TriageOutcome(None, False, "looked into without its settings", (without_settings(suspect.program),))
    task = task_of(suspect.signature, plan)
    pool, cache = cache.pool, cache.asking(task.also)
    core = suspect.core
    if core is None:
        whole = whole_core(suspect, plan, pool)
        if isinstance(whole, TriageOutcome):
            return whole
        core = whole
    if recognised and (met := met_as_core(core, plan, pool)):
        return recognised_as(met)
    how = sameness(core.shown, core.builds) if core.builds else DETERMINISTIC
    if core.builds:
        looks = list(searches(core.program, core.verdict, cache, how))
    else:
        looks = [cache.on(core.stage)] + [cache] * (core.stage != task.place.subject.backend)
    shrunk = _shrink(core, looks, how, cache, task, expired)
    if isinstance(shrunk, TriageOutcome):
        again = suspect.core is not None and not (core.builds or shrunk.unfinished)
        return _from_the_whole(suspect, shrunk, plan, cache, place, campaign, expired) if again else shrunk
    reduction, verdict = shrunk
    found = Finding(verdict.signature, "", suspect.text, show(reduction.program), place, 0, 0, campaign=campaign,
                    before=without_paths(core.before))  # fmt: skip
    return _known_finding(found, plan, reduction) or _verify_and_store(found, reduction, plan, task, pool, expired)


def sorted_suspect(suspect: Suspect, plan: Plan, pool: Pool) -> Suspect:
    """The suspect with its core, where it can be sorted and shows again; else the suspect as it is."""
    if suspect.core is not None or not is_sortable(suspect.signature):
        return suspect
    report = sort_on(pool, task_of(suspect.signature, plan), suspect.text, suspect.signature)
    return replace(suspect, core=core_of(report, suspect.signature))


def task_of(signature: Signature, plan: Plan) -> Task:
    """The task under which a suspect of this signature is decided: the plan's, with the oracle that spoke."""
    # a share of programs is asked some oracles: so is this one
    own = {signature.oracle} & {*ASKED} - {*plan.task.also}
    return replace(plan.task, fixed=(), also=(*plan.task.also, *own))


def task_at(core: Core, plan: Plan) -> Task:
    """The task under which a core is compared with faults: at its stage."""
    task = task_of(core.signature, plan)
    return replace(task, place=task.place.on(core.stage))


def met_as_core(core: Core, plan: Plan, pool: Pool) -> Met | None:
    """The known fault that explains a core, by experiments at its stage; None where none does."""
    return met_as_known(core.program, core.signature, plan.db, plan.known, task_at(core, plan), pool)


# Faults that need not show each time.
_FLAKY = ("crashes", "nondeterministic")


def whole_core(suspect: Suspect, plan: Plan, pool: Pool) -> Core | TriageOutcome:
    """The whole suspect as its own core, once a build shows it; the outcome where none of three does. What need not
    show each time is built three times, a hang once, since it costs its deadline."""
    task, signature = replace(task_of(suspect.signature, plan), fresh=True), suspect.signature
    times = RUNS if signature.verdict in _FLAKY else 1
    again = examine_all(pool, [(task, suspect.program)] * times)
    if signature.verdict != "hangs" and not any(matching(report, signature) for report in again):
        again += examine_all(pool, [(task, suspect.program)] * (RUNS - times))
    seen = [verdict for report in again if (verdict := matching(report, signature)) is not None]
    if not seen:
        return _not_again(suspect, again[0].verdict)
    return Core(suspect.program, seen[0], task.place.subject.backend, seen[0].detail, len(seen), len(again))


def _not_again(suspect: Suspect, verdict: str) -> TriageOutcome:
    """The outcome of a suspect that, compiled in full in a fresh process, shows this class and not its signature."""
    where = f"seen at {suspect.stage}, not when built" if suspect.stage else "did not show again"
    other = bool(suspect.stage) and verdict in FINDINGS  # what a stage refuses, code computes wrongly
    return TriageOutcome(None, False, f"{where} ({verdict})", others=(suspect.program,) if other else ())


def _from_the_whole(
    suspect: Suspect,
    shrunk: TriageOutcome,
    plan: Plan,
    cache: CandidateCache,
    place: dict[str, str],
    campaign: str,
    expired: Callable[[], bool],
) -> TriageOutcome:
    """The outcome of a suspect whose core came to nothing when it was built: that of the whole suspect, with what the
    search from the core met."""
    outcome = triage_suspect(replace(suspect, core=None), plan, cache, place, campaign, expired, recognised=False)
    return replace(outcome, others=(*shrunk.others, *outcome.others))


def _shrink(
    core: Core,
    looks: Iterable[CandidateCache],
    how: Sameness,
    cache: CandidateCache,
    task: Task,
    expired: Callable[[], bool],
) -> tuple[Reduction, Verdict] | TriageOutcome:
    """The minimal program's Reduction and its verdict when it is compiled in full; or the outcome without one."""
    # those before the last are cheaper, and may slip to what rounding explains after all, or shows at a stage alone
    for look in (*looks, CandidateCache(cache.pool, task, cache.batch, final=True)):
        reduction = minimize_with(core.program, core.verdict, look, how, expired)
        if reduction.why == "deadline":
            note = "no time was left to minimize it"
            return TriageOutcome(None, False, note, reduction.others, reduction, unfinished=True)
        shown = examine_all(cache.pool, [(replace(task, fresh=True), reduction.program)])[0]
        if (verdict := matching(shown, core.signature)) is not None:
            return reduction, verdict
    return TriageOutcome(None, False, f"the minimal program is no longer wrong with caches off ({shown.verdict})")


def _known_finding(found: Finding, plan: Plan, reduction: Reduction) -> TriageOutcome | None:
    """The outcome where this very finding is known, to the ledger or to one that is only read; None where it is not."""
    with open_store(plan.db) as store:
        if found.id in store.ids():
            return TriageOutcome(store.get(found.id), False, "known", reduction.others, reduction)
    if fault := fault_elsewhere(found, plan.db, plan.known, same=True):
        return TriageOutcome(found, False, "known", reduction.others, reduction, fault=fault)
    return None


def _verify_and_store(
    found: Finding,
    reduction: Reduction,
    plan: Plan,
    task: Task,
    pool: Pool,
    expired: Callable[[], bool],
) -> TriageOutcome:
    """The finding of a minimal program that reproduces in every fresh process, stored; diagnosed where it is new."""
    program = reduction.program
    verified = verify(program, task, found.signature, plan.workers, plan.devices, plan.folder)
    if verified.reproduced < verified.runs or verified.verdict is None:
        note = f"reproduced {verified.reproduced} of {verified.runs} times in fresh processes"
        return TriageOutcome(None, False, note, reduction.others, reduction)
    finding = _verified(found, reduction, verified.runs, verified.verdict)
    new = add_patiently(finding, plan, found.campaign, expired)  # it is safe before the rest, which takes minutes
    if new:
        if plan.corpus is not None:
            _keep_regression(plan.corpus, finding, program)
        finding = _look_into(finding, task, pool, plan, expired)
    fault = fault_elsewhere(finding, plan.db, plan.known)
    return TriageOutcome(finding, new, reduction.why, reduction.others, reduction, fault=fault)


def recognised_as(met: Met) -> TriageOutcome:
    """The outcome of a suspect that is this known fault."""
    note = f"shows the fault {met.fault}"
    return TriageOutcome(met.finding, False, note, fault=met.fault, experiments=met.experiments)


def _look_into(finding: Finding, task: Task, pool: Pool, plan: Plan, expired: Callable[[], bool]) -> Finding:
    """The stored finding with its diagnosis, which is stored too."""
    finding = diagnose(finding, task, pool, plan.folder, expired)
    write_patiently(plan.db, lambda store: store.set_diagnosis(finding), expired)
    return finding


def grow_stored(finding: Finding, plan: Plan, pool: Pool, expired: Callable[[], bool] = lambda: False) -> Finding:
    """The stored finding with its natural program, which is stored too. Where torch promises nothing, nobody is shown a
    natural program, and none is grown."""
    if finding.unsupported or expired():
        return finding
    grown, _ = grow_finding(finding, task_of(finding.signature, plan), pool, plan.folder, expired)
    write_patiently(plan.db, lambda store: store.set_natural(grown), expired)
    return grown


def _verified(found: Finding, reduction: Reduction, runs: int, verdict: Verdict) -> Finding:
    """The finding with the verdict of all its runs in fresh processes, as it is stored."""
    return replace(
        found,
        signature=verdict.signature,
        detail=without_paths(verdict.detail),
        reproduced=runs,
        runs=runs,
        comparisons=verdict.comparisons,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        note="" if reduction.minimal else f"not proven minimal ({reduction.why})",
        unsupported=why_unsupported(reduction.program, verdict.signature.pattern),
    )


def _keep_regression(corpus: Path, finding: Finding, program: Program) -> None:
    """Write a .prog for a verified finding: its signature and place, then the minimal program."""
    corpus.mkdir(parents=True, exist_ok=True)
    where = f"torch {finding.place.get('torch', '?')}, {finding.place.get('device', '?')}"
    head = [f"{finding.signature} ({where})", f"expect: {finding.signature.verdict} there, agree where it is fixed"]
    (corpus / f"{finding.id}.prog").write_text(show(replace(program, comment=tuple(head))))
