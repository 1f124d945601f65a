"""A suspect held against the faults of the ledger, before it is minimized: one or two runs instead of sixty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fuzzer.diagnosis.ablation import ablations, outcome_text, without_ops
from fuzzer.execution.messages import Task
from fuzzer.execution.pool import Pool
from fuzzer.execution.verify import examine_all
from fuzzer.findings.cause import LEFT
from fuzzer.findings.recognise import STAGE, Known, recognise
from fuzzer.judgement.verdict import Signature
from fuzzer.language.program import Program
from fuzzer.language.text import parse


def fault_shown(text: str, signature: Signature, known: Iterable[Known], task: Task, pool: Pool) -> str | None:
    """The id of the fault that explains a program of this signature; None where none of these does."""
    program = parse(text)
    return recognise(
        signature, (node.op for node in program.nodes), known, experimenter(program, signature, task, pool)
    )


def experimenter(program: Program, signature: Signature, task: Task, pool: Pool) -> Callable[[str], str]:
    """A function that runs the experiment of a name on the program and tells the class that it then shows."""
    fresh = replace(task, fresh=True)
    single = {STAGE + a.name if a.table == "stage" else a.name: a for a in ablations(program, fresh)}

    def answer(name: str) -> str:
        """The class that the program shows under the experiment of this name; "" where there is none."""
        if name.endswith(LEFT):
            single.update({a.name: a for a in without_ops(program, fresh, [name.removesuffix(LEFT)])})
        found = single.get(name)
        if found is None or found.skipped:
            return ""
        return outcome_text(examine_all(pool, [(found.task, found.text)])[0], signature.verdict)

    return answer
