"""The plugin of pytest, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands.calls import PLANTED, RELU, ROOT

EAGER = ("--backfuzz-compare", "eager", "aot_eager", "--backfuzz-device", "cpu", "--backfuzz-workers", "1")
UNTOUCHED = """import sys
def test_untouched():
    assert not {name for name in sys.modules if name.split(".")[0] in %r}
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "backfuzz_pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )


def test_without_its_option_it_collects_nothing_and_imports_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.prog").write_text(RELU)
    (tmp_path / "a_test.py").write_text(UNTOUCHED % {"torch", "fuzzer", "minimizer", "backfuzz"})
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.slow
def test_each_program_is_a_test_that_is_held_against_its_header(tmp_path: Path) -> None:
    (tmp_path / "a_test.py").write_text(UNTOUCHED % {"torch"})
    (tmp_path / "agrees.prog").write_text(RELU)
    (tmp_path / "either.prog").write_text("# expect: wrong there, agree where it is fixed\n" + RELU)
    (tmp_path / "wrong.prog").write_text("# expect: wrong\n" + RELU)
    (tmp_path / "malformed.prog").write_text(RELU.replace("relu(x0)", "relu(x0"))
    (tmp_path / "refused.prog").write_text(PLANTED.replace("inject_relu_bug_TESTING_ONLY", "no_such_setting"))
    done = run(tmp_path, "--backfuzz", *EAGER, "--junitxml", "told.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 3 passed" in done.stdout
    assert "wrong.prog: agree, expected wrong (torch " in done.stdout
    assert "again: backfuzz replay wrong.prog --expect --device cpu --compare eager aot_eager\n" in done.stdout
    assert "malformed.prog: unreadable (line 4, column " in done.stdout
    assert "refused.prog: rejected (" in done.stdout
    assert "Traceback" not in done.stdout
    assert "backfuzz_pytest.py" not in done.stdout, "a failure is of the program, not of our code"
    failed = {str(case.get("classname")) for case in ElementTree.parse(tmp_path / "told.xml").iter("testcase")
              if case.find("failure") is not None}  # fmt: skip
    assert failed == {"wrong.prog", "malformed.prog", "refused.prog"}


USERS = """
def test_differs(backward_agrees):
    torch._dynamo.register_backend(lambda graph, inputs: lambda *args: [-out for out in graph(*args)], name="negated")
    backward_agrees(torch.sin, torch.ones(3), backend="negated")

def test_cannot_be_judged(backward_agrees):
    backward_agrees(torch.Tensor.numpy, torch.ones(3))
"""


@pytest.mark.slow
def test_the_fixture_holds_a_librarys_functions_and_modules_against_eager(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "commands.md").read_text()
    (documented,) = re.findall(r"```python\n(import torch\n\ndef test_.*?)```", document, re.DOTALL)
    (tmp_path / "own_test.py").write_text(documented + USERS)
    done = run(tmp_path, "--backfuzz-backend", "aot_eager")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed" in done.stdout
    assert "wrong: output[0]: compiled -0.841470957, eager 0.841470957" in done.stdout
    assert "v0 = sin(x0)\n" in done.stdout
    again = re.search(r"^E? *again: backfuzz replay (\S+)", done.stdout, re.MULTILINE)
    assert again
    assert "v0 = sin(x0)\n" in Path(again[1]).read_text()
    assert "smaller: backfuzz minimize " in done.stdout
    assert "numpy returns no tensor and changes none" in done.stdout
    assert "torch.__trace" not in done.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\nbackfuzz_strict = false\n")
    lenient = run(tmp_path, "--backfuzz-backend", "aot_eager", "-k", "cannot_be_judged")
    assert "1 skipped, 2 deselected" in lenient.stdout
    assert "backfuzz_pytest.py" not in done.stdout, "a failure is of the function, not of our code"


@pytest.mark.slow
def test_a_device_that_does_not_exist_ends_the_session_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.prog").write_text(RELU)
    done = run(tmp_path, "--backfuzz", "--backfuzz-device", "moon")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Exit: --backfuzz: " in done.stdout


def test_another_package_of_the_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "fuzzer.py").write_text("")
    (tmp_path / "conftest.py").write_text("import fuzzer")
    done = run(tmp_path, "--backfuzz")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "fuzzer.py is loaded under that name" in done.stderr
