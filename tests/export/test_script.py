"""Export: scripts that rebuild exactly what the trial ran, run alone, and say in their exit code what they saw."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.export.script import ExportError, repro
from fuzzer.judgement.verdict import Finding, Signature
from fuzzer.language.routes import ROUTES
from fuzzer.ledger.query import Wanted
from fuzzer.ledger.store import open_store
from tests.ledger.found import PINNED, REGIONS, RELU, TWO_OPS, WORST, finding
from tests.scripts import run

MINIMAL = """program(1)
route("autograd")
x0 = leaf(f32[2], values="ones")
x1 = leaf(f32[1], requires_grad=False, values="ones")
v0 = slice_scatter(x0, x1, end=1)
v1 = sum(v0)
backward(v1, cotangent(f32[()], values="ones"))
"""


def test_the_script_runs_alone_on_torch_and_the_standard_library() -> None:
    for verdict in ("wrong", "raises", "crashes", "hangs", "eager-suspect", "rounding-sensitive"):
        tree = ast.parse(repro(finding(RELU, verdict)))
        names = [alias.name for s in ast.walk(tree) if isinstance(s, ast.Import) for alias in s.names]
        assert {name.split(".")[0] for name in names} <= {"torch", "os", "sys", "subprocess"}
        assert not [s for s in ast.walk(tree) if isinstance(s, ast.ImportFrom)]


def test_a_script_of_two_ops_has_at_most_26_lines() -> None:
    for device in ("cpu", "cuda"):
        place = {"backend": "inductor", "against": "eager", "device": device, "torch": "2.11.0"}
        text = repro(finding(MINIMAL, place=place, comparisons=(WORST,)))
        assert len(text.splitlines()) <= 26, text
        assert "torch.slice_scatter(x0, x1, end=1)" in text


def test_lines_of_a_script_are_short() -> None:
    for program in (RELU, TWO_OPS):
        for comparisons in ((), (WORST,)):
            assert max(map(len, repro(finding(program, comparisons=comparisons)).splitlines())) <= 120


def test_settings_stand_in_the_script_as_people_write_them() -> None:
    assert "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = " in repro(finding(RELU))
    functorch = repro(finding(RELU.replace("inductor.cpp.inject_relu_bug_TESTING_ONLY", "functorch.cse")))
    assert "import torch._functorch.config" in functorch


def test_a_script_builds_the_config_of_triton_that_its_finding_needs() -> None:
    assert "tuner.precompile = one_config(2, tuner.precompile)" in repro(finding(PINNED))
    assert "one_config" not in repro(finding(PINNED.replace(": 2", ": -1")))


def test_an_unknown_setting_or_route_is_an_error() -> None:
    with pytest.raises(ExportError, match=r"gcc\.fast"):
        repro(finding(RELU.replace("inductor.cpp.inject_relu_bug_TESTING_ONLY", "gcc.fast")))
    with pytest.raises(ExportError, match="telegraph"):
        repro(finding(RELU.replace('route("autograd")', 'route("telegraph")')))


def test_names_that_a_script_uses_itself_are_replaced() -> None:
    text = repro(finding(RELU.replace("x0", "torch").replace("v0", "f")))
    assert "def f(x0):" in text


def test_regions_stand_in_the_script_as_people_write_them() -> None:
    text = repro(finding(REGIONS))
    assert "    with torch.autocast(x0.device.type, dtype=torch.bfloat16):\n        v0 = torch.mm(x0, x0)\n" in text
    assert "        v2 = torch.utils.checkpoint.checkpoint(block, v0, use_reentrant=False)\n" in text


def test_a_script_has_the_backward_outside_of_an_ambient_region_as_eager_has_it() -> None:
    ambient = REGIONS.replace("with autocast", "with ambient_autocast")
    told = 'torch._functorch.config.backward_pass_autocast = "off"'
    assert told in repro(finding(ambient))
    assert told not in repro(finding(REGIONS))


SELU_BETWEEN = """program(1)
route("autograd")
x0 = leaf(f32[()], values="ones")
v0, v1 = frexp(x0)
with between():
    v2 = selu_(x0)
backward(v0, cotangent(f32[()], values="ones"))
"""


def test_a_script_whose_backward_alone_needs_functional_imports_it() -> None:
    text = repro(finding(SELU_BETWEEN))
    assert "F." not in text[text.index("def f(") : text.index("def gradients(")]
    assert "torch.nn.functional as F" in text


def test_a_script_of_a_refused_compile_says_whether_it_is_refused() -> None:
    """An `unsupported` finding that raised: its script tells of the exception, and does not die of it with 2."""
    raised = Signature("compile_does_not_raise", "unsupported", "forward", "CompilationError < make_ir")
    assert repro(finding(RELU, signature=raised)).count("except Exception as error:") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_script_exits_2_where_its_device_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, repro(finding(RELU, place={"backend": "inductor", "against": "eager", "device": "cuda"})))
    assert done.returncode == 2
    assert "it cannot be told here: no cuda device" in done.stderr


def test_a_script_exits_2_where_it_could_not_run(tmp_path: Path) -> None:
    gone = RELU.replace("inject_relu_bug_TESTING_ONLY", "a_setting_of_another_release")
    done = run(tmp_path, repro(finding(gone)))
    assert done.returncode == 2
    assert "a_setting_of_another_release" in done.stderr


@pytest.mark.slow
def test_several_outputs_dtypes_and_layouts_run_in_every_route(tmp_path: Path) -> None:
    program = """program(1)
route("autograd")
x0 = leaf(bf16[3, 4], stride=(1, 3), seed=1)
x1 = leaf(f32[4], seed=2)
x2 = leaf(f32[2, 4], stride=(0, 1), seed=3)
v0 = mul(x0, x1)
v1 = relu(v0)
v2 = sum(v1, dim=(0,))
v3 = mul(x1, x1)
v4 = mul(x1, x2)
returns(v3)
backward(v2, cotangent(f32[4], seed=3))
backward(v4, cotangent(f32[2, 4], stride=(1, 2), values="integers"))
"""
    held = program.replace("x1 = leaf(f32[4], ", "x1 = leaf(f32[4], parameter=True, ")
    texts = [program.replace('route("autograd")', f'route("{route}")') for route in ROUTES]
    for text in [*texts, held.replace('route("autograd")', 'route("vjp")')]:
        script = repro(finding(text))
        # a package takes as long to build as all others together; `test_checks` builds one
        done = run(tmp_path, uncompiled(script) if "aoti" in script else quickly(script))
        assert done.returncode == 0, done.stdout + done.stderr


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
LEDGER = Path(__file__).parents[2] / "findings.db"


@functools.cache
def ledger() -> dict[str, Finding]:
    with open_store(LEDGER, create=False) as store:
        return {found.id: found for found in store.list()}


@functools.cache
def script_of(id: str) -> str:
    return repro(ledger()[id])


# In a Python that has imported torch alone: the names beneath torch in the scripts on stdin that neither torch nor an
# import of the script brings.
_LACKING = """
import ast, json, sys
import torch
found = []
for script in json.load(sys.stdin):
    lacking = set()
    nodes = list(ast.walk(ast.parse(script)))
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules = [name for name in imported if "." in name]
    for name in {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}:
        if not name.startswith("torch.") or not name.replace(".", "").isidentifier():
            continue
        if any(f"{name}.".startswith(f"{module}.") or module.startswith(f"{name}.") for module in modules):
            continue
        held = torch
        for part in name.split(".")[1:]:
            held = getattr(held, part, None)
        if held is None:
            lacking.add(name)
    found.append(sorted(lacking))
print(json.dumps(found))
"""


def lacking(scripts: list[str]) -> list[list[str]]:
    """Of each script, the names beneath torch that it uses and that neither `import torch` nor a line of it imports."""
    command = [sys.executable, "-c", _LACKING]
    done = subprocess.run(command, input=json.dumps(scripts), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_script_imports_all_that_it_needs() -> None:
    """What inductor makes of scripts is seen in processes that have imported it: there, no import is missed."""
    findings = [finding(TWO_OPS.replace('route("autograd")', f'route("{route}")')) for route in ROUTES]
    findings += [finding(PINNED)]
    findings += [f for f in ledger().values() if f.place["device"] == "cpu"]
    scripts = [repro(found) for found in findings]
    assert len(scripts) > len(ROUTES)
    bare = re.sub(r"^import .*$", "import torch", repro(finding(PINNED)), flags=re.MULTILINE)
    *whole, told = lacking([*scripts, bare])
    assert not any(whole)
    assert "torch._inductor.runtime.triton_heuristics" in told


def uncompiled(script: str) -> str:
    """The script with every function in place of what a compiler makes of it. It still asks for the compiler."""
    for name, instead in (
        ("torch.compile", "unchanged"),
        ("torch._inductor.aoti_compile_and_package", "unchanged"),
        ("torch._inductor.aoti_load_package", "torch.export.ExportedProgram.module"),
    ):
        script = script.replace(f"{name}(", f"({name} and {instead})(")
    return "unchanged = lambda f, **_: f\n" + script


def stored() -> list[Any]:
    """The id of every finding of the ledger; those of a GPU are for a GPU. No script is made for it: every run of the
    tests collects them."""
    with open_store(LEDGER, create=False) as store:
        places = {row["id"]: json.loads(row["place"]) for row in store.rows(Wanted(), "id, place")}
    gpu = [pytest.mark.gpu, NO_GPU]
    return [pytest.param(id, id=id, marks=gpu if at["device"] != "cpu" else []) for id, at in places.items()]


def quickly(script: str) -> str:
    """The script with a backend that compiles no code, unless it speaks of inductor or names its own."""
    return (
        script
        if "inductor" in script or "backend=" in script
        else re.sub(r"(torch\.compile\(\w+), ", r'\1, backend="aot_eager", ', script)
    )


@functools.cache
def one_of_each_kind() -> set[str]:
    """Findings whose scripts together hold every kind of line that a script has around its functions: of those that run
    here, and of those for a GPU."""
    sides = ([f for f in ledger().values() if (f.place["device"] == "cpu") == here] for here in (True, False))
    return {found.id for side in sides for found in cover(side)}


def cover(findings: list[Finding]) -> list[Finding]:
    """A few of the findings, whose scripts together hold the lines of all: each adds the most lines that lack still."""
    lines = [frame(script_of(found.id)) for found in findings]
    lacking, chosen = set[str]().union(*lines), list[Finding]()
    while lacking:
        best = max(range(len(lines)), key=lambda n: len(lines[n] & lacking))
        chosen.append(findings[best])
        lacking -= lines[best]
    return chosen


def frame(script: str) -> set[str]:
    """The lines of a script around its functions `f` and `inputs`, with every name of a tensor, number and string the
    same."""
    lines = re.sub(r"^def (f|inputs)\(.*\n(( .*)?\n)*", "", script, flags=re.MULTILINE).splitlines()
    for what, instead in ((r'"[^"]*"', "S"), (r"\b[a-z]\d+\b", "x"), (r"\d[\d.e+-]*", "0"), (r"x(, x)+", "x")):
        lines = [re.sub(what, instead, line) for line in lines]
    return {line for line in lines if not line.startswith("#")}


@pytest.mark.slow
@pytest.mark.parametrize("id", stored())
def test_the_script_of_a_finding_runs_and_says_whether_the_fault_is_there(id: str, tmp_path: Path) -> None:
    """One of each kind runs whole, every other without the compiler."""
    text, whole = needing_its_library(id), id in one_of_each_kind()
    done = run(tmp_path, quickly(text) if whole else uncompiled(text))
    if whole and done.returncode == 2 and _of_another_release(ledger()[id]):
        assert any(line.startswith(REFUSALS) for line in done.stderr.splitlines()), done.stderr
    else:
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout
    if not whole:
        assert "has no attribute" not in done.stdout, "the script took it for the compiler's error"


def needing_its_library(id: str) -> str:
    """The finding's script; skips the test where the script's kernels are those of a library that is not there."""
    text = script_of(id)
    if "import flag_gems" in text:
        pytest.importorskip("flag_gems", reason="the finding is one of flag_gems's kernels")
    return text


# What one release compiles, another's compiler may refuse, or its autograd, where a saved value was overwritten.
_OVERWRITTEN = "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace"
REFUSALS = ("torch._dynamo.exc.", "torch._inductor.exc.", _OVERWRITTEN)


def _of_another_release(found: Finding) -> bool:
    return found.place["torch"].partition("+")[0] != torch.__version__.partition("+")[0]
