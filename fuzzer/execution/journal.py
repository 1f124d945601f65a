"""A worker's log of what it is doing, read by its parent after a death: the program, then each phase entered."""

from __future__ import annotations

from pathlib import Path


class Journal:
    """A worker's log: the program, before it runs, then each phase entered. Read by the parent after a death."""

    def __init__(self, path: Path | None):
        self.path = path
        self.phase_name = ""

    def begin(self, text: str) -> None:
        if self.path is not None:
            self.path.write_text(text + "\n# phase: begin\n")

    def phase(self, name: str) -> None:
        self.phase_name = name
        if self.path is not None:
            with self.path.open("a") as log:
                log.write(f"# phase: {name}\n")


def read_journal(text: str) -> tuple[str, str]:
    """(program text, last phase) of a journal."""
    lines = text.splitlines()
    phases = [line.removeprefix("# phase: ") for line in lines if line.startswith("# phase: ")]
    program = [line for line in lines if not line.startswith("# phase: ")]
    return "\n".join(program).strip() + "\n", phases[-1] if phases else ""


_journal = Journal(None)


def journal() -> Journal:
    """The log of this worker."""
    return _journal


def use_journal(path: Path) -> None:
    """Log to this file from now on."""
    global _journal
    _journal = Journal(path)
