"""A suspect compared with the faults of the ledger before it is minimized: one or two runs instead of sixty."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzzer.diagnosis.ablation import ablations, outcome_text, with_copies, without_ops, without_region
from fuzzer.judgement.verdict import Finding, Signature
from fuzzer.language.program import Program
from fuzzer.ledger.cause import COPIED, LEFT, WITHOUT
from fuzzer.ledger.errors import UnknownFinding
from fuzzer.ledger.recognise import STAGE, Known, needs_of, recognise
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.ledger.store import open_store
from fuzzer.trial.verify import examine_all
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool


@dataclass(frozen=True)
class Met:
    """A suspect recognised as a known fault: the fault's id (with the ledger's name where that is another), the finding
    that stands for the fault, and the number of experiments."""

    fault: str
    finding: Finding
    experiments: int


def met_as_known(
    program: Program, signature: Signature, db: Path, others: Iterable[Path], task: Task, pool: Pool
) -> Met | None:
    """The fault that explains a program of this signature, from the ledger or from others that are only read; None
    where none does. No ledger is open while the experiments run."""
    held = _held(db, others)
    fault, experiments = fault_shown(program, signature, held, task, pool)
    if fault is None:
        return None
    path = next((path for known, path in held.items() if known.fault == fault), db)
    with open_store(path, create=False) as store:
        try:
            finding = store.get(fault)
        except UnknownFinding:  # it became one with another fault meanwhile; its id begins as that of a variant does
            finding = store.get(fault.removeprefix("F"))
    return Met(_named(fault, path, db), finding, experiments)


def explains(
    fault: str, program: Program, signature: Signature, db: Path, others: Iterable[Path], task: Task, pool: Pool
) -> bool | None:
    """Whether a fault, as `Met` names it, explains a program of this signature; None where no experiment tells."""
    own = [known for known, path in _held(db, others).items() if _named(known.fault, path, db) == fault]
    return fault_shown(program, signature, own, task, pool)[0] is not None if own else None


def _held(db: Path, others: Iterable[Path]) -> dict[Known, Path]:
    """The faults of the ledger, then of others, each with its ledger."""
    held = dict.fromkeys(_faults_of(db), db) if db.exists() else {}
    for path in others:
        held |= {known: path for known in _faults_of(path) if known not in held}
    return held


def fault_elsewhere(finding: Finding, db: Path, others: Iterable[Path], same: bool = False) -> str:
    """The fault of a ledger other than `db` that has this very finding or, unless `same`, that the finding would join
    there; "" where there is none."""
    for path in others:
        with open_store(path, create=False) as store:
            fault = None if same and finding.id not in store.ids() else store.fault_alike(finding)
        if fault is not None:
            return _named(fault, path, db)
    return ""


def _faults_of(path: Path) -> tuple[Known, ...]:
    """The faults of a ledger. It is read again only once it has changed, since that takes a second of a large one."""
    stamp = tuple((at.st_mtime_ns, at.st_size) for at in (_stat(path), _stat(path.with_name(f"{path.name}-wal"))) if at)
    settled = all(time.time_ns() - changed > _SETTLED_NS for changed, _ in stamp)
    return _faults_at(path, stamp) if settled else _faults_at.__wrapped__(path, stamp)


_SETTLED_NS = 1_000_000_000  # a file system tells two changes apart that are so far from each other


def _stat(path: Path) -> os.stat_result | None:
    """What the file system says of a file; None where there is none."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@functools.lru_cache(maxsize=8)
def _faults_at(path: Path, stamp: tuple[tuple[int, int], ...]) -> tuple[Known, ...]:
    """The faults of a ledger whose files changed last at these times, and are so large now."""
    with open_store(path, create=False) as store:
        return store.known_faults()


def _named(fault: str, path: Path, db: Path) -> str:
    return fault if path in (db, SHIPPED) else f"{fault} of {path.name}"


def fault_shown(
    program: Program, signature: Signature, known: Iterable[Known], task: Task, pool: Pool
) -> tuple[str | None, int]:
    """The id of the fault that explains a program of this signature, or None; and the number of experiments run."""
    ran, own = list[str](), STAGE + task.place.subject.backend
    run = experimenter(program, signature, task, pool)

    def answer(name: str) -> str:
        told = run(name)
        ran.extend([name] if told and name != own else [])
        return told

    return recognise(signature, needs_of(program), known, answer), len(ran)


def experimenter(program: Program, signature: Signature, task: Task, pool: Pool) -> Callable[[str], str]:
    """A function that runs the experiment of a name on the program and returns the class that the program then shows.
    Under a task with a stage on trial all experiments run at that stage, and nothing is compiled in full: the stage
    itself reproduces the signature."""
    fresh, own = replace(task, fresh=True), STAGE + task.place.subject.backend
    single = {STAGE + a.name if a.table == "stage" else a.name: a for a in ablations(program, fresh)}

    def answer(name: str) -> str:
        """The class that the program shows under the experiment of this name; "" where there is no such experiment."""
        if name.endswith(LEFT):
            single.update({a.name: a for a in without_ops(program, fresh, [name.removesuffix(LEFT)])})
        elif name.startswith(WITHOUT):
            single[name] = without_region(program, fresh, name.removeprefix(WITHOUT))
        elif name == COPIED:
            single[name] = with_copies(program, fresh)
        found = single.get(name)
        if name == own:
            return signature.verdict
        if found is None or found.skipped:
            return ""
        return outcome_text(examine_all(pool, [(found.task, found.program)])[0], signature.verdict)

    return answer
