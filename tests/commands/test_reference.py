"""Programs and findings named on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.commands.calls import EAGER, RELU, call, refused


def test_a_malformed_program_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x0"))
    for command in ("replay", "minimize"):
        line = refused(call(command, "bad.prog", *EAGER))
        assert line.startswith("backfuzz: bad.prog: ")
        assert "line 4" in line
        assert "column" in line


def test_a_name_that_is_not_bound_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "bad.prog").write_text(RELU.replace("relu(x0)", "relu(x7)"))
    line = refused(call("replay", "bad.prog", *EAGER))
    assert "line 4" in line
    assert "x7" in line


def test_a_missing_file_is_named() -> None:
    assert "nothing.prog: No such file" in refused(call("replay", "nothing.prog", *EAGER))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.prog").write_bytes(bytes(range(256)))
    assert "noise.prog" in refused(call("replay", "noise.prog", *EAGER))


def test_an_unknown_finding_is_told(db: Path) -> None:
    assert "no finding 000" in refused(call("show", "000", "--db", db))
    assert "'nonsense' is no finding's id" in refused(call("show", "nonsense", "--db", db))
