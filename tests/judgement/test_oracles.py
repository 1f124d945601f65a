"""Every class of verdict, on Trials made by hand: an eager run compared with an altered copy of itself."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.export.checks import CHECKS
from fuzzer.judgement.oracles import (
    ASKED,
    COMPILE_SECONDS,
    MEMORY_BYTES,
    ORACLES,
    deaf_elements,
    detectable,
    differing_tensors,
    verdicts,
)
from fuzzer.judgement.trial import DIED, RAISED, TIMED_OUT, Observation, Raised, Trial
from fuzzer.judgement.verdict import CORRUPT_HEAP, parse_signature
from fuzzer.language.interpret import cotangents, materialise, to_function
from tests.judgement.trials import INTEGER, ROUNDED, UNUSED, Change, at, put, trial

CANCELLED = """x0 = leaf(f32[40], seed=1)
x1 = leaf(f32[40], seed=2)
v0 = mul(x0, x1)
v1 = mul(x0, x1)
v2 = sub(v0, v1)
backward(v2, cotangent(f32[40]))
"""
OVERFLOW = """x0 = leaf(f16[4], values=data([300.0, 300.0, 1.0, 2.0]))
v0 = mul(x0, x0)
v1 = div(v0, x0)
backward(v1, cotangent(f16[4]))
"""


def ended(observation: Observation) -> Trial:
    return replace(trial(ROUNDED), subject=observation)


def swapped(t: torch.Tensor) -> torch.Tensor:
    return t.roll(1, 0)


def one_unit(t: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(t, torch.full_like(t, 9.0))


def both_directions(named: dict[str, Any]) -> None:
    put("v1", torch.zeros_like)(named)
    put("x0.grad", swapped)(named)


def beyond_its_storage(t: torch.Tensor) -> torch.Tensor:
    short = t.clone()
    short.untyped_storage().resize_(8)
    return short


G, V = "gradients_agree/wrong/backward", "outputs_agree/wrong/forward"
N, M = "no_new_nonfinite/wrong", "metadata_agrees/wrong"

# text, what is done to one side, the side, the signatures expected
CASES: dict[str, tuple[str, Change, str, list[str]]] = {
    "nothing": (ROUNDED, lambda named: None, "subject", []),
    "one unit in the last place": (ROUNDED, put("x0.grad", one_unit), "subject", []),
    "a gradient all zero": (ROUNDED, put("x0.grad", torch.zeros_like), "subject", [f"{G}/all-zero"]),
    "a gradient of half its size": (ROUNDED, put("x1.grad", lambda t: t / 2), "subject", [f"{G}/constant-ratio"]),
    "a gradient of other sign": (ROUNDED, put("x1.grad", lambda t: -t), "subject", [f"{G}/constant-ratio"]),
    "a per mille": (ROUNDED, put("x1.grad", lambda t: t * 1.001), "subject", [f"{G}/constant-ratio"]),
    "two elements": (ROUNDED, put("x0.grad", at(7.0, (0, 1), (5, 5))), "subject", [f"{G}/scattered"]),
    "rows in other order": (ROUNDED, put("x0.grad", swapped), "subject", [f"{G}/other"]),
    "an infinity": (ROUNDED, put("x0.grad", at(float("inf"), (2, 2))), "subject", [f"{N}/backward/nonfinite"]),
    "a nan in an output": (ROUNDED, put("v1", at(float("nan"), (2, 2))), "subject", [f"{N}/forward/nonfinite"]),
    "an output": (ROUNDED, put("v1", at(7.0, (2, 2), (1, 1))), "subject", [f"{V}/scattered"]),
    "both directions": (
        ROUNDED,
        both_directions,
        "subject",
        [f"{G}/other", f"{V}/all-zero"],
    ),
    "one more in an integer gradient": (
        INTEGER,
        put("x0.grad", at(0, (3, 4), by=1.0)),
        "subject",
        [f"{G}/constant-ratio"],
    ),
    "a millionth in an integer output": (
        INTEGER,
        put("v0", at(0, (3, 1), by=1e-5)),
        "subject",
        [f"{V}/constant-ratio"],
    ),
    "eager alone is wrong": (
        ROUNDED,
        put("x0.grad", swapped),
        "reference",
        ["gradients_agree/eager-suspect/backward/constant-ratio"],
    ),
    "None for a zero gradient": (UNUSED, put("x0.grad", lambda t: None), "subject", []),
    "None for a gradient that is not zero": (
        UNUSED,
        put("x2.grad", lambda t: None),
        "subject",
        [f"{M}/backward/None-ness"],
    ),
    "zeros for None": (UNUSED, put("x1.grad", lambda t: torch.zeros(5)), "subject", []),
    "memory of others": (
        UNUSED,
        put("x0.grad", beyond_its_storage),
        "subject",
        [f"{M}/backward/storage"],
    ),
    "ones for None": (UNUSED, put("x1.grad", lambda t: torch.ones(5)), "subject", [f"{M}/backward/None-ness"]),
    "another dtype": (ROUNDED, put("x0.grad", lambda t: t.double()), "subject", [f"{M}/backward/dtype"]),
    "another dtype of an output": (ROUNDED, put("v1", lambda t: t.double()), "subject", [f"{M}/forward/dtype"]),
    "another shape": (ROUNDED, put("x0.grad", lambda t: t[:, :1]), "subject", [f"{M}/backward/shape"]),
    "other strides": (ROUNDED, put("x0.grad", lambda t: t.t().contiguous().t()), "subject", []),
    "what only independent rounding explains": (
        CANCELLED,
        put("v2", at(3e-8, (4,))),
        "subject",
        ["outputs_agree/rounding-sensitive/forward/scattered"],
    ),
    "what no rounding explains": (CANCELLED, put("v2", at(3e-4, (4,))), "subject", [f"{V}/scattered"]),
    "an overflow avoided": (
        OVERFLOW,
        put("v1", at(300.0, (0,), (1,))),
        "subject",
        ["finiteness_agrees/nonfinite-differs/forward/finite for infinite"],
    ),
    "an overflow where none is near": (
        OVERFLOW,
        put("v1", at(float("inf"), (2,))),
        "subject",
        [f"{N}/forward/nonfinite"],
    ),
}


MEAN_LOSS = """x0 = leaf(f32[2001], seed=1)
v0 = mul_scalar(x0, other=2.0)
v1 = mean(v0)
backward(v1, cotangent(f32[()], values="ones"))
"""
WIDE = """x0 = leaf(bf16[10000], requires_grad=False, seed=1)
x1 = leaf(bf16[10000], seed=2)
v0 = mul_scalar(x0, other=4.0)
v1 = mul(v0, x1)
backward(v1, cotangent(bf16[10000], seed=3))
"""


@pytest.mark.parametrize(
    ("text", "name", "spoil"),
    [(MEAN_LOSS, "x0.grad", torch.zeros_like), (WIDE, "x1.grad", at(0, (7,), by=1.0))],
    ids=["every gradient of a mean loss lost", "one bfloat16 element in 10,000 off by 1"],
)
def test_faults_that_torchs_own_accuracy_check_lets_pass(
    text: str, name: str, spoil: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """torch._dynamo.utils.same, as the benchmarks and the minifier call it: a tolerance and an RMSE over the tensor."""
    from torch._dynamo.utils import same

    made = trial(text, put(name, spoil))
    eager, compiled = (made.named(side)[name] for side in (made.reference, made.subject))
    leaves = [leaf.double().requires_grad_() for leaf in materialise(made.program.leaves).values()]
    seeds = [c.double() for c in cotangents(made.program)]
    exact = torch.autograd.grad(to_function(made.program)(*leaves), leaves, seeds)[int(name[1])]
    assert same(eager, compiled, exact, tol=1e-3)
    assert [v.signature.oracle for v in verdicts(made)] == ["gradients_agree"]
    assert verdicts(trial(text)) == []


@pytest.mark.parametrize(("text", "change", "side", "expected"), CASES.values(), ids=CASES)
def test_a_difference_has_its_class_and_pattern(text: str, change: Change, side: str, expected: list[str]) -> None:
    found = verdicts(trial(text, change, side))
    assert sorted(str(v.signature).rpartition("/")[0] for v in found) == sorted(e.rpartition("/")[0] for e in expected)
    if side == "subject":
        assert sorted(str(v.signature) for v in found) == sorted(expected)


def died(signal: str, frame: str = "") -> Observation:
    return Observation(DIED, phase="backward", signal=signal, frame=frame)


def raised(message: str, *frames: str, phase: str = "backward") -> Observation:
    return Observation(RAISED, phase=phase, raised=Raised("LoweringException", message, frames))


ENDED = [
    (died("SIGSEGV", "at::native::copy_"), "worker_survives/crashes/backward/SIGSEGV at::native::copy_"),
    (died("SIGABRT"), "worker_survives/crashes/backward/SIGABRT"),
    (died("SIGABRT", CORRUPT_HEAP), "worker_survives/crashes/backward/a corrupt heap"),
    (died("SIGSEGV", CORRUPT_HEAP), "worker_survives/crashes/backward/a corrupt heap"),
    (Observation(TIMED_OUT, phase="forward"), "worker_survives/hangs/forward/deadline"),
    (
        raised("sizes 12 and 8", "lower", "run"),
        "compile_does_not_raise/raises/backward/LoweringException < lower < run",
    ),
    (raised("", phase="forward"), "compile_does_not_raise/raises/forward/LoweringException"),
]


@pytest.mark.parametrize(("observation", "expected"), ENDED, ids=[e[1] for e in ENDED])
def test_a_run_that_did_not_end_well_has_one_verdict(observation: Observation, expected: str) -> None:
    (found,) = verdicts(ended(observation))
    assert str(found.signature) == expected
    assert found.signature == parse_signature(expected)
    assert found.detail


def shaped(rows: int, columns: int) -> str:
    return ROUNDED.replace("[8, 12]", f"[{rows}, {columns}]")


@pytest.mark.parametrize("make", [torch.zeros_like, swapped, at(float("nan"), (0, 1)), lambda t: t[:1], lambda t: None])
def test_a_signature_does_not_depend_on_shapes_names_or_dtypes(make: Callable[[Any], Any]) -> None:
    renamed = shaped(16, 21).replace("x0", "x7").replace("f32", "f64")
    first = [v.signature for v in verdicts(trial(shaped(8, 12), put("x0.grad", make)))]
    second = [v.signature for v in verdicts(trial(renamed, put("x7.grad", make)))]
    assert first == second
    assert first
    assert not any(c.isdigit() for s in first for c in str(s))


def test_the_signature_of_an_exception_has_no_numbers_of_its_message_or_frames() -> None:
    one = verdicts(ended(raised("expected 12 got 13", "run_41", "lower")))[0].signature
    other = verdicts(ended(raised("expected 7 got 0x7ffe", "run_7", "lower")))[0].signature
    assert one == other


def test_an_oracle_is_pure() -> None:
    made = trial(ROUNDED, put("x0.grad", swapped))
    before = {k: t.clone() for k, t in made.named(made.subject).items()}
    assert verdicts(made) == verdicts(replace(made, known={}))
    assert all(torch.equal(before[k], t) for k, t in made.named(made.subject).items())


def test_verdicts_come_worst_first() -> None:
    def change(named: dict[str, Any]) -> None:
        put("v2", at(3e-8, (4,)))(named)
        put("x0.grad", lambda t: t + 1)(named)

    found = [v.signature.verdict for v in verdicts(trial(CANCELLED, change))]
    assert found == ["wrong", "rounding-sensitive"]


ROOT = Path(__file__).parents[2]
NAMES = {oracle.name for oracle in ORACLES}


def names_in(tree: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)} & NAMES


def test_nobody_names_an_oracle_but_itself_its_canaries_and_its_check() -> None:
    tables = {"fuzzer/judgement/oracles.py", "fuzzer/campaign/canaries.py", "fuzzer/export/checks.py"}
    for path in [path for package in ("fuzzer", "minimizer") for path in sorted((ROOT / package).rglob("*.py"))]:
        text = path.read_text()
        found = names_in(ast.parse(text)) if any(name in text for name in NAMES) else set()
        assert not found or str(path.relative_to(ROOT)) in tables, f"{path} names {found}"
    assert set(CHECKS) <= NAMES


def test_a_claim_gives_its_own_name_and_is_in_the_list() -> None:
    tree = ast.parse((ROOT / "fuzzer/judgement/oracles.py").read_text())
    claims = [f for f in tree.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_") and returns(f)]
    assert {claim.name for claim in claims} == NAMES
    for claim in claims:
        assert names_in(claim) == {claim.name}


def returns(function: ast.FunctionDef) -> bool:
    """Whether it takes a Trial alone and gives a Verdict or None."""
    given = [ast.unparse(a.annotation) for a in function.args.args if a.annotation]
    return given == ["Trial"] and function.returns is not None and ast.unparse(function.returns) == "Verdict | None"


def test_every_oracle_states_its_claim() -> None:
    for oracle in ORACLES:
        assert oracle.claim.__doc__
        assert oracle.claim(trial(ROUNDED)) is None


def test_an_error_can_be_seen_in_almost_every_element_of_a_plain_program() -> None:
    seen, total = detectable(trial(ROUNDED))
    assert total == 192
    assert seen > 0.98 * total


def test_an_element_beside_which_its_floor_is_large_is_deaf() -> None:
    steep = "x0 = leaf(f32[8], seed=1)\nv0 = mul_scalar(x0, other=1e9)\nv1 = sin(v0)\nbackward(v1, cotangent(f32[8]))\n"
    assert deaf_elements(trial(steep)) == 8
    assert deaf_elements(trial(ROUNDED)) == 0


def test_an_input_that_only_the_compiled_side_writes_to_is_told() -> None:
    made = trial(ROUNDED)
    made.subject.touched = {"x0": "backward"}
    [told] = verdicts(made)
    assert str(told.signature) == "inputs_untouched/wrong/backward/leaf"
    assert told.detail.startswith("x0 does not hold")
    made.reference.touched = {"x0": "backward"}
    assert verdicts(made) == []


def test_a_write_beside_an_input_is_told_as_such() -> None:
    made = trial(ROUNDED)
    made.subject.touched = {"around c0": "backward"}
    [told] = verdicts(made)
    assert str(told.signature) == "inputs_untouched/wrong/backward/around cotangent"
    assert "out of bounds" in told.detail


def rerun(change: Change, **observed: Any) -> Trial:
    """A trial whose compiled code ran twice, the second time with `change`."""
    first, second = trial(ROUNDED), trial(ROUNDED, change)
    first.subject = replace(first.subject, again=second.subject, **observed)
    return first


@pytest.mark.parametrize(
    ("make", "observed", "expected"),
    [
        (lambda t: t, {}, []),
        (one_unit, {"atomics": True}, ["rerun_is_identical/agree/backward/no set order"]),
        (one_unit, {"atomics": False}, ["rerun_is_identical/nondeterministic/backward/no atomics"]),
        (one_unit, {}, ["rerun_is_identical/nondeterministic/backward/no atomics"]),
        (one_unit, {"atomics": False, "admitted": "torch says so"}, ["rerun_is_identical/agree/backward/no set order"]),
        (swapped, {"atomics": True}, ["rerun_is_identical/nondeterministic/backward/beyond rounding"]),
    ],
)
def test_a_second_run_may_differ_by_rounding_where_it_adds_in_no_set_order(
    make: Callable[[Any], Any], observed: dict[str, Any], expected: list[str]
) -> None:
    found = verdicts(rerun(put("x0.grad", make), **observed))
    assert [str(v.signature) for v in found] == expected


def test_two_runs_are_compared_bit_by_bit() -> None:
    signed, nan = torch.tensor([0.0, 1.0]), torch.tensor([float("nan"), 1.0])
    assert differing_tensors({"a": signed, "b": nan}, {"a": torch.tensor([-0.0, 1.0]), "b": nan.clone()}) == ["a"]
    assert differing_tensors({"a": None}, {"a": None}) == []
    assert differing_tensors({"a": None}, {"a": signed}) == ["a"]
    half = torch.tensor([1 + 2j]).conj()
    assert differing_tensors({"a": half}, {"a": half.resolve_conj()}) == []


def test_compiling_may_take_as_long_as_its_operations_explain() -> None:
    made = trial(ROUNDED)
    made.subject.cpu_seconds = COMPILE_SECONDS
    assert verdicts(made) == []
    made.subject.cpu_seconds = 3 * COMPILE_SECONDS
    (told,) = verdicts(made)
    assert str(told.signature) == "compile_is_timely/costly/-/CPU time"
    assert "75 CPU seconds; at most 29" in told.detail


@pytest.mark.parametrize(("peak", "rings"), [(None, False), (MEMORY_BYTES, False), (2 * MEMORY_BYTES, True)])
def test_memory_may_be_a_multiple_of_what_eager_computes(peak: int | None, rings: bool) -> None:
    made = rerun(lambda named: None)
    assert made.subject.again is not None
    made.subject.again.peak = peak
    assert [str(v.signature) for v in verdicts(made)] == ["memory_is_sane/costly/-/memory"] * rings


def test_what_is_wrong_only_without_the_settings_is_told_where_that_is_asked() -> None:
    made, bare = trial(ROUNDED), trial(ROUNDED, put("x0.grad", swapped)).subject
    assert verdicts(replace(made, bare=bare)) == []
    (told,) = verdicts(replace(made, bare=bare, also=ASKED))
    assert str(told.signature) == "settings_agree/wrong/backward/other"
    both = replace(made, subject=bare, bare=bare, also=ASKED, known={})
    assert [v.signature.oracle for v in verdicts(both)] == ["gradients_agree"]


MASKED = """x0 = leaf(f32[4], values=data([1.0, -1.0, 2.0, -2.0]))
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="positive", seed=1))
"""


@pytest.mark.parametrize(("places", "pattern"), [([1], "some"), ([1, 3], "all"), ([], "")])
def test_the_sign_of_a_zero_is_told_where_that_is_asked(places: list[int], pattern: str) -> None:
    made = trial(MASKED, put("x0.grad", at(-0.0, *[(i,) for i in places])))
    assert verdicts(made) == []
    found = [str(v.signature) for v in verdicts(replace(made, also=ASKED)) if v.signature.oracle == "zero_signs_agree"]
    assert found == ([f"zero_signs_agree/signed-zero/backward/{pattern}"] if pattern else [])
