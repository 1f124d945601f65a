"""`backfuzz export`."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tests.commands.calls import FINDING, call, refused


def test_export_writes_an_executable_script_and_the_draft_of_an_issue(db: Path) -> None:
    done = call("export", FINDING.id, "--db", db, "--json")
    assert done.exit_code == 0
    script, issue = map(Path, json.loads(done.stdout)["files"])
    assert (script.name, issue.name) == ("repro.py", "issue.md")
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= {"os", "sys", "torch"}
    assert "relu" in issue.read_text()


def test_export_into_what_is_no_folder_is_told(db: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: File exists" in refused(call("export", FINDING.id, "--db", db, "--out", "file"))
