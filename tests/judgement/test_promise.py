"""What torch does not promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.promise import promised_error, why_unsupported
from fuzzer.judgement.trial import RAISED, Observation, Raised
from fuzzer.judgement.verdict import Signature, follows
from fuzzer.language.text import parse
from tests.judgement.trials import ROUNDED, trial

PLAIN = """program(1)
route("autograd")
x0 = leaf(f32[4])
v0 = relu(x0)
backward(v0, cotangent(f32[4]))
"""
SCAN = PLAIN.replace("v0 = relu(x0)", "x1 = leaf(f32[()])\nwith scan(x1, x0):\n    v0 = mul(x1, x0)")
LATER = PLAIN.replace("backward(", "with between():\n    v1 = exp_(x0)\nbackward(")
KNOB = 'settings({"inductor.unroll_reductions_threshold": 1})\nroute("autograd"'
VJP = 'route("vjp", dynamic=True'
OF_EAGER = ('route("autograd"', 'route("compiled_autograd", eager_forward=True')
UNTRACED = "TorchRuntimeError < unimplemented < <lambda> < _wrap_graph_break"


@pytest.mark.parametrize(
    ("text", "pattern", "why"),
    [
        (PLAIN, "scattered", ""),
        (PLAIN.replace('route("autograd"', KNOB), "scattered", "setting inductor.unroll_reductions_threshold"),
        (PLAIN.replace("relu", "safe_softmax").replace("(x0)", "(x0, dim=0)"), "other",
         "operator torch.ops.aten._safe_softmax.default"),
        (SCAN, "RuntimeError < _check_alias_and_mutation < scan_functionalize", "region scan"),
        (SCAN, "scattered", ""),
        (SCAN.replace("scan(x1, x0)", "vmap(x1)"), "RuntimeError < _check_alias_and_mutation", ""),
        (LATER, "RuntimeError < _compiled_backward < backward < apply_boxed", "what a compiled graph saves"),
        (LATER, "RuntimeError < backward < apply < _engine_run_backward", "what a compiled graph saves"),
        (LATER, "RuntimeError < _compiled_forward < forward", ""),
        (PLAIN, "RuntimeError < _compiled_backward < backward < apply_boxed", ""),
        (PLAIN.replace('route("autograd"', VJP), UNTRACED, "route vjp with dynamic sizes"),
        (PLAIN.replace('route("autograd"', VJP), "Unsupported < call", "route vjp with dynamic sizes"),
        (PLAIN.replace('route("autograd"', VJP), "KeyError < call", ""),
        (PLAIN.replace('route("autograd"', 'route("vjp"'), UNTRACED, ""),
        (PLAIN.replace(*OF_EAGER), "Unsupported < call", "route compiled_autograd over an eager forward"),
        (PLAIN.replace(*OF_EAGER), "KeyError < call", ""),
        (PLAIN.replace('route("autograd"', 'route("autograd", dynamic=True'), UNTRACED, ""),
    ],
)  # fmt: skip
def test_settings_of_tests_internal_operators_and_what_dynamo_refuses_are_not_promised(
    text: str, pattern: str, why: str
) -> None:
    assert why_unsupported(parse(text), pattern) == why


def test_an_internal_operator_that_a_public_function_calls_is_promised() -> None:
    text = PLAIN.replace("f32[3]", "f32[1, 1, 3, 3]")
    lines = [line for line in text.splitlines() if not line.startswith(("v", "backward"))]
    called = "v0 = upsample_bilinear2d_aa(x0, output_size=(2, 1), align_corners=False)"
    program = parse("\n".join([*lines, called, "backward(v0, cotangent(f32[1, 1, 2, 1]))"]) + "\n")
    assert why_unsupported(program, "other") == ""


def test_a_verdict_is_unsupported_where_torch_promises_nothing() -> None:
    made = trial(ROUNDED)
    made.subject = Observation(RAISED, phase="forward", raised=Raised("KeyError", "x", ("f",)))
    assert [v.signature.verdict for v in verdicts(made)] == ["raises"]
    made.code = replace(made.program, settings=(("inductor.unroll_reductions_threshold", 1),))
    assert [v.signature.verdict for v in verdicts(made)] == ["unsupported"]


def test_what_is_unsupported_counts_as_the_same_difference() -> None:
    raised, other = (Signature("compile_does_not_raise", v, "forward", "KeyError") for v in ("raises", "unsupported"))
    assert follows(raised, other)
    assert follows(other, raised)
    assert not follows(raised, Signature("compile_does_not_raise", "wrong", "forward", "KeyError"))


@pytest.mark.parametrize(
    ("kind", "message", "promised"),
    [
        ("RuntimeError", "one of the variables needed has been modified by an inplace operation: [2]", True),
        ("RuntimeError", "a leaf Variable that requires grad is being used in an in-place operation.", True),
        ("IndexError", "index out of range in self", True),
        ("RuntimeError", "index 7 is out of bounds for dimension 0 with size 5", True),
        ("RuntimeError", "The size of tensor a (3) must match the size of tensor b (4)", True),
        ("RuntimeError", "\"sum_cpu\" not implemented for 'Half'", False),
        ("KeyError", "index out of range in self", False),
    ],
)
def test_of_eagers_errors_those_are_promised_that_guard_against_wrong_numbers(
    kind: str, message: str, promised: bool
) -> None:
    assert bool(promised_error(Raised(kind, message))) is promised
