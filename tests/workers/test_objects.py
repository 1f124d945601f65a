"""Machine code that is kept while a fork server lives."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzer.workers import objects
from fuzzer.workers.objects import compile_anew, keep_objects

Compile = Callable[[str], None]


class Compiler:
    """What inductor does with its compiler, which notes the code of each compile and fails where it says so."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.answer = lambda command, compile_: compile_()

    def replace(self, answer: Callable[[str, Callable[[], None]], None]) -> Callable[[], None]:
        before, self.answer = self.answer, answer
        return lambda: setattr(self, "answer", before)

    def build(self, folder: Path, code: str, flags: str = "-O3", source: str = "k.cpp", target: str = "k.so") -> str:
        """Compile this code in this folder; the machine code."""
        folder.mkdir(exist_ok=True)
        (folder / source).write_text(code)

        def run() -> None:
            self.ran.append(code)
            if code == "broken":
                raise ValueError(code)
            (folder / target).write_text(f"{code} with {flags}")

        self.answer(f"g++ {folder / source} {flags} -o {folder / target}", run)
        return (folder / target).read_text()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(objects, "replace_compiler", made.replace)
    monkeypatch.setattr(objects, "_kept_by", [])
    return made


def test_the_same_code_is_compiled_once_wherever_it_lies(compiler: Compiler, tmp_path: Path) -> None:
    keep_objects(tmp_path / "kept")
    for folder in ("a", "b", "a"):
        assert compiler.build(tmp_path / folder, "code") == "code with -O3"
    assert compiler.ran == ["code"]
    assert not (tmp_path / "a" / "k.so").samefile(tmp_path / "b" / "k.so")
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_process_may_compile_all_of_its_code_itself(compiler: Compiler, tmp_path: Path) -> None:
    """As the bare loop does, whose programs the campaign's workers compiled before."""
    keep_objects(tmp_path / "kept")
    compiler.build(tmp_path / "a", "code")
    compile_anew()
    compiler.build(tmp_path / "b", "code")
    assert compiler.ran == ["code", "code"]


def test_other_text_flags_names_and_kinds_are_compiled(compiler: Compiler, tmp_path: Path) -> None:
    keep_objects(tmp_path / "kept")
    compiler.build(tmp_path / "a", "code")
    assert compiler.build(tmp_path / "b", "other") == "other with -O3"
    assert compiler.build(tmp_path / "b", "code", "-O0") == "code with -O0"
    compiler.build(tmp_path / "b", "code", source="probe.cpp")
    compiler.build(tmp_path / "b", "code", target="k.o")
    assert compiler.ran == ["code", "other", "code", "code", "code"]


@pytest.mark.parametrize(("source", "target"), [("k.S", "k.o"), ("k.h", "k.h.gch"), ("k.txt", "k.so")])
def test_what_takes_in_more_than_its_text_or_is_no_code_is_not_kept(
    source: str, target: str, compiler: Compiler, tmp_path: Path
) -> None:
    keep_objects(tmp_path / "kept")
    for _ in range(2):
        compiler.build(tmp_path / "a", "code", source=source, target=target)
    assert compiler.ran == ["code", "code"]
    assert not (tmp_path / "kept").exists()


def test_what_takes_long_or_fails_does_so_each_time(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_objects(tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            compiler.build(tmp_path / "a", "broken")
    monkeypatch.setattr(objects, "LONGEST_SECONDS", 0.0)
    for _ in range(2):
        compiler.build(tmp_path / "a", "slow")
    assert compiler.ran == ["broken", "broken", "slow", "slow"]


def test_what_was_not_used_for_longest_goes_first(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MOST_KEPT", 2)
    monkeypatch.setattr(objects, "CLEARED_EVERY", 1)
    kept = tmp_path / "kept"
    keep_objects(kept)
    for number, code in enumerate(("first", "second")):
        before = set(kept.iterdir()) if kept.exists() else set()
        compiler.build(tmp_path / "a", code)
        [new] = set(kept.iterdir()) - before
        os.utime(new, (number, number))
    compiler.build(tmp_path / "a", "first")  # which is young again
    compiler.build(tmp_path / "a", "third")
    compiler.build(tmp_path / "a", "first")
    assert compiler.ran == ["first", "second", "third"]
    compiler.build(tmp_path / "a", "second")
    assert compiler.ran[-1] == "second"
    assert len(list(kept.iterdir())) == 2


def test_the_folder_is_cleared_now_and_then(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MOST_KEPT", 2)
    monkeypatch.setattr(objects, "CLEARED_EVERY", 4)
    monkeypatch.setattr(objects, "_results", itertools.count())
    keep_objects(tmp_path / "kept")
    sizes = []
    for number in range(9):
        compiler.build(tmp_path / "a", f"code {number}")
        sizes.append(len(list((tmp_path / "kept").iterdir())))
    assert sizes == [1, 2, 3, 4, 2, 3, 4, 5, 2]


def test_where_nothing_can_be_kept_it_is_compiled_as_ever(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep_objects(tmp_path / "file" / "below")
    for _ in range(2):
        assert compiler.build(tmp_path / "a", "code") == "code with -O3"
    assert compiler.ran == ["code", "code"]


def test_inductors_compiles_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder

    ran: list[str] = []

    def run(cmd_line: str, cwd: str) -> None:
        ran.append(cwd)
        (Path(cwd) / "k.so").write_text("built")

    monkeypatch.setattr(cpp_builder, "run_compile_cmd", run)
    forget = keep_objects(tmp_path / "kept")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.cpp").write_text("code")
        command = f"g++ {tmp_path / name / 'k.cpp'} -o {tmp_path / name / 'k.so'}"
        cpp_builder.run_compile_cmd(command, str(tmp_path / name))
        assert (tmp_path / name / "k.so").read_text() == "built"
    assert ran == [str(tmp_path / "a")]
    forget()
    assert cpp_builder.run_compile_cmd is run
