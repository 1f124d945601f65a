"""`backfuzz export`."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.export.demonstration import Compared, Demonstration
from fuzzer.export.machine import ONE_THREAD, PERTURBED
from fuzzer.judgement.verdict import Finding, Natural
from fuzzer.ledger.scope import Scope
from fuzzer.ledger.store import open_store
from tests.commands.calls import FINDING, RELU, call, refused
from tests.ledger.varied import SHAPES, scope

WIDE = RELU.replace("[4]", "[3, 3]")
NATURAL = replace(FINDING, natural=Natural(WIDE, FINDING.signature, "x0.grad[0, 0]: compiled 7, eager 1"))
FAR = Compared("x0.grad", (0, 0), 7.0, 1.0, 1.0, 1, 9, "not close!\n\nMismatched elements: 1 / 9", False)


class Scripts:
    """Runs no script: one shows its fault where `shows` says so, in whatever environment. Nothing is collected; the
    scope is `varied`."""

    varied: Scope | None = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *shows: bool):
        self.asked: list[str] = []
        answers = iter(shows)

        def demonstrate(text: str, finding: Finding, bare: bool = True, compares: bool = True) -> Demonstration:
            if bare:
                self.asked.append(text)
            code = int(next(answers)) if bare else 0
            return Demonstration(code, "x0.grad: ...\n", "", torch.__version__, "cpu", (FAR,))

        monkeypatch.setattr("fuzzer.diagnosis.demonstrate.demonstrate", demonstrate)
        monkeypatch.setattr("fuzzer.diagnosis.demonstrate.versions", lambda: "PyTorch version: 9")
        monkeypatch.setattr("fuzzer.commands.shared.again.vary_one", lambda *given: self.varied)


def stored(db: Path, finding: Finding = NATURAL) -> Path:
    with open_store(db) as opened:
        opened.set_natural(finding)
    return db


def test_export_writes_executable_scripts_and_the_draft_of_an_issue(db: Path) -> None:
    done = call("export", FINDING.id, "--db", stored(db), "--json", "--no-run")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    script, minimal, issue = map(Path, told["files"])
    assert (script.name, minimal.name, issue.name, told["repro"]) == ("repro.py", "minimal.py", "issue.md", "not run")
    for path in (script, minimal):
        tree = ast.walk(ast.parse(path.read_text()))
        imported = {
            alias.name.partition(".")[0] for node in tree if isinstance(node, ast.Import) for alias in node.names
        }
        assert imported <= {"os", "sys", "torch"}
    assert "torch.randn(3, 3)" in script.read_text()
    assert "It was not run when this was written." in issue.read_text()


def test_the_natural_script_comes_first_and_only_what_it_was_seen_to_do_is_claimed(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = Scripts(monkeypatch, True, True)
    done = call("export", f"F{FINDING.id[:7]}", "--db", stored(db))
    assert done.exit_code == 0
    assert "torch.randn(3, 3)" in scripts.asked[0]
    folder = Path("export") / f"F{FINDING.id[:7]}"
    assert sorted(path.name for path in folder.iterdir()) == ["issue.md", "minimal.py", "repro.py"]
    text = (folder / "issue.md").read_text()
    assert f"(torch {torch.__version__}, cpu): it exited with 1" in text
    assert "Expected `x0.grad[0, 0]` to be 1, as in eager; compiled code gives 7." in text
    assert "PyTorch version: 9" in text
    assert text.index("torch.randn(3, 3)") < text.index("`minimal.py`")


def test_torchs_own_numbers_are_given_up_where_they_show_nothing_and_then_the_natural_program(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = Scripts(monkeypatch, False, True, False)
    assert call("export", FINDING.id, "--db", stored(db), "--out", "a").exit_code == 0
    assert "torch.randn" not in scripts.asked[1]
    assert (Path("a") / "repro.py").read_text() == scripts.asked[1]
    assert not (Path("a") / "minimal.py").exists()
    Scripts(monkeypatch, False, False, True)
    assert call("export", FINDING.id, "--db", db, "--out", "b").exit_code == 0
    assert "(4" in (Path("b") / "repro.py").read_text()


def test_the_scope_is_measured_once_and_told(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Scripts(monkeypatch, True, True, True, True, True, True)
    scripts.varied = scope(*SHAPES, finding=FINDING.id)
    told = []
    for options in (("--no-vary",), (), ()):
        assert call("export", FINDING.id, "--db", stored(db), "--out", "a", *options).exit_code == 0
        told.append("k = x1.shape[1]" in (Path("a") / "issue.md").read_text())
        if options == () and len(told) == 2:
            scripts.varied = None
    assert told == [False, True, True]


def test_a_script_that_shows_nothing_on_the_torch_where_it_was_found_is_an_error(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripts(monkeypatch, False)
    done = call("export", FINDING.id, "--db", db, "--no-natural")
    told = (
        f"{FINDING.id}: its script exited with 0 on torch {torch.__version__}, where the fault was found; it printed: "
    )
    assert told + "x0.grad: ..." in refused(done)
    assert not Path("export").exists()
    Scripts(monkeypatch, False)
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert call("export", FINDING.id, "--db", db, "--no-natural").exit_code == 0
    text = (Path("export") / FINDING.id / "issue.md").read_text()
    assert "it exited with 0; it was found with torch" in text


def test_a_script_that_shows_nothing_without_a_workers_environment_has_lines_for_it(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def demonstrate(text: str, finding: Finding, bare: bool = True, compares: bool = True) -> Demonstration:
        return Demonstration(int(not bare or ONE_THREAD in text), "x\n", "", torch.__version__, "cpu")

    Scripts(monkeypatch)
    monkeypatch.setattr("fuzzer.diagnosis.demonstrate.demonstrate", demonstrate)
    assert call("export", FINDING.id, "--db", db, "--no-natural", "--no-vary", "--kin", "#7").exit_code == 0
    folder = Path("export") / FINDING.id
    text = (folder / "repro.py").read_text()
    assert ONE_THREAD in text
    assert PERTURBED not in text
    assert f"# Shows on torch {torch.__version__}, cpu (" in text
    assert "Related: #7." in (folder / "issue.md").read_text()


@pytest.mark.parametrize("shows", [True, False])
def test_a_program_that_was_not_grown_yet_is_grown_and_stored(
    shows: bool, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripts(monkeypatch, True, True)
    grown: Any = (NATURAL, ("usual_sizes",), 3) if shows else None
    monkeypatch.setattr("fuzzer.commands.shared.again.grow_one", lambda *_: grown)
    done = call("export", FINDING.id, "--db", db)
    assert done.exit_code == 0
    assert f"{FINDING.id}: growing its minimal program" in done.stderr
    with open_store(db, create=False) as store:
        assert (store.get(FINDING.id).natural is not None) == shows


def test_what_was_found_on_another_device_is_run_and_grown_on_the_one_that_is_named(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(FINDING, place=FINDING.place | {"device": "cuda", "against": "eager@cuda"})
    monkeypatch.setattr("fuzzer.ledger.store.Store.get", lambda *_: elsewhere)
    scripts, asked = Scripts(monkeypatch, True), list[Any]()
    monkeypatch.setattr("fuzzer.commands.shared.again.grow_one", lambda *given: asked.append(given[1:]))
    done = call("export", FINDING.id, "--device", "cpu", "--db", db)
    assert done.exit_code == 0
    assert asked == [("cpu", None)]
    assert "cuda" not in scripts.asked[0]
    text = (Path("export") / FINDING.id / "issue.md").read_text()
    assert text.splitlines()[0].endswith("(cpu)")
    assert f"it exited with 1; it was found with torch {torch.__version__}, cuda." in text


def test_nothing_runs_on_a_machine_without_the_device(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.commands.shared.handover.runs_here", lambda *_: False)
    done = call("export", FINDING.id, "--db", db)
    assert done.exit_code == 0
    assert "repro.py: not run" in done.stdout


def test_export_into_what_is_no_folder_is_told(db: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: File exists" in refused(call("export", FINDING.id, "--db", db, "--out", "file", "--no-run"))


def confirm_two(db: Path) -> None:
    """Two faults to post."""
    other = replace(FINDING, program=FINDING.program.replace("relu", "exp"), stages={"eager": "wrong"})
    with open_store(db) as opened:
        opened.add(other)
    for finding in (FINDING, other):
        call("triage", finding.id, "confirmed", "--db", db)


def test_the_most_severe_to_post_are_exported_and_one_that_shows_nothing_stops_no_other(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm_two(db)
    Scripts(monkeypatch, True, False)
    done = call("export", "--top", "5", "--db", db)
    assert done.exit_code == 2
    first, second = done.stdout.splitlines()
    assert first.startswith("1 of 2  F")
    assert "repro.py exited with 1" in first
    assert second.startswith("1 of 2  F")
    assert "its script exited with 0" in second
    assert len([*Path("export").iterdir()]) == 1
    Scripts(monkeypatch, True)
    [row] = json.loads(call("export", "--top", "1", "--db", db, "--out", "best", "--json").stdout)
    assert {Path(name).parent for name in row["files"]} == {Path("best") / row["fault"]}


def test_a_fault_of_another_torch_that_does_not_show_here_is_left_out_and_the_next_takes_its_place(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm_two(db)
    monkeypatch.setattr(torch, "__version__", "99.0")
    Scripts(monkeypatch, False, True)
    done = call("export", "--top", "1", "--db", db)
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.startswith("0 of 1  F")
    assert "left out: its script exited with 0 on torch 99.0, cpu; the fault was found on torch" in first
    assert second.startswith("1 of 1  F")
    assert "repro.py exited with 1" in second
    assert len([*Path("export").iterdir()]) == 1


def test_one_fault_or_the_first_of_the_list_is_asked_for(db: Path) -> None:
    for given in ((), (FINDING.id, "--top", "3")):
        assert "--top N" in refused(call("export", *given, "--db", db))
