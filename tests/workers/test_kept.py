"""Files that are kept from one process to the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzzer.workers.kept import keep, kept_folder, longest_unused


def test_files_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert kept_folder("headers") == Path("/somewhere/backfuzz/headers")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert kept_folder("headers") == Path.home() / ".cache" / "backfuzz" / "headers"


def test_a_file_is_kept_whole_and_replaces_the_one_before(tmp_path: Path) -> None:
    made, kept = tmp_path / "made", tmp_path / "folder" / "kept"
    for text in ("old", "new"):
        made.write_text(text)
        keep(made, kept)
        assert kept.read_text() == made.read_text() == text
        assert list(kept.parent.iterdir()) == [kept]


def test_a_file_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        keep(tmp_path / "nothing", tmp_path / "folder" / "kept")
    assert list((tmp_path / "folder").iterdir()) == []


def test_the_longest_unused_are_those_beyond_the_most(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (number, number))
    os.utime(tmp_path / "a", (9, 9))
    files = list(tmp_path.iterdir())
    assert [path.name for path in longest_unused(files, 2)] == ["b", "c"]
    assert longest_unused(files, 4) == []
