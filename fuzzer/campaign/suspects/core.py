"""A core: a suspect cut to the statements that it needs at the first stage that shows it. Its key names its cluster."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from fuzzer.judgement.verdict import Comparison, Signature, Verdict, parse_signature
from fuzzer.language.program import PLAIN_OPS, Program
from fuzzer.language.text import parse, show
from fuzzer.ledger.recognise import kernels_of


@dataclass(frozen=True)
class Key:
    """The cluster of a core. Suspects of one key are taken for one fault until an experiment says otherwise.

    pattern  of the difference; for an exception its type and its innermost functions.
    stage    the first backend that shows it (`diagnosis.ablation.STAGES`).
    kernels  of the core, in alphabetical order.
    """

    verdict: str
    direction: str
    pattern: str
    stage: str
    kernels: tuple[str, ...]

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.verdict, self.direction, self.pattern)))
        return f"{about} at {self.stage} through {', '.join(self.kernels)}"


@dataclass(frozen=True)
class Core:
    """A suspect's program cut to the statements that it needs.

    verdict  on this program at the stage, in the second look.
    stage    the first backend that shows it; the compiler's own name where only code does.
    before   the numbers of the whole suspect there, in a line.
    shown    of so many `builds` of the whole suspect, which is then its own core; 0 of 0 where it was sorted.
    """

    program: Program
    verdict: Verdict
    stage: str
    before: str = ""
    shown: int = 0
    builds: int = 0

    @property
    def signature(self) -> Signature:
        """What the core shows at its stage."""
        return self.verdict.signature

    @functools.cached_property
    def key(self) -> Key:
        """The core's cluster."""
        s = self.signature
        return Key(s.verdict, s.direction, s.pattern, self.stage, tuple(sorted(kernels_of(self.program))))

    @property
    def told(self) -> str:
        """The difference in one line: what is wrong, through which kernels, and the numbers."""
        telling = [name for name in self.key.kernels if name not in PLAIN_OPS]
        through = f"through {', '.join(telling or self.key.kernels)}"
        if not self.verdict.comparisons:
            return f"{self.signature.verdict} {through}: {' '.join(self.verdict.detail.split())[:_WIDTH]}"
        worst = self.verdict.comparisons[0]
        leaf, dot, _ = worst.name.rpartition(".grad")
        where = f"gradient of {leaf}" if dot else f"output {worst.name}"
        numbers = f"compiled {worst.compiled:.6g}, eager {worst.eager:.6g}, floor {worst.floor:.2g}"
        return f"{self.signature.verdict} {where} {through}: {numbers}"


_WIDTH = 200  # characters of an exception's message


def encode_core(core: Core) -> str:
    """A core as one line of JSON."""
    verdict: dict[str, Any] = {"signature": str(core.signature), "detail": core.verdict.detail}
    verdict |= {"comparisons": [asdict(c) for c in core.verdict.comparisons]}
    built = {"shown": core.shown, "builds": core.builds} if core.builds else {}
    return json.dumps({"stage": core.stage, "program": show(core.program), "before": core.before, **verdict, **built})


def decode_core(line: str) -> Core:
    """The core of a line that `encode_core` wrote."""
    row: dict[str, Any] = json.loads(line)
    comparisons = tuple(replace(c, index=tuple(c.index)) for c in (Comparison(**kept) for kept in row["comparisons"]))
    verdict = Verdict(parse_signature(row["signature"]), row["detail"], comparisons)
    built = row.get("shown", 0), row.get("builds", 0)
    return Core(parse(row["program"]), verdict, row["stage"], row["before"], *built)
