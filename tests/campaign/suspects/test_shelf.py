"""Suspects as files: none is lost, and each is what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fuzzer.campaign.plan import Plan
from fuzzer.campaign.suspects.shelf import Shelf, shelved
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.language.text import parse
from tests.campaign.fakes import OTHER, PROGRAM, SIGNATURE, TANH, waiting
from tests.campaign.suspects.test_core import CORE

SUSPECTS = [
    Suspect(parse(PROGRAM), SIGNATURE),
    Suspect(parse(TANH), OTHER, "ir"),
    Suspect(parse(TANH), replace(OTHER, pattern="a/b")),
    Suspect(parse(PROGRAM), SIGNATURE, "ir", CORE, source="around"),
]


def test_suspects_are_read_as_they_were_put_and_their_files_are_programs(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "new")
    for suspect in SUSPECTS:
        shelf.put(suspect)
    assert sorted(shelf.suspects(), key=repr) == sorted(SUSPECTS, key=repr)
    assert {parse(path.read_text()).nodes for path in shelf.folder.iterdir()} == {
        parse(PROGRAM).nodes,
        parse(TANH).nodes,
    }
    assert [(s.core, s.source) for s in shelf.suspects() if s.core is not None] == [(CORE, "around")]
    shelf.drop(SUSPECTS[1])
    assert len(shelf.suspects()) == 3


def test_suspects_move_to_the_campaign_that_goes_on(tmp_path: Path) -> None:
    old, new = Shelf(tmp_path / "old"), Shelf(tmp_path / "new")
    old.put(SUSPECTS[0])
    assert new.take_over(old) == new.suspects() == [SUSPECTS[0]]
    assert old.suspects() == []


def test_a_suspect_is_on_disk_from_when_it_is_queued_until_it_is_decided(plan: Plan) -> None:
    triage = waiting(plan)
    triage.enqueue(SUSPECTS[1])
    assert triage.shelf.suspects() == [SUSPECTS[1]]
    triage.fruitless[str(OTHER)] = 99
    assert triage.leave() == 0


def test_a_file_is_a_shelved_suspect_if_it_has_a_core(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for suspect in SUSPECTS:
        shelf.put(suspect)
    assert [found for path in tmp_path.iterdir() if (found := shelved(path.read_text()))] == [SUSPECTS[3]]
    assert shelved(PROGRAM) is None
    assert shelved("# a remark\n" + PROGRAM) is None
