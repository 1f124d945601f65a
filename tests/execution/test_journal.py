"""The journal, by which a death finds its program."""

from __future__ import annotations

from pathlib import Path

from fuzzer.execution.journal import Journal, read_journal
from tests.execution import worker_faults as faults


def test_a_journal_tells_the_program_and_its_last_phase(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.begin(faults.TEXT)
    assert read_journal(journal.path.read_text()) == (faults.TEXT, "begin")
    journal.phase("reference forward")
    journal.phase("backward")
    assert read_journal(journal.path.read_text()) == (faults.TEXT, "backward")
    journal.begin("# another\n")
    assert read_journal(journal.path.read_text())[0] == "# another\n"
    assert read_journal("") == ("\n", "")
