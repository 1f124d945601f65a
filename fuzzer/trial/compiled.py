"""The side on trial of a program or a function: compiled, observed, and explained by torch where two runs differ."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import torch

from fuzzer.judgement.oracles import differing_tensors
from fuzzer.judgement.planted import planted
from fuzzer.judgement.planted.fault import Tamper
from fuzzer.judgement.trial import PENDING, Code, Observation, Subject, Trial
from fuzzer.language.private import output_code, reset_compiler, without_part
from fuzzer.language.program import Attributes
from fuzzer.language.settings import in_force
from fuzzer.trial.kernel_units import NotBuilt
from fuzzer.trial.observe import observe, side_of
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task


class Compiled:
    """The side on trial of one piece of code, compiled under its settings, with the faults that the task plants and
    without the parts that it leaves out.

    side   the side that is observed, where no stage is on trial;  codes  the Python modules that inductor wrote for it.
    fired  planted faults that acted in runs that were interrupted: the code of these is kept.
    """

    def __init__(self, code: Code, task: Task, journal: Journal):
        self.code, self.task, self.journal = code, task, journal
        self.side = side_of(code, task.place.subject, journal.phase)
        self.codes: list[str] = []
        self.fired = frozenset[str]()

    def run(self, trial: Trial) -> Observation:
        """The Observation; where two runs differ, with the reason that torch gives."""
        return self.explain(self.observe(), trial)

    def observe(self) -> Observation:
        """The Observation. Raises NotBuilt: then this may be called again (`Side.observe`)."""
        with self._circumstances() as tamper, output_code(self.codes.append):
            try:
                seen = self._observe()
            except NotBuilt:
                self.fired |= {*tamper(Observation(PENDING)).fired}
                raise
            seen = tamper(seen)
            if seen.again is not None:
                seen.again = tamper(seen.again)
        seen.fired = tuple(sorted(self.fired.union(seen.fired)))
        if self.codes:
            seen.atomics = any("atomic_add" in code for code in self.codes)
        return seen

    def _observe(self) -> Observation:
        subject = self.task.place.subject
        return observe(self.code, subject, self.journal.phase) if subject.stage else self.side.observe()

    def explain(self, seen: Observation, trial: Trial) -> Observation:
        """The same Observation; where its two runs differ, with the reason that torch gives. Forgets the
        compiled code."""
        if seen.again is not None and differing_tensors(trial.named(seen), trial.named(seen.again)):
            with self._circumstances():
                seen.admitted = determinism_note(self.code, trial, self.task.place.subject, self.journal)
        return seen

    @contextlib.contextmanager
    def _circumstances(self) -> Iterator[Tamper]:
        # a planted fault is in no cache key, and the benign run of the same program must not meet its code
        uncached: Attributes = (("inductor.force_disable_caches", True),) if self.task.fresh or self.task.canary else ()
        with contextlib.ExitStack() as stack:
            stack.enter_context(in_force((*self.code.settings, *uncached)))
            tamper = stack.enter_context(planted(self.task.canary, "subject"))
            for name in self.task.lacking:
                stack.enter_context(without_part(name))
            yield tamper


def determinism_note(code: Code, trial: Trial, subject: Subject, journal: Journal) -> str:
    """For code whose two runs differ: the operation that torch.use_deterministic_algorithms refuses, or that the
    runs do not differ under it; "" for neither."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    reset_compiler()
    # Not warn_only: what a kernel says that torch.ops calls, or autograd's own thread, reaches no Python warning.
    torch.use_deterministic_algorithms(True)
    try:
        seen = observe(code, subject, journal.phase)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    if seen.again is not None and not differing_tensors(trial.named(seen), trial.named(seen.again)):
        return "two runs are equal under torch.use_deterministic_algorithms"
    said = seen.raised.message if seen.raised else ""
    refused = re.search(r"[^\n]*?(?:deterministic implementation|not deterministic)", said)
    return f"torch says: {refused[0]}" if refused else ""
