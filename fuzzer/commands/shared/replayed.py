"""The result of a program that was replayed: as lines, a row of JSON, a case of JUnit, a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuzzer.judgement.expectation import as_expected
from fuzzer.judgement.verdict import Verdict
from fuzzer.workers.messages import Report

AGREE, REFUSED = "agree", "rejected"
UNREADABLE = "unreadable"  # of a file that is no program: beside the classes of verdicts


@dataclass(frozen=True)
class Replayed:
    """The result of one program.

    program  its file or id.  shown  a class, or UNREADABLE.  why  it could not run; "" where it ran.
    wanted   the classes that it may show.  seconds  in its worker.
    built, detectable, elements, verdicts, stderr  as in a Report.
    """

    program: str
    shown: str
    why: str = ""
    wanted: tuple[str, ...] = (AGREE,)
    verdicts: tuple[Verdict, ...] = ()
    built: str = ""
    detectable: int = 0
    elements: int = 0
    seconds: float = 0.0
    stderr: str = ""

    @property
    def ran(self) -> bool:
        return self.shown not in (REFUSED, UNREADABLE)

    @property
    def passed(self) -> bool:
        """Whether it ran and showed one of the wanted classes."""
        return self.ran and as_expected(self.shown, self.wanted)

    @property
    def head(self) -> str:
        """The class of the program, with the reason why it could not run, or the wanted classes."""
        if not self.ran:
            return f"{self.shown} ({self.why})"
        built = f" (built: {self.built})" if self.built else ""
        told = "" if self.wanted == (AGREE,) else f" (expected: {' or '.join(self.wanted)})"
        return f"{self.shown}{told}{built}"

    @property
    def evidence(self) -> list[str]:
        """Signature and detail of each verdict."""
        return [line for v in self.verdicts for line in (f"  {v.signature}", f"    {v.detail}")]

    @property
    def row(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "class": self.shown,
            "expected": list(self.wanted),
            "rejected": self.why,
            "built": self.built,
            "verdicts": [{"signature": str(v.signature), "detail": v.detail} for v in self.verdicts],
            "detectable": self.detectable,
            "elements": self.elements,
            "seconds": round(self.seconds, 2),
        }


def unreadable(program: str, error: Exception) -> Replayed:
    """A file that is no program."""
    return Replayed(program, UNREADABLE, str(error).removeprefix(f"{program}: "))


def replayed(program: str, report: Report, wanted: tuple[str, ...] = (AGREE,)) -> Replayed:
    """The result of a program from its Report."""
    seconds = sum(took for phase, took in report.seconds.items() if phase != "cpu")  # which is of all phases
    return Replayed(
        program,
        report.verdict,
        report.rejected,
        wanted,
        report.verdicts,
        report.built,
        report.detectable,
        report.elements,
        seconds,
        report.stderr,
    )
