"""The script for torch's own control flow that is wrong in eager too: it compares with the same in plain Python."""

from __future__ import annotations

from fuzzer.judgement.verdict import BOTH, Finding
from fuzzer.language.program import Program, Region, statements
from fuzzer.language.regions import CONTROL

# In a script's function, the module of the control flow: torch's own, then `_PLAIN`.
MODULE = ["import torch._higher_order_ops as control"]
TO_PLAIN = "control = loops"

_PLAIN = {
    "cond": ["def cond(holds, block, otherwise, given):", "    return (block if holds else otherwise)(*given)"],
    "map": ["def map(block, xs):", "    return tuple(torch.stack(parts) for parts in zip(*(block(x) for x in xs)))"],
    "scan": [
        "def scan(block, carry, xs, reverse=False):",
        "    found = []",
        "    for x in reversed(xs.unbind()) if reverse else xs:",
        "        carry, ys = block(carry, x)",
        "        found.append(ys)",
        "    return carry, tuple(torch.stack(parts) for parts in zip(*found[:: -1 if reverse else 1]))",
    ],
    "while_loop": [
        "def while_loop(goes_on, block, given):",
        "    while goes_on(*given):",
        "        given = block(*given)",
        "    return given",
    ],
}


def eager_loops_wrongly(finding: Finding, program: Program) -> bool:
    """Whether torch's own control flow gives a wrong value in eager too.

    A trial's eager runs the control flow in plain Python, a script's eager runs torch's own.
    """
    return finding.side == BOTH and finding.signature.verdict == "wrong" and bool(_kinds(program))


def plain_loops(program: Program) -> list[str]:
    """The lines of a class with the program's control flow in plain Python."""
    lines = ["class loops:  # the same in plain Python"]
    for kind in _kinds(program):
        lines += ["    @staticmethod", *(f"    {line}" for line in _PLAIN[kind]), ""]
    return lines[:-1]


def _kinds(program: Program) -> list[str]:
    found = {s.kind for s in statements(program.body) if isinstance(s, Region)}
    return [kind for kind in CONTROL if kind in found]
