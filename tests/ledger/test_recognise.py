"""Is a suspect a known fault?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.judgement.verdict import Signature
from fuzzer.language.text import parse
from fuzzer.ledger.cause import COPIED, WITHOUT
from fuzzer.ledger.recognise import STAGE, WITHOUT_COMPILER, Known, candidates, known_fault, needs_of, recognise
from tests.ledger.test_cause import DRAWS, RAISES, SETTINGS, WRITTEN, WRONG, anew, found, hooked, lowering, text

MM = "aten.mm.default left to ATen"
OTHER = Signature("metadata_agrees", "wrong", "backward", "dtype")
BY_OP = known_fault("F1", [found(text("exp"), vanishes=[MM], **lowering("mm"))])
BY_STAGE = known_fault("F2", [found(text("relu"), "aot_eager")])
BY_SETTING = known_fault(
    "F3", [found(text("sin", head=SETTINGS), vanishes=["inductor.max_fusion_size at its default"])]
)
ALL = [*BY_OP, *BY_STAGE, *BY_SETTING]


def asked_of(signature: Signature, ops: list[str], answers: dict[str, str]) -> tuple[str | None, list[str]]:
    """The fault that explains a suspect, and what was asked."""
    asked: list[str] = []

    def answer(name: str) -> str:
        asked.append(name)
        return answers.get(name, "wrong")

    return recognise(signature, ops, ALL, answer), asked


def test_the_questions_are_what_decides_a_fault_and_where_it_begins() -> None:
    assert [(q.name, q.agrees) for q in BY_OP[0].questions] == [(MM, True), ("stage aot_eager_decomp_partition", True)]
    assert [(q.name, q.agrees) for q in BY_STAGE[0].questions] == [("stage eager", True), ("stage aot_eager", False)]
    assert BY_SETTING[0].questions[0].name == "inductor.max_fusion_size at its default"
    assert BY_OP[0].telling
    assert not BY_STAGE[0].telling
    assert known_fault("F4", [replace(found(text("exp")), stages={})]) == []  # nothing can be asked


@pytest.mark.parametrize(("graph", "agrees"), [("agree", True), ("wrong", False), ("not run: a kernel", None)])
def test_a_variant_that_was_asked_at_the_stages_of_inductor_asks_the_first_of_these(
    graph: str, agrees: bool | None
) -> None:
    inner = {"inductor:graph": graph, "inductor:ir": "not run: a kernel"}
    variant = found(text("exp"))
    [known] = known_fault("F1", [replace(variant, stages={**variant.stages, **inner, "inductor": "wrong"})])
    inside = [] if agrees is None else [(f"{STAGE}inductor:graph", agrees)]
    assert [(q.name, q.agrees) for q in known.questions] == [(f"{STAGE}aot_eager_decomp_partition", True), *inside]
    assert candidates(replace(WRONG, pattern="all-zero"), {"exp"}, [known]) == [], "the cause is not tested"


def test_a_route_that_a_minimal_program_kept_is_held_against_too() -> None:
    plain = text("exp")
    for head in ('route("vjp")', 'route("autograd", dynamic=True)'):
        chosen = plain.replace('route("autograd")', head)
        known = known_fault("F2", [found(chosen, "aot_eager")])
        assert [k.fault for k in candidates(WRONG, needs_of(parse(chosen)), known)] == ["F2"]
        assert candidates(WRONG, needs_of(parse(plain)), known) == []
        tested = [found(chosen.replace("exp", "cumsum"), vanishes=[MM], **lowering("mm"))]
        shown = candidates(WRONG, needs_of(parse(plain.replace("exp", "cumsum"))), known_fault("F3", tested))
        assert [k.fault for k in shown] == ["F3"], "an experiment tests the cause"


@pytest.mark.parametrize(
    ("ops", "answers", "fault"),
    [
        (["exp", "tanh"], {MM: "agree", f"{STAGE}aot_eager_decomp_partition": "agree"}, "F1"),
        (["exp", "tanh"], {MM: "agree"}, None),  # it begins before
        (["exp"], {}, None),
        (["exp"], {MM: "", f"{STAGE}aot_eager_decomp_partition": "agree"}, None),  # it could not be run
        (["exp"], {MM: "not run: no time", f"{STAGE}aot_eager_decomp_partition": "agree"}, None),
        (["relu"], {f"{STAGE}eager": "agree"}, "F2"),
        (["relu"], {f"{STAGE}eager": "agree", f"{STAGE}aot_eager": "agree"}, None),
        (["cos"], {MM: "agree", f"{STAGE}aot_eager_decomp_partition": "agree"}, None),  # it has the kernels of none
    ],
)
def test_a_suspect_is_a_fault_where_every_experiment_says_so(
    ops: list[str], answers: dict[str, str], fault: str | None
) -> None:
    assert asked_of(WRONG, ops, answers)[0] == fault


def test_any_elementwise_function_may_stand_where_a_variant_has_another_if_an_experiment_tests_the_cause() -> None:
    told = {MM: "agree", f"{STAGE}aot_eager_decomp_partition": "agree"}
    known = known_fault("F1", [found(text("exp", "cumsum"), vanishes=[MM], **lowering("mm"))])

    def fault(ops: list[str], held: list[Known]) -> str | None:
        return recognise(WRONG, ops, held, lambda name: told.get(name, "wrong"))

    assert fault(["sin", "cumsum"], known) == "F1"
    assert fault(["sin", "sort"], known) is None
    by_stage = known_fault("F2", [found(text("exp", "cumsum"), "aot_eager")])
    told[f"{STAGE}eager"] = "agree"
    assert fault(["exp", "cumsum"], by_stage) == "F2"
    assert fault(["sin", "cumsum"], by_stage) is None, "nothing but the stage is tested"


def test_a_mode_chooses_another_kernel() -> None:
    linear = text("exp").replace("exp(x0)", 'interpolate_linear(x0, scale_factor=1.1, mode="linear")')
    nearest = linear.replace(', mode="linear"', "")
    known = known_fault("F6", [found(linear, stages={"eager": "agree", "aot_eager": "wrong"})])
    assert [k.fault for k in candidates(WRONG, needs_of(parse(linear)), known)] == ["F6"]
    assert candidates(WRONG, needs_of(parse(nearest)), known) == []


def test_what_hooks_an_operation_is_held_against_too() -> None:
    hooked = text("exp").replace("v0 = ", "with hook(scale=2.0):\n    v0 = ")
    known = known_fault("F8", [found(hooked, "aot_eager")])
    assert [k.fault for k in candidates(WRONG, needs_of(parse(hooked)), known)] == ["F8"]
    assert candidates(WRONG, needs_of(parse(text("exp"))), known) == []


def test_where_no_more_is_asked_than_the_stage_before_the_last_the_pattern_is_the_same() -> None:
    known = known_fault("F9", [found(text("exp"))])
    assert [(q.name, q.agrees) for q in known[0].questions] == [(f"{STAGE}aot_eager_decomp_partition", True)]
    assert [k.fault for k in candidates(WRONG, {"exp"}, known)] == ["F9"]
    assert candidates(replace(WRONG, pattern="all-zero"), {"exp"}, known) == []
    assert candidates(replace(WRONG, pattern="all-zero"), {"relu"}, BY_STAGE) == BY_STAGE


def test_a_fault_of_eagers_own_kernels_is_shown_without_a_compiler() -> None:
    suspected = replace(WRONG, verdict="eager-suspect")
    variant = replace(found(text("polar")), signature=suspected)
    [known] = known_fault("F5", [variant])
    assert known.questions == (WITHOUT_COMPILER,)

    def shows(kernels: list[str], at_eager: str, signature: Signature = suspected) -> str | None:
        return recognise(signature, kernels, [known], lambda name: at_eager)

    assert shows(["polar", "mul"], "eager-suspect") == "F5"
    assert shows(["polar"], "agree") is None, "a compiler makes it"
    assert shows(["mul"], "eager-suspect") is None
    assert shows(["polar"], "eager-suspect", replace(suspected, pattern="nonfinite")) is None


def test_few_are_asked_and_none_twice() -> None:
    asked = asked_of(WRONG, ["exp", "relu", "sin"], {})[1]
    assert len(asked) == len(set(asked)) <= 3
    assert asked_of(OTHER, ["exp"], {})[1] == []  # of another kind
    assert asked_of(replace(WRONG, verdict="rounding-sensitive"), ["relu"], {})[1] == ["stage eager"]


def test_what_raises_alike_may_be_a_fault_whose_kernels_it_lacks() -> None:
    known = known_fault("F5", [found(text("exp"), signature=RAISES, vanishes=[MM], **lowering("mm"))])
    assert [k.fault for k in candidates(RAISES, ["sin"], known)] == ["F5"]
    assert candidates(replace(RAISES, pattern="TypeError < x"), ["sin"], known) == []
    assert candidates(WRONG, ["sin"], BY_OP) == []


def test_an_input_that_was_overwritten_is_no_fault_whose_kernels_it_lacks() -> None:
    touched = Signature("inputs_untouched", "wrong", "backward", "leaf")
    known = known_fault("F5", [found(text("mm"), signature=touched, vanishes=[MM], **lowering("mm"))])
    told = {question.name: "agree" if question.agrees else "wrong" for question in known[0].questions}
    assert recognise(touched, ["mm"], known, lambda name: told[name]) == "F5"
    assert recognise(touched, ["index_put"], known, lambda name: told[name]) is None


def test_variants_that_other_experiments_tell_are_asked_about_apart() -> None:
    other = "aten.mm.out left to ATen"
    variants = [found(text("exp"), vanishes=[name], **lowering("mm")) for name in (MM, other)]
    assert [k.questions[0].name for k in known_fault("F6", variants)] == [MM, other]
    same: list[Known] = known_fault(
        "F6", [variants[0], found(text("sin", head=DRAWS), vanishes=[MM], **lowering("mm"))]
    )
    assert [len(k.needs) for k in same] == [2]


@pytest.mark.parametrize(
    "name", ["functorch.donated_buffer=False", "inductor.max_fusion_size=1", "outer-loop fusion off", "fp fusion off"]
)
def test_a_switch_that_convicts_is_what_a_suspect_is_asked(name: str) -> None:
    (known,) = known_fault("F5", [anew(found(text("exp")), name, MM)])
    assert (known.questions[0].name, known.questions[0].agrees, known.telling) == (name, True, True)


def test_a_switch_that_leaves_out_a_part_of_the_same_is_asked_too() -> None:
    """Constant folding calls the removal of no-ops: what goes with either is a fault of the latter."""
    folding, no_ops = "inductor.joint_graph_constant_folding=False", "removal of no-ops off"
    known = known_fault("F7", [anew(found(text("mul")), folding)])
    for seen, fault in (("wrong", "F7"), ("agree", None)):
        told = {folding: "agree", no_ops: seen}
        assert recognise(WRONG, ["mul"], known, lambda name, told=told: told[name]) == fault  # type: ignore[misc]


def test_what_a_suspect_cannot_answer_is_not_asked() -> None:
    off = anew(found(text("neg", "square_"), "aot_eager"), "functionalization off", outcome="gone: wrong")
    (known,) = known_fault("F6", [off])
    assert not known.telling


def test_leaves_that_are_mixed_up_are_known_by_their_writes_whatever_they_show() -> None:
    known = known_fault("F10", [found(WRITTEN, "aot_eager", RAISES)])
    assert [(q.name, q.agrees) for q in known[0].questions] == [(COPIED, True), (f"{STAGE}eager", True)]
    other = WRITTEN.replace("sin_", "tanh_").replace("mul_", "div_")
    told = {COPIED: "agree", f"{STAGE}eager": "agree"}

    def fault(program: str, **answers: str) -> str | None:
        return recognise(WRONG, needs_of(parse(program)), known, lambda name: (told | answers).get(name, "wrong"))

    assert fault(other) == "F10"
    assert fault(other, **{COPIED: "wrong"}) is None, "it is wrong without a write, too"
    assert fault(WRITTEN.replace("sin_(x0)", "sin(x0)")) is None, "one leaf is written alone"


def test_a_hook_that_is_dropped_is_known_under_any_view() -> None:
    variant = hooked("squeeze", 2.0, 1.5, 3.0)
    known = known_fault("F11", [variant])
    assert known[0].questions[0].name == f"{WITHOUT}hook"

    def fault(op: str, region: str = "hook", signature: Signature = WRONG) -> str | None:
        suspect = parse(hooked(op, -0.5, 1.0, -0.5).program.replace("hook(", f"{region}("))
        told = {f"{WITHOUT}hook": "agree", f"{STAGE}eager": "agree"}
        return recognise(signature, needs_of(suspect), known, lambda name: told.get(name, "wrong"))

    assert fault("t") == "F11"
    assert fault("cumsum") is None, "no view"
    assert fault("t", "function") is None, "no hook"
    assert fault("t", signature=replace(WRONG, pattern="all-zero")) is None


def test_a_crash_in_a_region_is_known_under_any_function_of_each_element() -> None:
    dies = Signature("worker_survives", "crashes", "forward", "SIGSEGV kernel")

    def program(call: str) -> str:
        return text(call).replace("v0 = ", "with jvp(x0):\n    v0 = ")

    known = known_fault("F12", [found(program("add(x0, x0)"), "aot_eager", dies)])
    told = {f"{WITHOUT}jvp": "agree", f"{STAGE}eager": "agree"}

    def fault(call: str) -> str | None:
        return recognise(dies, needs_of(parse(program(call))), known, lambda name: told.get(name, "crashes"))

    assert fault("sub(x0, x0)") == "F12"
    told[f"{WITHOUT}jvp"] = "crashes"
    assert fault("sub(x0, x0)") is None, "it dies without the region"
