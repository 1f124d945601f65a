"""Bounds: a full disk, a folder that is too large, a compiler that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzer.campaign import bounds
from fuzzer.campaign.bounds import LEAST_FREE_BYTES, Room, compiler_of, folder_bytes
from fuzzer.judgement.trial import Subject
from fuzzer.language.errors import NoMachine


def test_there_is_no_room_on_a_full_disk_until_something_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [LEAST_FREE_BYTES - 1]
    monkeypatch.setattr(bounds, "free_bytes", lambda folder: free[0])
    room = Room(tmp_path, None)
    assert room.lacking() == f"the disk of {tmp_path} has 255 MiB left"
    free[0] += 1
    assert room.lacking() == ""


def test_a_folder_that_is_larger_than_it_may_be_has_no_room_until_it_is_smaller(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "code").write_bytes(b"x" * (3 << 20))
    assert folder_bytes(tmp_path) >= 3 << 20
    room = Room(tmp_path, 2 << 20)
    assert room.lacking() == f"{tmp_path} has 3 MiB, more than --max-disk"
    (tmp_path / "kernels" / "code").unlink()
    assert room.lacking() == ""


def test_without_the_compiler_that_programs_are_built_with_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    monkeypatch.setenv("CXX", str(compiler))
    assert [compiler_of(Subject(*side)) for side in (("eager", "cpu"), ("inductor", "cuda"))] == ["", ""]
    room = Room(tmp_path, None, compiler_of(Subject("inductor:ir", "cpu")))
    assert room.lacking() == f"there is no {compiler}"
    compiler.write_text("")
    compiler.chmod(0o755)
    assert room.lacking() == ""


def test_a_compiler_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    Room(tmp_path, None).require_compiler()
    Room(tmp_path, None, "sh").require_compiler()
    with pytest.raises(NoMachine, match=r"no g\+\+-of-mars, .*CXX"):
        Room(tmp_path, None, "g++-of-mars").require_compiler()
