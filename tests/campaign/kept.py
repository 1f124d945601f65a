"""Programs that a campaign keeps, and what they showed."""

from __future__ import annotations

from fuzzer.coverage.frontier import KeptProgram, packed
from fuzzer.workers.messages import Report

HERE = {"torch": "2.13.0", "backend": "inductor", "device": "cpu"}


def text(seed: int) -> str:
    return f"""program(1)
route("autograd")
x0 = leaf(f32[4], seed={seed})
v0 = exp(x0)
backward(v0, cotangent(f32[4]))
"""


def shown(seed: int, *numbers: int, seconds: float = 1.0) -> Report:
    return Report(text(seed), features={"operand": frozenset(numbers)}, seconds={"subject": seconds})


def kept(name: str, nodes: int, seconds: float, *numbers: int) -> KeptProgram:
    return KeptProgram(nodes, seconds, name, {"operand": packed(numbers)})
