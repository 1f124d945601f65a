"""Who is wrong: trials whose gradients were changed on one side or the other, and eager's own faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fuzzer.diagnosis.dissect import describe_and_decide
from fuzzer.diagnosis.side import combine, decide, side_of, told_side, who_raised
from fuzzer.judgement.comparison import judge_tensors
from fuzzer.judgement.trial import RAN, Observation, Place, Raised, Subject, Trial
from fuzzer.judgement.verdict import BOTH, CHOICE, COMPILED, EAGER, NEITHER, UNASKED, UNDECIDED, Signature
from fuzzer.language import control
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import run_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.diagnosis.cases import finding

Change = Callable[[torch.Tensor], torch.Tensor]

# The changes are gross: what is asked here is whose they are.
pytestmark = pytest.mark.usefixtures("fewer_replicas")


def program(body: str, route: str = '"autograd"') -> str:
    return f"program(1)\nroute({route})\n" + body.strip() + "\n"


SMOOTH = program("""
x0 = leaf(f32[2, 5], seed=1)
v0 = tanh(x0)
v1 = sum(v0, dim=1)
backward(v1, cotangent(f32[2], seed=3))
""")
CORNER = program("""
x0 = leaf(f32[4], values=data([0.0, 0.0, 1.0, -1.0]))
v0 = relu(x0)
backward(v0, cotangent(f32[4], values="ones"))
""")
TIE = program("""
x0 = leaf(f32[3], values=data([2.0, 2.0, 1.0]))
v0 = amax(x0, dim=(0,))
backward(v0, cotangent(f32[()], values="ones"))
""")


def changed(observation: Observation, change: Change | None) -> Observation:
    """The observation with its first gradient changed."""
    gradients = {name: g if g is None else g.clone() for name, g in observation.gradients.items()}
    if change is not None:
        name = next(iter(gradients))
        gradients[name] = change(gradients[name])
    return replace(observation, outcome=RAN, gradients=gradients)


def told(text: str, compiled: Change | None = None, eager: Change | None = None) -> str:
    """The ruling on a program whose sides' first gradients were changed."""
    trial: Trial = run_reference(parse(text), Task(), Journal(None))
    trial.subject = changed(trial.reference, compiled)
    trial.reference = changed(trial.reference, eager)
    with torch.no_grad():
        found = list(judge_tensors(trial, list(trial.targets)))
        assert found, "nothing lies outside its floor"
        return decide(trial, found)


def one(g: torch.Tensor) -> torch.Tensor:
    """One element is off by a tenth."""
    g = g.clone()
    g.view(-1)[1] *= 1.1
    return g


def test_the_side_whose_gradient_is_no_derivative_is_wrong() -> None:
    assert told(SMOOTH, compiled=one).startswith(f"{COMPILED}: at x0[0, 1] central differences")
    assert told(SMOOTH, eager=one).startswith(f"{EAGER}: at x0[0, 1]")
    assert told(SMOOTH, compiled=lambda g: g * 2, eager=lambda g: g * 3).startswith(BOTH)


def test_the_reason_gives_the_derivative_and_both_sides() -> None:
    said = told(TIE.replace("2.0, 2.0", "2.0, 1.5"), compiled=torch.zeros_like)
    assert said.startswith(f"{COMPILED}: at x0[0] central differences in float64 and forward-mode AD give 1 ")
    assert said.endswith("; eager has 1, compiled 0")


@pytest.mark.parametrize(
    "body",
    [
        "x0 = leaf(f64[2, 5], seed=1)\nv0 = tanh(x0)\nbackward(v0, cotangent(f64[2, 5], seed=3))",
        "x0 = leaf(bf16[2, 5], seed=1)\nv0 = tanh(x0)\nbackward(v0, cotangent(bf16[2, 5], seed=3))",
        "x0 = leaf(f16[2, 5], seed=1)\nv0 = softmax(x0, dim=1)\nbackward(v0, cotangent(f16[2, 5], seed=3))",
        "x0 = leaf(f32[2, 5], stride=(1, 2), offset=3, seed=1)\nv0 = exp(x0)\nbackward(v0, cotangent(f32[2, 5]))",
        "x0 = leaf(f32[3, 5], stride=(0, 1), seed=1)\nv0 = sin(x0)\nbackward(v0, cotangent(f32[3, 5]))",
        "x0 = leaf(c64[5], seed=1)\nv0 = complex_abs(x0)\nbackward(v0, cotangent(f32[5], seed=3))",
    ],
)  # fmt: skip
def test_dtypes_and_layouts(body: str) -> None:
    if "complex_abs" in body:
        body = body.replace("complex_abs", "abs")
    double: Change = lambda g: g * 2  # noqa: E731
    assert told(program(body), compiled=double).startswith(COMPILED)
    assert told(program(body), eager=double).startswith(EAGER)


@pytest.mark.parametrize("route", ["autograd", "vjp", "backward_twice", "accumulate", "compiled_autograd"])
def test_each_route_and_how_often_it_adds_up(route: str) -> None:
    assert told(SMOOTH.replace("autograd", route), compiled=one).startswith(f"{COMPILED}: at x0[0, 1]")


def test_several_leaves_and_what_one_reads_of_another() -> None:
    shared = program("""
x0 = leaf(f32[4], seed=1)
x1 = leaf_view(x0, f32[2], offset=1)
v0 = mul(x0, x0)
v1 = exp(x1)
backward(v0, cotangent(f32[4], seed=2))
backward(v1, cotangent(f32[2], seed=3))
""")
    assert told(shared, compiled=one).startswith(COMPILED)
    fixed = shared.replace("offset=1)", "offset=1, requires_grad=False)").replace("backward(v1", "returns(v1)#")
    assert told(fixed, compiled=one) == f"{UNDECIDED}: x1 shares its memory with what differs and has no gradient"


# ---------------------------------------------------------------- ties and kinks


def test_at_a_kink_whatever_lies_between_the_one_sided_derivatives_is_legal() -> None:
    assert told(CORNER, compiled=lambda g: torch.tensor([0.5, 1.0, 1.0, 0.0])).startswith(f"{CHOICE}: at x0[")
    assert told(CORNER, compiled=lambda g: torch.tensor([1.5, 0.0, 1.0, 0.0])).startswith(
        f"{COMPILED}: at x0[0], a kink"
    )
    assert told(CORNER, compiled=lambda g: torch.tensor([0.5, 0.0, 1.0, 0.5])).startswith(
        f"{COMPILED}: at x0[3] central"
    )
    assert told(CORNER, eager=lambda g: torch.tensor([0.0, -0.5, 1.0, 0.0])).startswith(f"{EAGER}: at x0[1], a kink")


def test_a_tie_may_share_its_gradient_as_it_likes_but_not_hand_out_more() -> None:
    assert told(TIE, compiled=lambda g: torch.tensor([1.0, 0.0, 0.0])).startswith(CHOICE)
    assert told(TIE, compiled=lambda g: torch.tensor([0.25, 0.75, 0.0])).startswith(CHOICE)
    assert told(TIE, compiled=lambda g: torch.tensor([1.0, 1.0, 0.0])).startswith(
        f"{COMPILED}: along what differs in x0"
    )
    assert told(TIE, compiled=lambda g: torch.tensor([0.0, 0.0, 1.0])).startswith(COMPILED)


def test_a_kink_inside_a_smooth_function_is_one_of_its_formulas() -> None:
    """relu(x) - relu(-x) is x; with torch's relu'(0) = 0 its gradient is 0, by convention as legal as 1."""
    inside = program("""
x0 = leaf(f32[2], values=data([0.0, 1.0]))
v0 = relu(x0)
v1 = neg(x0)
v2 = relu(v1)
v3 = sub(v0, v2)
backward(v3, cotangent(f32[2], values="ones"))
""")
    assert told(inside, compiled=torch.ones_like).startswith(f"{CHOICE}: at x0[0], a kink or tie, anything from 0 to 1")


def test_where_no_derivative_is_bounded_nobody_is_wrong() -> None:
    root = program("""
x0 = leaf(f32[2], values=data([0.0, 1.0]))
v0 = abs(x0)
v1 = sqrt(v0)
backward(v1, cotangent(f32[2], values="ones"))
""")
    assert told(root, compiled=lambda g: torch.tensor([5.0, 0.5])).startswith(UNDECIDED)


def test_what_draws_random_numbers_is_undecided() -> None:
    dropout = """program(1)
settings({"inductor.fallback_random": True})
route("autograd")
x0 = leaf(f32[8], seed=1)
v0 = dropout(x0, training=True)
backward(v0, cotangent(f32[8], values="ones"))
"""
    assert "draws random numbers" in told(dropout, compiled=lambda g: g.flip(0))


def test_eigenvalues_have_no_order_and_so_no_derivative() -> None:
    text = program("""
x0 = leaf(f32[3, 3], values="separated", seed=1)
v0 = eigvals_parts(x0)
backward(v0, cotangent(f32[3, 2], seed=2))
""")
    assert told(text, compiled=lambda g: g + 1000) == f"{UNDECIDED}: linalg_eig returns its values in no order"


# ---------------------------------------------------------------- outputs, and what is not decided


def test_an_output_is_held_against_eagers_operations_in_float64() -> None:
    def off(text: str, side: str) -> str:
        trial = run_reference(parse(text), Task(), Journal(None))
        trial.subject = replace(trial.reference, outputs=[out.clone() for out in trial.reference.outputs])
        getattr(trial, side).outputs = [out + 1 for out in trial.reference.outputs]
        with torch.no_grad():
            return decide(trial, list(judge_tensors(trial, ["v1"])))

    assert off(SMOOTH, "subject").startswith(f"{COMPILED}: at v1[")
    assert off(SMOOTH, "reference").startswith(f"{EAGER}: at v1[")
    assert off(SMOOTH.replace("f32", "f64"), "subject").startswith(f"{UNDECIDED}: v1 is float64")


def test_without_a_derivative_it_is_undecided_with_the_reason() -> None:
    assert combine([], ["x1 has none"], "") == f"{UNDECIDED}: x1 has none"
    assert combine([], [], "") == f"{UNDECIDED}: no derivative could be computed"


def test_rounding_that_is_legal_on_both_sides_makes_neither_wrong() -> None:
    trial = run_reference(parse(SMOOTH), Task(), Journal(None))
    trial.subject = changed(trial.reference, one)
    with torch.no_grad():
        found = [replace(j, verdict="rounding-sensitive") for j in judge_tensors(trial, list(trial.targets))]
        assert decide(trial, found).startswith(NEITHER)


# ---------------------------------------------------------------- eager's own faults

HARDSIGMOID = program("""
x0 = leaf(f64[()], values="ones")
v0 = hardsigmoid(x0)
backward(v0, cotangent(f64[()], values="ones"))
""")
BATCH_NORM = program("""
x0 = leaf(f32[1, 2, 1, 2, 1], stride=(2, 1, 1, 2, 2), values="ones")
v0 = batch_norm(x0, running_mean=None, running_var=None, training=True)
backward(v0, cotangent(f32[1, 2, 1, 2, 1], values="arange"))
""")


@pytest.mark.slow
@pytest.mark.parametrize("text", [HARDSIGMOID, BATCH_NORM])
def test_faults_of_eager_on_the_cpu_are_eagers(text: str) -> None:
    place = Place(Subject("eager", "cpu"), Subject("aot_eager_decomp_partition", "cpu"))
    report = describe_and_decide(Task(place=place, fresh=True), text)
    side = report.notes["side"]
    assert side.startswith((EAGER, "none: no tensor")), side  # the second: a release has repaired it


def test_sides_that_agree_on_a_wrong_gradient_are_both_wrong() -> None:
    assert told(SMOOTH, lambda g: 2 * g, lambda g: 2 * g).startswith(f"{BOTH}: ")


@pytest.mark.parametrize("op", ["embedding_bag", "embedding"])
def test_a_gradient_that_is_scaled_is_no_derivative(op: str) -> None:
    shape = "2, 1" if op == "embedding_bag" else "2, 2, 1"
    text = program(f"""
x0 = leaf(f32[3, 1], seed=1)
x1 = leaf(i64[2, 2], values=data([0, 0, 0, 1]))
v0 = {op}(x0, x1, scale_grad_by_freq=True)
backward(v0, cotangent(f32[{shape}], values="ones"))
""")
    assert "no derivatives then" in told(text, lambda g: 3 * g)


@pytest.mark.parametrize("region", ["hook(scale=2.0)", "function(scale=-0.5)", "no_grad()"])
def test_a_gradient_that_autograd_was_told_is_held_against_eagers_operations_and_no_derivative(region: str) -> None:
    text = program(f"""
x0 = leaf(f32[2, 5], seed=1)
with {region}:
    v0 = tanh(x0)
v1 = mul(x0, v0)
backward(v1, cotangent(f32[2, 5], seed=3))
""")
    assert told(text, one).startswith(f"{COMPILED}: at x0.grad[0, 1] eager's operations in float64 give ")
    assert told(text, None, one).startswith(f"{EAGER}: at x0.grad[0, 1] eager's operations in float64 give ")


# ---------------------------------------------------------------- what is no question of numbers


def traceback(*files: str) -> str:
    return "".join(f'  File "{file}", line 1, in run\n' for file in files)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            ("fuzzer/language/routes/autograd.py", "torch/_inductor/graph.py"),
            "_inductor/graph.py, run: the comp",
        ),
        (
            ("torch/_dynamo/eval_frame.py", "torch/_ops.py"),
            "in torch/_ops.py, run: raised by a kernel that eager",
        ),
        (("torch/_inductor/output_code.py", "torch/_ops.py", "cabc.py"), "raised by the code that it wrote"),
        (("torch/_dynamo/output_graph.py", "torch/autograd/graph.py"), "met by the compiler while it traced"),
        ((), "TypeError: raised by a kernel"),
    ],
)
def test_an_exception_is_of_the_innermost_of_torchs_files(files: tuple[str, ...], told: str) -> None:
    said = who_raised(Raised("TypeError", "no", (), traceback(*files)))
    assert told in said
    assert said.startswith("TypeError")


@pytest.mark.parametrize(
    ("signature", "side"),
    [
        (Signature("compile_does_not_raise", "raises", "forward", "TypeError"), "compiled raises: TypeError in"),
        (Signature("compile_does_not_raise", "unsupported", "forward", "TypeError"), "compiled raises: TypeError in"),
        (Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "compiled dies: x0.grad[0]"),
        (Signature("worker_survives", "hangs", "backward", ""), "compiled hangs: x0.grad[0]"),
        (Signature("metadata_agrees", "wrong", "forward", "dtype"), "compiled differs: x0.grad[0]"),
        (Signature("inputs_untouched", "wrong", "forward", "leaf"), "compiled differs: x0.grad[0]"),
        (Signature("gradients_agree", "wrong", "backward", "other"), ""),
    ],
)
def test_every_class_has_a_side_with_and_without_a_diagnosis(signature: Signature, side: str) -> None:
    found = finding(signature=signature)
    assert told_side(found, "TypeError in torch/_inductor/graph.py").startswith(side)
    assert found.side == (side.partition(":")[0] or UNASKED)


LOOP = program(
    """
x0 = leaf(f32[], requires_grad=False, values="ones")
x1 = leaf(f32[], values="ones")
with while_loop(x0):
    v0 = mul(x0, x1)
backward(v0, cotangent(f32[], values="ones"))
""".replace("[]", "[()]")
)


@pytest.mark.parametrize(("rounds", "side"), [(1, BOTH), (2, COMPILED)])
def test_torchs_own_control_flow_is_judged_too(rounds: int, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def torchs_own(
        goes_on: object, block: Callable[..., tuple[torch.Tensor, ...]], given: tuple[torch.Tensor, ...]
    ) -> object:
        for _ in range(rounds):
            given = block(*given)
        return given

    trial = run_reference(parse(LOOP), Task(), Journal(None))
    trial.subject = changed(trial.reference, lambda g: g / 2)
    monkeypatch.setattr(control, "higher_order", lambda name: torchs_own)
    said = side_of(trial)
    assert said.startswith(f"{side}: ")
    assert ("torch's own while_loop gives 1 in eager too" in said) == (side == BOTH)
    assert "give 2" in said


def test_what_torchs_own_control_flow_refuses_leaves_the_ruling(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run_reference(parse(LOOP), Task(), Journal(None))
    trial.subject = changed(trial.reference, lambda g: g / 2)

    def refuses(name: str) -> object:
        raise RuntimeError(f"no {name} here")

    monkeypatch.setattr(control, "higher_order", refuses)
    assert side_of(trial).startswith(f"{COMPILED}: ")
