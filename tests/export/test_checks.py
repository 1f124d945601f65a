"""What a script checks at its end: each kind of finding is told where it is there, and not where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.export.script import repro
from fuzzer.judgement.verdict import BOTH, EAGER, Comparison, Signature
from fuzzer.ledger.cause import IN_ORDER
from tests.export.test_script import quickly
from tests.ledger.found import PINNED, REGIONS, RELU, TWO_OPS, WORST, finding
from tests.scripts import run

# text, class, exit code, words in its output. Every script runs in a process of its own.
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
    "one config of Triton": (PINNED, "wrong", 0, "x0.grad: 0 of 16"),
    "crash gone": (TWO_OPS, "crashes", 0, "ended well"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_the_exit_code_says_whether_the_fault_is_there(case: str, tmp_path: Path) -> None:
    """Code is built for the planted faults, the benign twin and the settings of inductor alone."""
    program, verdict, code, words = RUNS[case]
    program = program.replace('_ONLY": ""', '_ONLY": None')
    done = run(tmp_path, quickly(repro(finding(program, verdict))))
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["accuracy", None])
def test_one_tensor_is_shown_whole_with_what_eager_and_float64_give(planted: str | None, tmp_path: Path) -> None:
    program = RELU.replace('"accuracy"', f'"{planted}"' if planted else "None")
    done = run(tmp_path, repro(finding(program, comparisons=(WORST,))))
    assert done.returncode == (planted is not None), done.stdout + done.stderr
    assert done.stdout.startswith("x0.grad: compiled [")


RETURNED = """program(1)
route("autograd")
x0 = leaf(f32[4, 4], seed=1)
v0 = argsort(x0)
v1 = gt(x0, x0)
v2 = sum(x0, dim=(1,))
returns(v0)
returns(v1)
backward(v2, cotangent(f32[4], values="integers", seed=3))
"""


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("name", "other"), [("v0", "t[0, 0] += 1"), ("v1", "t[0, 0] = True")])
def test_integers_and_bools_are_compared_exactly(name: str, other: str, alone: bool, tmp_path: Path) -> None:
    comparisons = (replace(WORST, name=name),) if alone else ()
    text = repro(finding(RETURNED, comparisons=comparisons)).replace("torch.compile(f, fullgraph=True)", "f")
    assert run(tmp_path, text).returncode == 0
    compared = "compiled" if alone else f'compiled["{name}"]'
    spoiled = text.replace("\neager = ", f"\nt = {compared}; {other}\neager = ", 1)
    assert spoiled != text
    done = run(tmp_path, spoiled)
    assert (done.returncode, f"{name}: 1 of 16" in done.stdout or alone) == (1, True), done.stdout + done.stderr


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


EAGER_WRONG = {"side": "eager wrong: at x0[0] it is 1"}
STRIDED = TWO_OPS.replace("f32[4, 4], seed=1", "f32[4, 4], stride=(1, 4), seed=1")
# program, changes of the finding, a change of the script that puts the fault there, words of the script
ALONE = {
    "contiguous": (
        STRIDED,
        {"ablation": {IN_ORDER: "agree"}},
        ("contiguous = ", "eager[0] += 1\ncontiguous = "),
        "of contiguous inputs",
    ),
    "float64": (TWO_OPS, {}, ("exact = ", "eager[0] += 1\nexact = "), "eager in float64"),
    "quotient": (
        TWO_OPS,
        {"comparisons": (replace(WORST, float64=1.0, eager=1.0),)},
        ("off = (eager", "eager[0] += 1\noff = (eager"),
        "by a central difference",
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_fault_of_eager_is_shown_without_a_compiler(case: str, tmp_path: Path) -> None:
    program, changes, (old, new), words = ALONE[case]
    held = {"comparisons": (replace(WORST, eager=2.0),), "diagnosis": EAGER_WRONG} | changes
    text = repro(finding(program, **held))
    assert "torch.compile" not in text
    assert "torch.compile" in repro(finding(program, **held), alone=False)
    done = run(tmp_path, text)
    assert (done.returncode, words in done.stdout) == (0, True), done.stdout + done.stderr
    assert old in text
    done = run(tmp_path, text.replace(old, new, 1))
    assert (done.returncode, words in done.stdout) == (1, True), done.stdout + done.stderr


DIED = Signature("worker_survives", "crashes", "backward", "SIGSEGV")
KILLED = "os.kill(os.getpid(), 9)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "code", "words"),
    [("compiled", 1, "the compiled run's exit code: -9"), ("eager", 2, "it cannot be told: eager ends with -9")],
)
def test_the_side_whose_process_dies_is_blamed(dies: str, code: int, words: str, tmp_path: Path) -> None:
    text = repro(finding(TWO_OPS, signature=DIED)).replace("torch.compile(f, fullgraph=True)", "f")
    where = f'if sys.argv[1:] == ["{dies}"]:\n'
    done = run(tmp_path, text.replace(where, f"{where}    {KILLED}\n"))
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


@pytest.mark.slow
def test_a_death_of_eager_is_eagers_alone(tmp_path: Path) -> None:
    died = finding(TWO_OPS, signature=replace(DIED, pattern="a corrupt heap"), diagnosis={"side": "eager dies: so"})
    text = repro(died)
    assert "torch.compile" not in text
    assert '"MALLOC_CHECK_": "3"' in text
    assert "for _ in range(8)" in text  # glibc notices by chance
    where = 'if sys.argv[1:] == ["eager"]:\n'
    done = run(tmp_path, text.replace(where, f"{where}    {KILLED}\n"))
    assert (done.returncode, "the exit code of the run in eager: -9" in done.stdout) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("side", "compiled", "gauge"), [(EAGER, 1.0, "compiled"), (EAGER, 0.0, "exact"), (BOTH, 1.0, "exact")]
)
def test_code_that_is_as_wrong_as_eager_excuses_nothing(side: str, compiled: float, gauge: str) -> None:
    signature = Signature("outputs_agree", "eager-suspect", "forward", "other")
    worst = replace(WORST, float64=1.0, eager=0.0, compiled=compiled)
    found = finding(TWO_OPS, comparisons=(worst,), signature=signature, diagnosis={"side": f"{side}: so"})
    script = repro(found, alone=False)
    assert f"close = (eager - exact).abs() <= 16 * (exact - {gauge}).abs()" in script


@pytest.mark.slow
def test_an_error_of_a_small_element_counts_beside_large_ones_where_the_trials_floor_holds(tmp_path: Path) -> None:
    seen = Comparison("v0", (0,), eager=0.01, compiled=0.01 + 4e-8, float64=0.01, floor=1e-8, wrong=1, total=3)
    shown = finding(TANH, comparisons=(seen,))
    line = "wrong[0] |= (compiled.double() - exact)[0].abs() > 1.1e-08"
    text = repro(shown)
    assert line in text
    off = text.replace("eager = gradients", "compiled = compiled + torch.tensor([4e-8, 0, 0])\neager = gradients", 1)
    assert run(tmp_path, off.replace("torch.compile(f, fullgraph=True)", "f")).returncode == 1
    assert run(tmp_path, text.replace("torch.compile(f, fullgraph=True)", "f")).returncode == 0
    for other in (replace(seen, floor=3e-8), replace(seen, compiled=0.1), replace(seen, floor=0.0)):
        assert "wrong[0] |=" not in repro(finding(TANH, comparisons=(other,)))
    assert "wrong[0] |=" not in repro(shown, drawn=True)


TANH = """program(1)
route("autograd")
x0 = leaf(f32[3], values=data([0.01, 1.0, 1.0]))
v0 = tanh(x0)
backward(v0, cotangent(f32[3], values="ones"))
"""


@pytest.mark.slow
def test_where_nobody_could_say_that_eager_is_wrong_compiled_code_is_held_against_eager(tmp_path: Path) -> None:
    signature = Signature("gradients_agree", "eager-suspect", "backward", "other")
    worst = replace(WORST, float64=1.0, eager=0.0, compiled=1.0)
    found = finding(TWO_OPS, comparisons=(worst,), signature=signature, diagnosis={"side": "undecided: so"})
    text = repro(found, alone=False)
    text = text.replace("torch.compile(f, fullgraph=True)", "f")
    assert run(tmp_path, text).returncode == 0
    assert run(tmp_path, text.replace("eager = grad", "compiled[0] += 1\neager = grad")).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(("compiled", "code"), [("nan", 0), ("inf", 1), ("0.0", 1)])
def test_infinities_and_nan_are_told_apart(compiled: str, code: int, tmp_path: Path) -> None:
    signature = Signature("finiteness_agrees", "nonfinite-differs", "backward", "infinite for NaN")
    text = repro(finding(TWO_OPS, signature=signature)).replace("torch.compile(f, fullgraph=True)", "f")
    put = f"sides[0]['x0.grad'][0], sides[1]['x0.grad'][0] = float('{compiled}'), float('nan')\npairs"
    done = run(tmp_path, text.replace("pairs", put, 1))
    assert done.returncode == code, done.stdout + done.stderr
    assert f"compiled {compiled}, eager nan" in done.stdout or code == 0
