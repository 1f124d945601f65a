"""The result of running a finding's script, and sentences about it."""

from __future__ import annotations

from dataclasses import dataclass

from fuzzer.export.machine import Machine
from fuzzer.judgement.verdict import BOTH, EAGER


@dataclass(frozen=True)
class Compared:
    """A tensor of both sides at the element where they are furthest apart, and the usual comparisons of it.

    index   () also for a tensor without dimensions.  off, total   elements that differ, and all.
    compiled   the other side: compiled code's, or where no compiler runs what eager is held against, which `against`
               names ("contiguous inputs", "float64").
    close   the message of torch.testing.assert_close at its defaults; "" where it passes.
    same    the result of torch._dynamo.utils.same with eager in float64 as its reference.
    """

    name: str
    index: tuple[int, ...]
    compiled: float
    eager: float
    exact: float
    off: int
    total: int
    close: str
    same: bool
    against: str = ""


@dataclass(frozen=True)
class Demonstration:
    """A script's run in a fresh process.

    code      its exit status; None where its time ran out.
    output    its standard output;  error   the last line of its stderr.
    compared  the tensors that it compares.
    torch, device   where it ran;  machine   the same and more.
    bare      whether it ran in a plain environment, as a reader runs it; else in a worker's.
    """

    code: int | None
    output: str
    error: str
    torch: str
    device: str
    compared: tuple[Compared, ...] = ()
    machine: Machine | None = None
    bare: bool = True

    @property
    def where(self) -> str:
        """Where it ran, in words."""
        return f"torch {self.torch}, {self.device}" if self.machine is None else str(self.machine)

    @property
    def shows(self) -> bool:
        """Whether the fault was there: a script that died of another error shows nothing."""
        return self.code == 1 and bool(self.output.strip())

    def told(self) -> str:
        """The result in a few words."""
        if self.code is None:
            return "ran out of its time"
        why = f" ({self.error})" if self.error and self.code not in (0, 1) else ""
        return f"exited with {self.code}{why}"


def expected(c: Compared, side: str, exact: bool = False) -> str:
    """Expected and actual in one sentence, by the side that is wrong (`verdict.COMPILED`, ...).

    exact   where eager is wrong: whether the right value comes from float64; else from compiled code.
    """
    where = f"`{c.name}[{', '.join(map(str, c.index))}]`" if c.index else f"`{c.name}`"
    if c.against:
        return f"Expected {where} to be {c.compiled:.6g}, as with {c.against}; eager gives {c.eager:.6g}."
    if side == BOTH:
        return f"Neither side gives the derivative at {where}: eager {c.eager:.6g}, compiled code {c.compiled:.6g}."
    if side == EAGER and exact:
        return f"Expected {where} to be {c.exact:.6g}, as in float64; eager gives {c.eager:.6g}."
    if side == EAGER:
        return f"Expected {where} to be {c.compiled:.6g}, which compiled code gives; eager gives {c.eager:.6g}."
    return f"Expected {where} to be {c.eager:.6g}, as in eager; compiled code gives {c.compiled:.6g}."


def comparisons(compared: tuple[Compared, ...], side: str) -> str:
    """The results of the usual comparisons. Where eager is wrong, eager in float64 may be wrong too and is left out."""
    fails = [c for c in compared if c.close]
    names = ", ".join(f"`{c.name}`" for c in fails)
    close = f"fails for {names}" if fails else "passes: the difference is within its tolerances"
    text = f"`torch.testing.assert_close` at its defaults {close}"
    if fails:
        text += f" ({mismatch(fails[0].close)})"
    if side in (EAGER, BOTH) or any(c.against for c in compared):
        return f"{text}."
    others = ", ".join(f"`{c.name}`" for c in compared if not c.same)
    same = f"is false for {others}" if others else "is true"
    return f"{text}; `torch._dynamo.utils.same` with a float64 reference {same}."


def mismatch(message: str) -> str:
    """assert_close's message in one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "; ".join(lines[1:] if len(lines) > 1 else lines)
