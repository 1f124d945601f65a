"""Export: scripts that rebuild exactly what the trial ran, run alone, and say in their exit code what they saw."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.export import ExportError, repro
from fuzzer.interpret import cotangents, materialise
from fuzzer.issue import issue
from fuzzer.program import extent
from fuzzer.routes import ROUTES
from fuzzer.store import open_store
from fuzzer.text import parse
from fuzzer.verdict import Comparison, Finding, Signature

RELU = """program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
route("autograd")
x0 = leaf(f32[3], seed=1)
v0 = relu(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""

TWO_OPS = """program(1)
route("autograd")
x0 = leaf(f32[4, 4], seed=1)
x1 = leaf(f32[4, 2], values="integers", seed=2)
v0 = slice_scatter(x0, x1, dim=1, end=2)
v1 = sum(v0, dim=(1,))
backward(v1, cotangent(f32[4], values="integers", seed=3))
"""

MINIMAL = """program(1)
route("autograd")
x0 = leaf(f32[2], values="ones")
x1 = leaf(f32[1], requires_grad=False, values="ones")
v0 = slice_scatter(x0, x1, end=1)
v1 = sum(v0)
backward(v1, cotangent(f32[()], values="ones"))
"""

LAYOUTS = """program(1)
route("autograd")
x0 = leaf(f64[()], values=data([-1.5]))
x1 = leaf(bf16[8, 0])
x2 = leaf(i64[3], values=below(7), seed=4)
x3 = leaf(f16[2, 2], stride=(1, 2), offset=5, values=data([inf, -inf, nan, -0.0]))
x4 = leaf_view(x3, f16[2], stride=(2,), offset=5, requires_grad=False)
x5 = leaf(bool[3], values="coins", seed=1)
x6 = leaf(bf16[5, 7], seed=9)
x7 = leaf(f32[9, 11], stride=(1, 9), values="subnormal", seed=5)
x8 = leaf(f32[9, 11], stride=(0, 1), offset=3, values="normal", seed=5)
x9 = leaf(f32[90, 11], stride=(2, 181), values="corners", seed=6)
x10 = leaf(f32[70], values="ones")
x11 = leaf(f64[3, 3, 3], values="tiny", seed=2)
x12 = leaf(f32[4, 6], stride=(0, 0), values="normal", seed=1)
x13 = leaf(f32[100], stride=(1,), offset=1)
x14 = leaf(f32[40, 40], stride=(20, 1), seed=8)
x15 = leaf(u8[2, 2], values=between(200, 255))
v0 = relu(x7)
backward(v0, cotangent(f32[9, 11], stride=(0, 1), seed=11))
"""


WORST = Comparison("x0.grad", (0,), eager=1.0, compiled=0.0, float64=1.0, floor=0.0, wrong=1, total=2)

REGIONS = """program(1)
route("autograd")
x0 = leaf(f32[4, 4], values="integers", seed=1)
with autocast(dtype=bf16):
    v0 = mm(x0, x0)
    with checkpoint():
        v1 = relu(v0)
        v2 = sum(v1, dim=(1,))
backward(v2, cotangent(bf16[4], values="ones"))
"""


def finding(program: str, verdict: str = "wrong", **changes: Any) -> Finding:
    made = Finding(
        signature=Signature("gradients_agree", verdict, "backward", "all-zero"),
        detail="x0.grad is all zero where eager is not",
        original=program,
        program=program,
        place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0", "python": "3.11.7"},
        reproduced=3,
        runs=3,
    )
    return replace(made, **changes)


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script in a fresh process, in a folder of its own."""
    path = folder / "repro.py"
    path.write_text(text)
    command = [sys.executable, path.name, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)


def function_of(text: str, name: str) -> Any:
    """One function of a script, with what it needs, without running the rest."""
    tree = ast.parse(text)
    tree.body = [s for s in tree.body if isinstance(s, ast.Import | ast.FunctionDef)]
    space: dict[str, Any] = {}
    exec(compile(tree, "repro", "exec"), space)
    return space[name]


def storage(t: torch.Tensor) -> torch.Tensor:
    reach = extent(tuple(t.shape), t.stride(), t.storage_offset())
    return t.detach().as_strided((reach,), (1,), 0)


@pytest.mark.parametrize(("device", "arguments"), [("cpu", ()), ("cuda", ("cpu",))])
def test_the_script_rebuilds_every_tensor_to_the_bit(device: str, arguments: tuple[str, ...]) -> None:
    program = parse(LAYOUTS)
    script = repro(finding(LAYOUTS, place={"backend": "inductor", "against": "eager", "device": device}))
    built = function_of(script, "inputs")(*arguments)
    wanted = [*materialise(program.leaves).values(), *cotangents(program)]
    assert len(built) == len(wanted)
    for ours, theirs in zip(built, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours.shape, ours.requires_grad) == (theirs.shape, theirs.requires_grad)
        if 0 not in ours.shape:
            assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
        a, b = storage(ours).contiguous(), storage(theirs).contiguous()
        assert torch.equal(a.isnan(), b.isnan())
        assert torch.equal(a[~a.isnan()].view(torch.uint8), b[~b.isnan()].view(torch.uint8))
    assert built[4].untyped_storage().data_ptr() == built[3].untyped_storage().data_ptr()


def test_the_script_runs_alone_on_torch_and_the_standard_library() -> None:
    for verdict in ("wrong", "raises", "crashes", "hangs", "eager-suspect", "rounding-sensitive"):
        tree = ast.parse(repro(finding(RELU, verdict)))
        names = [alias.name for s in ast.walk(tree) if isinstance(s, ast.Import) for alias in s.names]
        assert {name.split(".")[0] for name in names} <= {"torch", "os", "sys", "subprocess"}
        assert not [s for s in ast.walk(tree) if isinstance(s, ast.ImportFrom)]


def test_a_script_of_two_ops_has_at_most_25_lines() -> None:
    for device in ("cpu", "cuda"):
        place = {"backend": "inductor", "against": "eager", "device": device, "torch": "2.11.0"}
        text = repro(finding(MINIMAL, place=place, comparisons=(WORST,)))
        assert len(text.splitlines()) <= 25, text
        assert "torch.slice_scatter(x0, x1, end=1)" in text


def test_lines_of_a_script_are_short() -> None:
    for program in (RELU, TWO_OPS):
        for comparisons in ((), (WORST,)):
            assert max(map(len, repro(finding(program, comparisons=comparisons)).splitlines())) <= 120


def test_constants_and_small_tensors_are_written_out() -> None:
    text = repro(finding(RELU))
    assert "torch.ones(3)" in text
    assert "torch.tensor([" in text
    assert "randint" not in text


def test_settings_stand_in_the_script_as_people_write_them() -> None:
    assert "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = " in repro(finding(RELU))
    functorch = repro(finding(RELU.replace("inductor.cpp.inject_relu_bug_TESTING_ONLY", "functorch.cse")))
    assert "import torch._functorch.config" in functorch


def test_an_unknown_setting_or_route_is_an_error() -> None:
    with pytest.raises(ExportError, match=r"gcc\.fast"):
        repro(finding(RELU.replace("inductor.cpp.inject_relu_bug_TESTING_ONLY", "gcc.fast")))
    with pytest.raises(ExportError, match="telegraph"):
        repro(finding(RELU.replace('route("autograd")', 'route("telegraph")')))


def test_names_that_a_script_uses_itself_are_replaced() -> None:
    text = repro(finding(RELU.replace("x0", "torch").replace("v0", "f")))
    assert "def f(x0):" in text


def test_dynamic_and_other_backends_reach_torch_compile() -> None:
    dynamic = RELU.replace('route("autograd")', 'route("autograd", dynamic=True)')
    text = repro(finding(dynamic, place={"backend": "aot_eager", "against": "eager", "device": "cpu"}))
    assert 'torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)' in text


def test_regions_stand_in_the_script_as_people_write_them() -> None:
    text = repro(finding(REGIONS))
    assert "    with torch.autocast(x0.device.type, dtype=torch.bfloat16):\n        v0 = torch.mm(x0, x0)\n" in text
    assert "        v2 = torch.utils.checkpoint.checkpoint(block, v0, use_reentrant=False)\n" in text


def test_two_places_are_run_against_each_other() -> None:
    text = repro(finding(RELU, place={"backend": "eager@cuda", "against": "eager@cpu", "device": "cuda"}))
    assert 'compiled = gradients(f, *inputs("cuda"))' in text
    assert 'eager = gradients(f, *inputs("cpu"))' in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_script_exits_2_where_its_device_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, repro(finding(RELU, place={"backend": "inductor", "against": "eager", "device": "cuda"})))
    assert done.returncode == 2
    assert "CUDA" in done.stderr


def test_a_script_exits_2_where_it_could_not_run(tmp_path: Path) -> None:
    gone = RELU.replace("inject_relu_bug_TESTING_ONLY", "a_setting_of_another_release")
    done = run(tmp_path, repro(finding(gone)))
    assert done.returncode == 2
    assert "a_setting_of_another_release" in done.stderr


# text, class, exit code, words in its output. Every emitted script runs in a fresh process.
RUNS = {
    "planted": (RELU, "wrong", 1, "x0.grad: 1 of 3"),
    "benign twin": (RELU.replace("accuracy", ""), "wrong", 0, "x0.grad: 0 of 3"),
    "planted, vjp": (RELU.replace('route("autograd")', 'route("vjp")'), "wrong", 1, "x0.grad: 1 of 3"),
    "two ops": (TWO_OPS, "wrong", 0, "x0.grad: 0 of 16"),
    "eager is not suspect": (TWO_OPS, "eager-suspect", 0, "x0.grad: 0 of 16"),
    "a dtype in the program": (
        TWO_OPS.replace("dim=(1,)", "dim=(1,), dtype=f32"),
        "rounding-sensitive",
        0,
        "x0.grad: 0 of 16",
    ),
    "compile error": (RELU.replace("accuracy", "compile_error"), "raises", 1, "compiled raises"),
    "compile error gone": (TWO_OPS, "raises", 0, "both ran"),
    "runtime error": (RELU.replace("accuracy", "runtime_error"), "crashes", 1, "exit code"),
    "planted, aoti": (RELU.replace('route("autograd")', 'route("aoti")'), "wrong", 1, "x0.grad: 1 of 3"),
    "regions": (REGIONS, "wrong", 0, "x0.grad: 0 of 16"),
    "crash gone": (TWO_OPS, "crashes", 0, "ended well"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_the_exit_code_says_whether_the_fault_is_there(case: str, tmp_path: Path) -> None:
    program, verdict, code, words = RUNS[case]
    program = program.replace('_ONLY": ""', '_ONLY": None')
    done = run(tmp_path, repro(finding(program, verdict)))
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["accuracy", None])
def test_one_tensor_is_shown_whole_with_what_eager_and_float64_give(planted: str | None, tmp_path: Path) -> None:
    program = RELU.replace('"accuracy"', f'"{planted}"' if planted else "None")
    done = run(tmp_path, repro(finding(program, comparisons=(WORST,))))
    assert done.returncode == (planted is not None), done.stdout + done.stderr
    assert done.stdout.startswith("x0.grad: compiled [")


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_another_dtype_is_told(there: bool, tmp_path: Path) -> None:
    signature = Signature("metadata_agrees", "wrong", "backward", "dtype")
    text = repro(replace(finding(TWO_OPS), signature=signature, detail="x1.grad is float64[4, 2], the reference's is"))
    if there:
        text = text.replace('eager = gradients(f, *inputs())["x1.grad"]', "eager = torch.ones(4, 2).double()")
        assert "double()" in text
    done = run(tmp_path, text)
    assert (done.returncode, "compiled gives (torch.float32, (4, 2))" in done.stdout) == (int(there), True), done.stderr


@pytest.mark.parametrize("there", [True, False])
def test_a_tensor_beyond_its_storage_is_told(there: bool, tmp_path: Path) -> None:
    signature = Signature("metadata_agrees", "wrong", "backward", "storage")
    detail = "x1.grad reaches beyond its storage: float32[4, 2] of stride [2, 1]"
    text = repro(replace(finding(TWO_OPS), signature=signature, detail=detail))
    text = text.replace("torch.compile(f, fullgraph=True)", "f")
    assert '["x1.grad"]' in text
    if there:
        text = text.replace("reach = ", "t.untyped_storage().resize_(4)\nreach = ")
    done = run(tmp_path, text)
    assert (done.returncode, "its strides reach" in done.stdout) == (int(there), True), done.stderr


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
        done = run(tmp_path, repro(finding(text)))
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_issue_holds_what_a_maintainer_asks_for() -> None:
    text = issue(
        finding(
            RELU,
            comparisons=(
                Comparison("x0.grad", (0, 2), 1.0, 0.0, 1.0, 1e-7, 3, 12),
                Comparison("v0", (), 1, 2, 3, 0, 1, 1),
            ),
            stages={"eager": "agree", "aot_eager": "agree", "inductor": "wrong"},
            ablation={"inductor.cpp.inject_relu_bug_TESTING_ONLY=None": "agree"},
        )
    )
    assert text.startswith("# [inductor] wrong gradient: relu\n")
    for words in (
        "### 🐛 Describe the bug",
        "| `x0.grad` | (0, 2) | 1 | 0 | 1 | 1e-07 | 3 of 12 |",
        "3 of 3 fresh processes",
        "| aot_eager | agree |",
        "inject_relu_bug_TESTING_ONLY=None",
        RELU.strip(),
        repro(finding(RELU, comparisons=())).splitlines()[0][:30],
        "### Versions",
        "| torch | 2.13.0 |",
    ):
        assert words in text


def test_an_issue_without_diagnosis_leaves_its_tables_out() -> None:
    text = issue(finding(RELU))
    assert "stage" not in text
    assert "\n\n\n" not in text.split("```")[0]


@pytest.mark.parametrize(
    ("side", "title", "first"),
    [
        ("eager wrong: at x0[0] it is 1", "# [eager] wrong gradient: ", "**Eager is wrong**: at x0[0] it is 1."),
        (
            "both wrong: at x0[0] it is 1",
            "# [eager, inductor] wrong gradient: ",
            "**Both sides are wrong**: at x0[0] it is 1.",
        ),
        (
            "subgradient choice: a tie",
            "# [inductor] another subgradient than eager's: ",
            "**Another subgradient, as legal as eager's**: a tie.",
        ),
        ("compiled wrong: at x0[0] it is 1", "# [inductor] wrong gradient: ", ""),
        ("undecided: it draws", "# [inductor] wrong gradient: ", ""),
    ],
)
def test_who_is_wrong_stands_in_the_title_and_comes_first(side: str, title: str, first: str) -> None:
    text = issue(finding(RELU, diagnosis={"side": side}))
    assert text.startswith(title)
    described = text.partition("### 🐛 Describe the bug\n\n")[2]
    assert described.startswith(first) if first else not described.startswith("**")


def test_an_input_that_is_written_to_is_told_and_an_untouched_one_is_not(tmp_path: Path) -> None:
    signature = Signature("inputs_untouched", "wrong", "backward", "leaf")
    text = repro(replace(finding(TWO_OPS), signature=signature)).replace("torch.compile(f, fullgraph=True)", "f")
    assert run(tmp_path, text).returncode == 0
    spoiled = text.replace("gradients(f, *given)", "gradients(lambda *x: (x[0].detach().add_(1), f(*x))[1], *given)")
    assert spoiled != text
    done = run(tmp_path, spoiled)
    assert (done.returncode, "was written to" in done.stdout) == (1, True)


def test_a_write_out_of_bounds_is_told_and_none_is_not(tmp_path: Path) -> None:
    signature = Signature("inputs_untouched", "wrong", "backward", "around leaf")
    text = repro(replace(finding(TWO_OPS), signature=signature)).replace("torch.compile(f, fullgraph=True)", "f")
    assert run(tmp_path, text).returncode == 0
    spoiled = text.replace("gradients(f, *given)", "gradients(f, *given)\nbands[0][-1024] = 7")
    assert spoiled != text
    done = run(tmp_path, spoiled)
    assert (done.returncode, "written out of bounds around inputs [0]" in done.stdout) == (1, True)


# signature, detail, a change of the script that puts the fault there, words in its output
CHECKED = {
    "rerun": (
        Signature("rerun_is_identical", "nondeterministic", "backward", "no atomics"),
        "",
        ("for _ in range(2))", 'for _ in range(2)); second["x0.grad"] = second["x0.grad"] + 1'),
        "two runs on equal inputs",
    ),
    "zeros": (
        Signature("zero_signs_agree", "signed-zero", "backward", "all"),
        "",
        ("pairs = {", 'sides[0]["x0.grad"].mul_(0); sides[1]["x0.grad"].mul_(0).neg_(); pairs = {'),
        "zeros of another sign",
    ),
    "seconds": (
        Signature("compile_is_timely", "costly", "", "CPU time"),
        "compiled and run in 90 CPU seconds; at most 21 are expected of 3 operations",
        ("spent = ", "spent = 90 + "),
        "at most 21 are expected",
    ),
    "memory": (
        Signature("memory_is_sane", "costly", "", "memory"),
        "the compiled code takes 256 MiB at its peak; at most 64 are expected",
        ("taken = ", "torch.ones(2**26); taken = "),
        "at most 64 are expected",
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_the_script_of_what_is_no_wrong_value_says_whether_it_is_there(case: str, tmp_path: Path) -> None:
    signature, detail, (old, new), words = CHECKED[case]
    text = repro(replace(finding(TWO_OPS), signature=signature, detail=detail))
    text = text.replace("torch.compile(f, fullgraph=True)", "f")
    done = run(tmp_path, text)
    assert (done.returncode, words in done.stdout) == (0, True), done.stdout + done.stderr
    assert old in text
    done = run(tmp_path, text.replace(old, new, 1))
    assert (done.returncode, words in done.stdout) == (1, True), done.stdout + done.stderr


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
LEDGER = Path(__file__).parents[1] / "findings.db"


def stored() -> list[Any]:
    """Every finding of the ledger; those of a GPU are for a GPU."""
    with open_store(LEDGER, create=False) as store:
        return [
            pytest.param(f, id=f.id, marks=[pytest.mark.gpu, NO_GPU] if f.place["device"] != "cpu" else [])
            for f in store.list()
        ]


@pytest.mark.slow
@pytest.mark.parametrize("found", stored())
def test_the_script_of_every_stored_finding_runs_and_says_whether_the_fault_is_there(
    found: Finding, tmp_path: Path
) -> None:
    done = run(tmp_path, repro(found))
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout
