"""Programs and findings named on the command line."""

from __future__ import annotations

from pathlib import Path

from fuzzer.commands.shared.reference import with_files_below
from tests.commands.calls import EAGER, RELU, call, refused


def test_a_malformed_program_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x0"))
    for command, told in (("replay", "bad.prog: unreadable ("), ("minimize", "backfuzz: bad.prog: ")):
        line = refused(call(command, "bad.prog", *EAGER))
        assert line.startswith(told)
        assert "line 4" in line
        assert "column" in line


def test_a_name_that_is_not_bound_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x7)"))
    line = refused(call("replay", "bad.prog", *EAGER))
    assert "line 4" in line
    assert "x7" in line


def test_a_missing_file_is_named() -> None:
    assert "nothing.prog: No such file" in refused(call("minimize", "nothing.prog", *EAGER))
    assert "nothing.prog: unreadable (No such file" in refused(call("replay", "nothing.prog", *EAGER))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.prog").write_bytes(bytes(range(256)))
    assert "noise.prog" in refused(call("replay", "noise.prog", *EAGER))


def test_an_unknown_finding_is_told(db: Path) -> None:
    assert "no finding 000" in refused(call("show", "000", "--db", db))
    assert "'nonsense' is no finding's id" in refused(call("show", "nonsense", "--db", db))


def test_a_folder_stands_for_the_programs_below_it_but_for_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.prog", "a/c.prog", "a/notes.txt", ".hidden/d.prog"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(RELU)
    assert list(with_files_below(["x.prog", ".", "F0123456"])) == ["x.prog", "a/c.prog", "b.prog", "F0123456"]


def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(call("replay", "empty", *EAGER)) == "backfuzz: empty: no .prog file below it"
