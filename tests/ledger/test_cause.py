"""What decides a finding, and which findings share it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import Comparison, Finding, Signature
from fuzzer.language.text import parse
from fuzzer.ledger.cause import DROPPED, MIXED, Cause, cause_of, group, hook_is_dropped, mixes_writes
from fuzzer.ledger.diagnosed import DIAGNOSER, VERSION, version_line
from fuzzer.ledger.switches import DENSE_COPIES, OUTER_LOOPS, SWITCHES

HEAD = 'program(1)\nroute("autograd")\n'
STAGES = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
RAISES = Signature("compile_does_not_raise", "raises", "forward", "KeyError < lower < call")
WRONG = Signature("gradients_agree", "wrong", "backward", "scattered")


def text(*nodes: str, shape: str = "4", head: str = HEAD, dtype: str = "f32") -> str:
    """A program of ops that take one operand, or of whole calls."""
    lines = [f"x0 = leaf({dtype}[{shape}])"]
    lines += [
        f"v{i} = {op}" if "(" in op else f"v{i} = {op}({f'v{i - 1}' if i else 'x0'})" for i, op in enumerate(nodes)
    ]
    return f"{head}{chr(10).join(lines)}\nbackward(v{len(nodes) - 1}, cotangent({dtype}[{shape}]))\n"


def found(program: str, stage: str = "inductor", signature: Signature = WRONG, **changes: object) -> Finding:
    """A finding that first differs at a stage; bisector and vanishes as a diagnosis tells them."""
    first = STAGES.index(stage) if stage in STAGES else len(STAGES)
    made = Finding(
        signature,
        f"the forward raised {signature.pattern.split()[0]}: " if signature.verdict == "raises" else "x0.grad[0]",
        program,
        program,
        {"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"},
        3,
        3,
        stages={name: "agree" if i < first else signature.verdict for i, name in enumerate(STAGES)},
    )
    if bisector := changes.pop("bisector", ""):
        changes["diagnosis"] = {"bisector": bisector}
    if vanishes := changes.pop("vanishes", ()):
        changes["ablation"] = dict.fromkeys(vanishes, "agree")  # type: ignore[call-overload]
    return replace(made, **changes)  # type: ignore[arg-type]


def lowering(node: str) -> dict[str, str]:
    return {"bisector": f"inductor: lowerings, number 3, {node}; 1 of 7 runs showed something else"}


SETTINGS = 'program(1)\nsettings({"inductor.max_fusion_size": 4})\nroute("autograd")\n'
DRAWS = 'program(1)\nsettings({"inductor.fallback_random": True})\nroute("autograd")\n'
NO_COMPILER = {"stages": {}, "place": {"backend": "flag_gems", "against": "eager", "device": "cuda"}}
KERNELS = {"stages": {}, "place": {"backend": "eager", "against": "eager@cpu", "device": "cuda"}}


@pytest.mark.parametrize(
    ("finding", "stage", "decided"),
    [
        (found(text("relu")), "inductor", ""),
        (found(text("relu"), "aot_eager"), "aot_eager", ""),
        (found(text("exp"), **lowering("exp_1")), "inductor", "operator exp"),
        (found(text("exp"), vanishes=["aten.exp.default left to ATen"]), "inductor", "operator exp"),
        (found(text("exp"), "aot_eager", **lowering("exp_1")), "aot_eager", ""),  # it began before
        (
            found(text("exp"), "aot_eager_decomp_partition", bisector="aot_eager_decomp_partition: decomposition, "
                  "number 1, <OpOverload(op='aten.index_fill', overload='int_Scalar')>"),
            "aot_eager_decomp_partition", "operator index_fill",
        ),
        (found(text("exp", head=SETTINGS), **lowering("exp")), "inductor", "setting inductor.max_fusion_size"),
        (found(text("exp", head=DRAWS), **lowering("exp")), "inductor", "operator exp"),
        (found(text("exp"), vanishes=["fp fusion off", "aten.exp.default left to ATen"]), "inductor", "fp fusion"),
        (
            found(text("exp"), bisector="inductor: joint_graph_passes, number 2, pass_pattern_0",
                  vanishes=["inductor.pattern_matcher=False", "inductor.optimize_scatter_upon_const_tensor=False"]),
            "inductor", "pass inductor.optimize_scatter_upon_const_tensor=False",
        ),
        (
            found(text("exp"), bisector="inductor: post_grad_passes, number 9, reinplace_inplaceable_ops"),
            "inductor", "pass reinplace_inplaceable_ops",
        ),
        (
            found(text("exp"), bisector="inductor: inductor_emulate_precision_casts, number 0, x"),
            "inductor", "pass inductor_emulate_precision_casts",
        ),
        (found(text("exp"), diagnosis={"side": "eager wrong: at x0[0]"}), "eager", ""),
        (replace(found(text("exp")), signature=replace(WRONG, verdict="eager-suspect")), "eager", ""),
        (found(text("exp"), unsupported="setting inductor.x"), "inductor", "setting inductor.x"),
        (found(text("exp"), unsupported="operator torch._masked_index"), "inductor", "operator masked_index"),
        (replace(found(text("relu6"), **NO_COMPILER), signature=replace(WRONG, pattern="all-zero")),
         "flag_gems", "replaced kernels"),
        (replace(found(text("exp"), **NO_COMPILER), signature=replace(WRONG, pattern="all-zero")), "flag_gems", ""),
        (found(text("exp"), **NO_COMPILER), "flag_gems", ""),
        (found(text("exp"), stages={"eager": "agree", "aot_eager": "raises", "aot_eager_decomp_partition": "agree",
                                    "inductor": "wrong"}), "inductor", ""),  # one run that failed is no stage
    ],
)  # fmt: skip
def test_what_decides_is_the_most_telling_experiment_where_the_difference_begins(
    finding: Finding, stage: str, decided: str
) -> None:
    cause = cause_of(finding)
    assert (cause.stage, cause.decided) == (stage, decided)


LAYOUT = replace(RAISES, pattern="AssertionError < run < call")
FAKE = "the forward raised AssertionError: expected size 2==2, stride 3==2 at dim=0"
GUARD = "the forward raised {}: Could not extract specialized integer from data-dependent expression u{} (x)"
HARD = Comparison("v0", (), 0.6666666865, 0.6666666667, 0.6666666667, 1.78e-15, 1, 1)
NONE = Signature("metadata_agrees", "wrong", "backward", "None-ness")
GONE = replace(WRONG, pattern="all-zero")

ONE = {
    "the same lowering behind several ops": [
        found(text("exp"), **lowering("mm_2")), found(text("sin"), **lowering("mm"))],
    "its backward": [found(text("avg_pool1d"), **lowering("avg_pool2d_backward")),
                     found(text("sin"), **lowering("avg_pool3d_backward_default"))],
    "a setting that both need": [found(text("exp", head=SETTINGS)), found(text("sin", head=SETTINGS), **lowering("x"))],
    "no experiment, the same op": [found(text("relu"), "aot_eager"), found(text("relu", shape="5"), "aot_eager")],
    "no experiment, and more beside": [found(text("sin"), "aot_eager"), found(text("sin", "exp"), "aot_eager")],
    "one by experiment, one by its op": [found(text("tan", "exp")), found(text("sin"), **lowering("tan"))],
    "the same program by another route": [
        found(text("exp"), signature=RAISES, **lowering("mm")), found(text("exp"), **lowering("mm"))],
    "a fake kernel's strides, caught or not": [
        found(text("fft2"), signature=LAYOUT, detail=FAKE), found(text("ifft2"), "aot_eager", RAISES)],
    "what a tracer says": [
        found(text("exp"), "aot_eager", RAISES, detail=GUARD.format("UserError", 0)),
        found(text("sin"), STAGES[2], RAISES, detail=GUARD.format("GuardOnDataDependentSymNode", 7))],
    "gradients that replaced kernels lost": [
        replace(found(text("relu6"), **NO_COMPILER), signature=GONE),
        replace(found(text("hstack"), **NO_COMPILER), signature=NONE)],
    "eager's kernel, seen by a compiler and by another device": [
        found(text("exp"), signature=replace(WRONG, verdict="eager-suspect")), found(text("exp"), **KERNELS)],
}  # fmt: skip
TWO = {
    "another lowering": [found(text("exp"), **lowering("mm")), found(text("exp"), **lowering("exp"))],
    "another stage": [found(text("relu"), "aot_eager"), found(text("relu"))],
    "another op": [found(text("relu"), "aot_eager"), found(text("exp"), "aot_eager")],
    "one raises": [found(text("exp"), **lowering("mm")), found(text("sin"), signature=RAISES, **lowering("mm"))],
    "one is infinite": [found(text("exp"), **lowering("mm")), found(text("sin"), **lowering("mm"),
                        signature=Signature("no_new_nonfinite", "wrong", "backward", "nonfinite"))],
    "an op in common": [found(text("relu", "exp"), "aot_eager"), found(text("exp", "sin"), "aot_eager")],
    "eager and compiled": [found(text("exp"), diagnosis={"side": "eager wrong: x"}), found(text("exp"))],
    "an op alone, and under a hook": [
        found(text("neg", "exp"), "aot_eager"),
        found(text("neg").replace("v0 = ", "with hook(scale=2.0):\n    v0 = "), "aot_eager")],
    "what the minimizer puts in an op's place, and more beside": [
        found(text("neg"), "aot_eager"), found(text("neg", "exp"), "aot_eager")],
    "what it puts there, where another thing is wrong": [
        found(text("neg"), "aot_eager"), found(text("neg"), "aot_eager", replace(WRONG, pattern="all-zero"))],
    "two devices' kernels": [found(text("exp"), diagnosis={"side": "eager wrong: x"}),
                             found(text("exp"), **KERNELS, diagnosis={"side": "compiled wrong: x"})],
    "float64 in float32's precision": [
        found(text("exp"), comparisons=(HARD,), **KERNELS), found(text("exp"), **KERNELS)],
    "a gradient lost by a replaced composite, and one by another's own derivative": [
        replace(found(text("relu6"), **NO_COMPILER), signature=NONE),
        replace(found(text("exp"), **NO_COMPILER), signature=GONE)],
    "an exception in the pass itself": [
        found(text("exp"), signature=replace(RAISES, pattern=f"{kind} < x"), bisector="inductor: a_passes, number 2, b")
        for kind in ("IndexError", "Unsupported")],
    "assertions that say the same": [
        found(text(op), "aot_eager", RAISES, detail="the forward raised AssertionError: no") for op in ("exp", "sin")],
}  # fmt: skip
TWO["an exception in the pass itself"][1] = replace(TWO["an exception in the pass itself"][1], program=text("sin"))


@pytest.mark.parametrize("pair", ONE.values(), ids=ONE)
def test_these_are_one_fault(pair: list[Finding]) -> None:
    first, second = map(cause_of, pair)
    assert first.shares(second)
    assert second.shares(first)


@pytest.mark.parametrize("pair", TWO.values(), ids=TWO)
def test_these_are_two_faults(pair: list[Finding]) -> None:
    first, second = map(cause_of, pair)
    assert not first.shares(second)
    assert not second.shares(first)


def test_notes_and_ids_are_not_read() -> None:
    plain = found(text("relu"))
    assert cause_of(replace(plain, note="known: pytorch #1", campaign="c", created="2026")) == cause_of(plain)


def test_groups_are_joined_through_any_chain() -> None:
    def cause(*marks: str) -> Cause:
        return Cause("", "", "", frozenset(marks))

    causes = [("a", cause("1")), ("b", cause("2")), ("c", cause("3")), ("d", cause("1", "2"))]
    assert sorted(map(sorted, group(causes))) == [["a", "b", "d"], ["c"]]


def test_findings_of_one_cause_share_it_whichever_of_inductors_stages_was_asked() -> None:
    before = found(text("tanh"))
    asked = {"eager": "agree", "aot_eager_decomp_partition": "agree", "inductor:graph": "agree", "inductor:ir": "wrong"}
    assert cause_of(replace(before, stages={**asked, "inductor": "wrong"})) == cause_of(before)


# ---------------------------------------------------------------- switches


def anew(before: Finding, *vanishes: str, outcome: str = "agree") -> Finding:
    """The same diagnosed by this version: what vanished then, and no bisector."""
    told = version_line(before, cause_of(before).decided)
    return replace(before, ablation=dict.fromkeys(vanishes, outcome), diagnosis={VERSION: told})


DONATED, IN_PLACE, EXP = (
    "functorch.donated_buffer=False",
    "inductor.inplace_buffers=False",
    "aten.exp.default left to ATen",
)


@pytest.mark.parametrize(
    ("vanishes", "decided"),
    [
        ((DONATED, IN_PLACE, EXP), "memory functorch.donated_buffer"),
        (("functorch.max_dist_from_bw=0", DONATED), "recomputation functorch.max_dist_from_bw"),
        ((IN_PLACE, EXP), "memory inductor.inplace_buffers"),
        (("outer-loop fusion off", "inductor.max_fusion_size=1", EXP), "fusion outer-loop fusion"),
        (("inductor.max_fusion_size=1", EXP), "fusion inductor.max_fusion_size"),
        (
            ("inductor.emulate_precision_casts=True", "inductor.max_fusion_size=1"),
            "pass inductor_emulate_precision_casts",
        ),
        (("inductor.layout_optimization=False",), "pass inductor_layout_optimization"),
        (("removal of no-ops off", "inductor.joint_graph_constant_folding=False"), "pass removal of no-ops off"),
        (("inductor.shape_padding=False", "inductor.pattern_matcher=False"), "pass inductor.shape_padding=False"),
        ((EXP,), "operator exp"),
        (("inductor.fallback_by_default=True",), ""),
    ],
)
def test_what_operators_share_decides_before_an_operator(vanishes: tuple[str, ...], decided: str) -> None:
    assert cause_of(anew(found(text("exp")), *vanishes)).decided == decided


def test_a_written_input_that_is_overwritten_and_one_that_is_wrong_have_one_cause() -> None:
    """The backward takes an input's memory: an oracle that looks there sees a write, one that compares sees numbers."""
    touched = Signature("inputs_untouched", "wrong", "backward", "leaf")
    head = HEAD + "x1 = leaf(f32[4], requires_grad=False)\n"
    adds, multiplies, reads = (
        text(call, "mul(v0, x0)", head=head)
        for call in ("add_scalar_(x1, other=1.0)", "mul_scalar_(x1, other=2.0)", "sin(x1)")
    )
    wrong = cause_of(anew(found(multiplies), DONATED))
    assert cause_of(anew(found(adds, signature=touched), DONATED)).shares(wrong)
    assert not cause_of(anew(found(reads, signature=touched), DONATED)).shares(wrong)


def test_other_memory_is_one_cause_whether_its_numbers_are_finite_or_not() -> None:
    nonfinite = Signature("no_new_nonfinite", "wrong", "forward", "nonfinite")
    dense, product = f"{DENSE_COPIES} off", "inductor.emulate_precision_casts=True"
    one, other = found(text("exp"), "aot_eager"), found(text("sin"), "aot_eager", nonfinite)
    assert cause_of(anew(one, dense)).shares(cause_of(anew(other, dense)))
    assert not cause_of(anew(one, product)).shares(cause_of(anew(other, product)))


def test_patterns_of_one_pass_are_told_apart_by_their_ops() -> None:
    """A softmax of integers and the greatest of all elements went wrong in one pass, for other reasons."""
    told = "inductor: joint_graph_passes, number 7, pass_pattern_1; 1 of 9 runs showed something else"
    softmax, longer, greatest = (
        cause_of(found(text(*ops), bisector=told)) for ops in (["softmax"], ["softmax"] * 2, ["amax"])
    )
    assert softmax.decided == "pass pass_pattern_1"
    assert softmax.shares(longer)
    assert not softmax.shares(greatest)


def test_a_pass_that_loses_a_nan_and_one_that_is_wrong_have_two_causes() -> None:
    folding = "inductor.joint_graph_constant_folding=False"
    lost, other = (Comparison("v0", (0,), right, 0.0, right, 0.0, 1, 1) for right in (math.nan, 45.0))
    told = (("exp", lost), ("sin", other))
    one, two = (cause_of(anew(found(text(op), comparisons=[seen]), folding)) for op, seen in told)
    assert one.decided == two.decided == f"pass {folding}"
    assert not one.shares(two)


def test_an_older_diagnosis_is_read_as_it_was_made() -> None:
    old = found(text("exp"), vanishes=(IN_PLACE, "inductor.max_fusion_size=1", EXP))
    assert cause_of(old).decided == "operator exp"


def test_diagnosed_anew_a_finding_keeps_its_fault_although_its_culprit_is_another() -> None:
    one, other = found(text("exp", "neg"), vanishes=(EXP,)), found(text("exp", "sin"), vanishes=(EXP,))
    assert cause_of(one).shares(cause_of(other))
    again = cause_of(anew(one, DONATED))
    assert again.decided == "memory functorch.donated_buffer"
    assert again.shares(cause_of(other))
    assert cause_of(other).shares(again)
    assert again.shares(cause_of(anew(other, DONATED)))


def test_two_causes_that_show_in_one_operator_stay_two() -> None:
    lowering = anew(found(text("exp", "sin"), vanishes=()), EXP)
    donated = anew(found(text("exp", "neg"), vanishes=()), DONATED)
    fused = anew(found(text("exp", "abs"), vanishes=()), "inductor.max_fusion_size=1")
    assert len(group((name, cause_of(f)) for name, f in zip("abc", (lowering, donated, fused), strict=True))) == 3


def test_functionalization_decides_where_only_it_gives_the_outputs_back() -> None:
    off = anew(found(text("neg", "square_"), "aot_eager"), "functionalization off", outcome="gone: wrong")
    assert cause_of(off).decided == "functionalization"
    assert cause_of(off).shares(cause_of(found(text("neg", "square_"), "aot_eager")))


def test_parts_are_called_as_the_compiler_is_told_of_them() -> None:
    from fuzzer.language import private

    parts = {private.FP_FUSION, private.OUTER_LOOPS, private.FUNCTIONALIZATION, private.DENSE_COPIES, private.NO_OPS}
    assert {switch.part for switch in SWITCHES if switch.part} == parts
    assert (OUTER_LOOPS, DENSE_COPIES) == (private.OUTER_LOOPS, private.DENSE_COPIES)


def test_the_version_of_a_diagnosis_tells_what_the_one_before_decided() -> None:
    old = found(text("exp"), vanishes=(EXP,), diagnosis={"stage": "inductor"})
    again = anew(old, DONATED)
    assert again.diagnosis[VERSION] == f"{DIAGNOSER}, before it: operator exp"
    assert version_line(again, "memory functorch.donated_buffer") == again.diagnosis[VERSION]


# ---------------------------------------------------------------- by the program alone

WRITTEN = """program(1)
route("autograd")
x0 = leaf(f32[2], requires_grad=False)
x1 = leaf(f32[()], requires_grad=False)
x2 = leaf(f32[()])
v0 = sin_(x0)
v1 = mul_(x1, x2)
returns(v0)
backward(v1, cotangent(f32[()]))
"""


def test_leaves_are_mixed_up_where_one_is_given_a_gradient_and_another_is_written_without_one() -> None:
    assert mixes_writes(parse(WRITTEN))
    only_one = WRITTEN.replace("sin_(x0)", "sin(x0)")
    assert not mixes_writes(parse(only_one))
    without = WRITTEN.replace("mul_(x1, x2)", "mul(x1, x2)")
    assert not mixes_writes(parse(without))
    through_a_view = WRITTEN.replace("v1 = mul_(x1, x2)", "v1 = mul(x2, x2)\nv2 = view(x1, size=())\nv3 = add_(v2, v1)")
    assert mixes_writes(parse(through_a_view))


def test_whatever_leaves_that_are_mixed_up_show_they_are_one_fault() -> None:
    raising = found(WRITTEN, "aot_eager", RAISES)
    wrong = found(WRITTEN.replace("sin_", "tanh_").replace("mul_", "div_"), "inductor", WRONG)
    assert [cause_of(finding).marks for finding in (raising, wrong)] == [{MIXED}] * 2
    plain = found(text("sin", "tanh"), "aot_eager")
    assert not cause_of(plain).shares(cause_of(raising))


def hooked(op: str, scale: float, compiled: float, eager: float) -> Finding:
    program = text(op).replace("v0 = ", f"with hook(scale={scale}):\n    v0 = ")
    return found(program, "aot_eager", comparisons=(Comparison("x0.grad", (0,), eager, compiled, eager, 0.0, 1, 4),))


def test_a_hook_that_is_dropped_is_one_fault_under_all_ops() -> None:
    squeezed, transposed = hooked("squeeze", 2.0, 1.5, 3.0), hooked("t", -0.5, 1.0, -0.5)
    causes = [cause_of(finding) for finding in (squeezed, transposed)]
    assert [cause.kind for cause in causes] == [DROPPED] * 2
    assert causes[0].shares(causes[1])
    other = hooked("t", -0.5, 1.0, -0.25)
    assert not hook_is_dropped(other, parse(other.program)), "that is not its factor"
    assert not cause_of(other).shares(causes[0])
