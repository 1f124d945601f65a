"""`import backfuzz`: what it offers, and every example of docs/python.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backfuzz

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "python.md").read_text()


def block(heading: str, number: int = 0, language: str = "python") -> str:
    """The n-th example under a heading."""
    part = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)[number]


def run(folder: Path, code: str, *before: str) -> str:
    """What a script of this code prints, in this folder; `before` stands for what is not what it shows."""
    (folder / "script.py").write_text("\n".join([*before, code]))
    path = os.pathsep.join([str(ROOT), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "script.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_that_is_offered_is_there_and_importing_it_imports_no_torch() -> None:
    assert all(getattr(backfuzz, name) is not None for name in backfuzz.__all__)
    assert set(backfuzz.__all__) <= set(dir(backfuzz))
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        backfuzz.chek  # noqa: B018
    code = "import sys, backfuzz; backfuzz.UsageError, backfuzz.Program; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.slow
def test_the_function_of_the_example_is_checked(tmp_path: Path) -> None:
    code = block("One function")
    assert run(tmp_path, code) == re.findall(r"# (agree: .*)", code)[0] + "\n"


def test_the_program_of_the_example_is_explained_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("One program"), {})
    told = capsys.readouterr().out
    assert told == "agree: outputs and 1 gradient(s); an error would show in 12 of 12 elements of gradients\n"


def test_the_property_of_the_example_holds(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {}
    exec(block("A property of all programs") + "print(test_my_backend.hypothesis.inner_test.__name__)", space)
    assert capsys.readouterr().out == "test_my_backend\n"


# They take half a minute of compiles.
WITHOUT_CANARIES = "from fuzzer.campaign import loop\nloop.run_canaries = lambda *_, **__: []"


@pytest.mark.slow
def test_the_campaign_of_the_example_runs(tmp_path: Path) -> None:
    told = run(tmp_path, block("A campaign"), WITHOUT_CANARIES).splitlines()
    assert told[0].startswith("a new finding goes to findings.db")
    assert told[-1] == "4"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder in which the packages of the examples are installed: modules beside what pip writes of them."""
    for heading in ("An op of your own", "A backend of your own"):
        code, project = block(heading), block(heading, language="toml")
        name = re.findall(r"# (\w+)\.py\n", code)[0]
        (tmp_path / f"{name}.py").write_text(code)
        told = tmp_path / f"{name}-1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        [(group, point)] = re.findall(r'entry-points\."?([\w.]+?)"?\]\n(.*)\n', project)
        (told / "entry_points.txt").write_text(f"[{group}]\n{point.replace(chr(34), '')}\n")
    return tmp_path


OWN_OP = """
import torch, backfuzz
from fuzzer.trial.draw import draw_program
print(backfuzz.check(torch.ops.mine.double, torch.ones(3), backend="aot_eager"))
task = backfuzz.Task(ops=("mine_double", "exp"))
print(sum(node.op == "mine_double" for n in range(9) for node in draw_program(task, n).nodes) > 4)
"""


@pytest.mark.slow
def test_an_op_and_a_backend_of_somebodys_package_are_like_any_other(packages: Path) -> None:
    own, drawn, differs = run(packages, OWN_OP + block("A backend of your own", 1)).splitlines()
    assert own.startswith("agree: outputs and 1 gradient(s); an error would show in 3 of 3")
    assert drawn == "True"
    assert differs.startswith(re.findall(r"# (wrong: .*?),", block("A backend of your own", 1))[0])


def test_a_package_whose_table_cannot_be_read_is_named(packages: Path) -> None:
    (packages / "mine.py").write_text("1 / 0")
    code = "import backfuzz\ntry: import fuzzer.language.ops\nexcept backfuzz.UsageError as error: print(error)"
    told = run(packages, code)
    assert told == "the entry point mine = mine:OPS of backfuzz.ops: ZeroDivisionError('division by zero')\n"
