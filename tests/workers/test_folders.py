"""Temporary folders: those of the dead are removed, those of the living are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzer.language.errors import NoMachine, UsageError
from fuzzer.workers.folders import Folder, alone, check_paths, in_command, lock_file
from tests.workers.asked import ROOT

KILLED = """
import os, signal, sys
from pathlib import Path
from fuzzer.workers.folders import Folder
folder = Folder(Path(sys.argv[1]), "some-")
(folder.path / "compiled").write_text("code")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_goes_with_the_next_and_a_living_ones_stays(tmp_path: Path) -> None:
    mine, other = Folder(tmp_path, "some-"), tmp_path / "some-text"
    other.write_text("not a folder")
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    [left] = set(tmp_path.iterdir()) - {mine.path, other}
    assert (left / "compiled").exists()
    second = Folder(tmp_path, "some-")
    assert {*tmp_path.iterdir()} == {mine.path, other, second.path}
    mine.remove()
    second.remove()
    assert [*tmp_path.iterdir()] == [other]


def test_a_file_is_locked_once(tmp_path: Path) -> None:
    held = lock_file(tmp_path / "lock")
    assert held is not None
    assert lock_file(tmp_path / "lock") is None
    os.close(held)
    assert lock_file(tmp_path / "lock") is not None


def test_a_second_campaign_in_a_folder_is_refused_and_told_whose_it_is(tmp_path: Path) -> None:
    with (
        alone(tmp_path / "own", "backfuzz fuzz --seed 7"),
        pytest.raises(UsageError, match=f"process {os.getpid()}: backfuzz fuzz --seed 7.*another folder"),
        alone(tmp_path / "own", "backfuzz fuzz"),
    ):
        raise AssertionError("both run")
    with alone(tmp_path / "own", "backfuzz fuzz"):
        assert (tmp_path / "own" / "lock").exists()
    assert not list((tmp_path / "own").iterdir())


@pytest.mark.parametrize(
    ("name", "held"), [("größer", True), ("with space", False), ("it's", False), ("back\\slash", False)]
)
def test_a_folder_lies_where_a_compile_command_can_hold_its_path(tmp_path: Path, name: str, held: bool) -> None:
    parent = tmp_path / name
    parent.mkdir()
    folder = Folder(parent, "some-")
    assert (folder.path.parent == parent) == held
    assert in_command(folder.path)
    folder.remove()


def test_where_temporary_files_cannot_be_compiled_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_paths(["cpu"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "with space"))
    with pytest.raises(NoMachine, match=r"temporary files lie .* in '.*with space'"):
        check_paths(["cpu"])
    check_paths(["cuda"])


def test_where_torch_cannot_be_compiled_against_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__path__", ["/a b/torch"])
    with pytest.raises(NoMachine, match="torch lies in '/a b/torch'"):
        check_paths(["cpu", "cuda"])
