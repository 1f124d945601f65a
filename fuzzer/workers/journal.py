"""A worker's log of its work, read by the parent process after a death: the program, then each phase as it begins.

With several programs at once, the log also says whose turn it is.
"""

from __future__ import annotations

from pathlib import Path

_PHASE, _TURN = "# phase: ", "# turn: "
DIED_DRAWING = "died while it was drawn"  # the phase of a program that is drawn with everything written down


class Journal:
    """A worker's log: the program, before it runs, then each phase as it begins. The parent reads it after a death.

    turn   which of several programs has its turn; None where the worker has one program, or none has its turn.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.phase_name = ""
        self.turn: int | None = None

    def begin(self, text: str) -> None:
        if self.path is not None:
            whose = "" if self.turn is None else f"{_TURN}{self.turn}\n"
            self.path.write_text(f"{whose}{text}\n{_PHASE}begin\n")

    def phase(self, name: str) -> None:
        self.phase_name = name
        if self.path is not None:
            with self.path.open("a") as log:
                log.write(f"{_PHASE}{name}\n")


def read_journal(text: str) -> tuple[str, str]:
    """(program text, last phase) of a journal."""
    lines = text.splitlines()
    phases = [line.removeprefix(_PHASE) for line in lines if line.startswith(_PHASE)]
    program = [line for line in lines if not line.startswith((_PHASE, _TURN))]
    return "\n".join(program).strip() + "\n", phases[-1] if phases else ""


def read_turn(text: str) -> int | None:
    """Which of several programs had its turn; None where none had, or the worker had one program."""
    first = text.partition("\n")[0]
    return int(first.removeprefix(_TURN)) if first.startswith(_TURN) else None


_journal = Journal(None)


def journal() -> Journal:
    """The log of this worker."""
    return _journal


def use_journal(path: Path) -> None:
    """Log to this file from now on."""
    global _journal
    _journal = Journal(path)
