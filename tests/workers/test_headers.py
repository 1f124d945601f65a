"""Precompiled headers that outlive a fork server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzer.workers import headers
from fuzzer.workers.headers import MOST_KEPT, headers_apart, keep_headers
from fuzzer.workers.server import clean_environment
from tests.workers.asked import ROOT


class Inductor:
    """What inductor does with its headers: it makes one in its own folder, unless it is there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.made = folder, list[str]()
        monkeypatch.setattr(headers, "watch_headers", self.watch)

    def watch(self, used: object) -> Path:
        self.used = used
        return self.folder

    def use(self, name: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        header, built = self.folder / f"{name}.h", self.folder / f"{name}.h.gch"
        header.write_text(f"#include <{name}>\n")
        if not built.exists():
            built.write_text(f"built {name}")
            self.made.append(name)
        self.used(header)  # type: ignore[operator]


def test_a_header_is_made_once_for_all_fork_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    first, second = Inductor(tmp_path / "a" / "headers", monkeypatch), Inductor(tmp_path / "b" / "headers", monkeypatch)
    monkeypatch.setattr(headers, "watch_headers", first.watch)
    keep_headers(kept)
    first.use("prefix")
    monkeypatch.setattr(headers, "watch_headers", second.watch)
    keep_headers(kept)
    second.use("prefix")
    assert (first.made, second.made) == (["prefix"], [])
    assert (second.folder / "prefix.h.gch").read_text() == "built prefix"
    assert sorted(path.name for path in kept.iterdir()) == ["prefix.h", "prefix.h.gch"]


def test_the_header_that_was_not_used_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inductor, kept = Inductor(tmp_path / "own", monkeypatch), tmp_path / "kept"
    keep_headers(kept)
    for number in range(MOST_KEPT):
        inductor.use(f"h{number}")
        os.utime(kept / f"h{number}.h.gch", (number, number))
    inductor.use("h0")  # which is young again
    inductor.use("new")
    left = {path.stem for path in kept.glob("*.h")}
    assert left == {"h0", "new", *(f"h{number}" for number in range(2, MOST_KEPT))}
    assert {path.name.removesuffix(".h.gch") for path in kept.glob("*.gch")} == left


def test_what_a_killed_process_left_goes_with_the_next_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inductor, kept = Inductor(tmp_path / "own", monkeypatch), tmp_path / "kept"
    half = kept / "begun-1"
    half.mkdir(parents=True)
    for name in ("lock", "prefix.h.gch"):
        (half / name).write_text("")
    keep_headers(kept)
    inductor.use("prefix")
    assert sorted(path.name for path in kept.iterdir()) == ["prefix.h", "prefix.h.gch"]
    assert (kept / "prefix.h.gch").read_text() == "built prefix"


def test_where_nothing_can_be_kept_inductor_makes_its_headers_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    inductor = Inductor(tmp_path / "own", monkeypatch)
    keep_headers(tmp_path / "file" / "below")
    inductor.use("prefix")
    assert inductor.made == ["prefix"]
    monkeypatch.setattr(headers, "watch_headers", lambda used: None)
    keep_headers(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_headers_apart_begin_with_those_that_there_are_and_are_shared_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bare loop makes the headers that the campaign's workers made for the same programs just before."""
    common, apart, looked = tmp_path / "common", tmp_path / "apart", list[Path]()
    monkeypatch.setattr(headers, "move_headers", lambda folder: looked.append(folder) or common)
    common.mkdir()
    for name, when in (("old", "before"), ("new", "after")):
        (common / f"{name}.h").write_text(f"#include <{name}>\n")
        (common / f"{name}.h.gch").write_text(f"built {when}")
        headers_apart(apart)  # the second time by a process that takes a dead one's place
    assert looked == [apart, apart]
    assert sorted(path.name for path in apart.iterdir()) == ["old.h", "old.h.gch"]
    monkeypatch.setattr(headers, "move_headers", lambda folder: None)
    headers_apart(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


OF_INDUCTOR = """
import sys
from pathlib import Path
from torch._inductor import codecache
from fuzzer.workers.headers import headers_apart, keep_headers

codecache._precompile_header = lambda *given, **named: str(Path(codecache._HEADER_DIR) / "name.h")
keep_headers(Path(sys.argv[1]))
own = Path(codecache._HEADER_DIR)
assert own == Path(sys.argv[2]).resolve() / own.parent.name / "precompiled_headers", own
(own / "name.h").write_text("text")
(own / "name.h.gch").write_text("built")
assert codecache._precompile_header("header", "flags", device_type="cpu") == str(own / "name.h")
assert (Path(sys.argv[1]) / "name.h.gch").read_text() == "built"
headers_apart(apart := own.parent / "apart")
assert Path(codecache._HEADER_DIR) == apart and Path(codecache._HEADER_LOCK_DIR).parent == apart
assert (apart / "name.h.gch").samefile(own / "name.h.gch")
"""


@pytest.mark.slow
def test_inductor_has_such_headers_in_the_folder_of_its_fork_server(tmp_path: Path) -> None:
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    given = [sys.executable, "-c", OF_INDUCTOR, str(tmp_path / "kept"), str(tmp_path)]
    done = subprocess.run(given, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
