"""The journal, by which a death finds its program."""

from __future__ import annotations

from pathlib import Path

from fuzzer.workers.journal import Journal, read_journal, read_turn
from tests.workers import worker_faults as faults


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


def test_a_journal_of_several_programs_tells_whose_turn_it_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.begin(faults.TEXT)
    assert read_turn(journal.path.read_text()) is None
    journal.turn = 3
    journal.begin(faults.TEXT)
    journal.phase("forward")
    assert read_turn(journal.path.read_text()) == 3
    assert read_journal(journal.path.read_text()) == (faults.TEXT, "forward")
    journal.turn = None
    journal.begin("# nobody's")
    assert read_turn(journal.path.read_text()) is None
    assert read_turn("") is None
