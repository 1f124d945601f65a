"""Regions: the Python they become, types and trace under them, which routes hold them, how they shrink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from fuzzer.generation.draft import Rejected
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.errors import UsageError
from fuzzer.language.infer import IllTyped, infer
from fuzzer.language.interpret import materialise, to_source
from fuzzer.language.ops import OPS
from fuzzer.language.program import Program, Region, Route, statements, walk, written_leaves
from fuzzer.language.regions import REGIONS, UnknownRegion, ambient_settings
from fuzzer.language.routes import ROUTES, UnknownRoute, route_of
from fuzzer.language.text import parse, show
from fuzzer.trial.draw import draw_program
from fuzzer.trial.pipeline import report_program, run_reference
from fuzzer.trial.tasks import examine
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool
from minimizer.reduce import reduce
from minimizer.same import Answer

EAGER = Subject("eager", "cpu")
HEAD = 'program(1)\nroute("autograd")\n'
NESTED = (
    HEAD
    + """x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[4, 3], seed=2)
v0 = sin(x0)
with autocast(dtype=bf16):
    v1 = mm(v0, x1)
    with checkpoint():
        v2 = exp(v1)
        v3 = mm(v2, x0)
    v4 = mul(v3, v3)
v5 = sum(v4, dim=(0,))
backward(v5, cotangent(bf16[4], seed=3))
"""
)
PLAIN = NESTED.replace("with checkpoint():", "").replace("        v", "    v")


def regions(program: Program) -> list[Region]:
    return [s for s in statements(program.body) if isinstance(s, Region)]


def judged(program: Program, backend: str) -> tuple[str, str]:
    torch._dynamo.reset()
    found = report_program(program, Task(place=Place(EAGER, Subject(backend, "cpu")), fresh=True), Journal(None))
    return found.verdict, found.rejected


def test_a_region_is_the_python_that_a_person_would_write() -> None:
    assert to_source(parse(NESTED)) == (
        """def f(x0, x1):
    v0 = torch.sin(x0)
    with torch.autocast(v0.device.type, dtype=torch.bfloat16):
        v1 = torch.mm(v0, x1)
        def block(v1, x0):
            v2 = torch.exp(v1)
            v3 = torch.mm(v2, x0)
            return v3
        v3 = torch.utils.checkpoint.checkpoint(block, v1, x0, use_reentrant=False)
        v4 = torch.mul(v3, v3)
    v5 = torch.sum(v4, dim=(0,))
    return (v5,)
"""
    )


def test_a_checkpoint_returns_what_is_read_later_and_nothing_else() -> None:
    text = "x0 = leaf(f32[3])\nwith checkpoint():\n    v0 = exp(x0)\n    v1 = sin(v0)\n    v2 = cos(v1)\n"
    lines = to_source(parse(HEAD + text + "v3 = mul(v0, v2)\nreturns(v3)")).splitlines()
    assert "        return v0, v2" in lines
    assert "    v0, v2 = torch.utils.checkpoint.checkpoint(block, x0, use_reentrant=False)" in lines


WRONG = [
    ("with loop():\n    v0 = relu(x0)", "no region 'loop'; known are autocast, no_autocast, checkpoint, no_grad"),
    ("with autocast():\n    v0 = relu(x0)", "region autocast takes dtype=bf16 or dtype=f16, not dtype=None"),
    ("with autocast(dtype=f64):\n    v0 = relu(x0)", "region autocast takes dtype=bf16 or dtype=f16, not dtype="),
    ("with checkpoint(often=2):\n    v0 = relu(x0)", "region checkpoint takes no often, not often=2"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_an_unknown_region_or_attribute_is_refused_by_name(text: str, words: str) -> None:
    program = parse(HEAD + "x0 = leaf(f32[4])\n" + text + "\nreturns(v0)")
    with pytest.raises(UnknownRegion) as caught:
        to_source(program)
    assert words in str(caught.value)
    with pytest.raises(IllTyped, match="region"):
        infer(program)


def test_types_are_those_under_the_region() -> None:
    types = infer(parse(NESTED))
    assert [types[name].dtype for name in ("v0", "v1", "v2", "v3", "v5")] == ["f32", "bf16", "bf16", "bf16", "bf16"]
    assert not torch.is_autocast_enabled("cpu")


def test_the_trace_holds_the_casts_of_autocast_and_what_checkpoint_runs_again() -> None:
    def steps(text: str) -> Counter[str]:
        trace = run_reference(parse(text), Task(place=Place(EAGER, EAGER)), Journal(None)).trace
        assert trace is not None
        return Counter(step.name for step in trace.steps)

    once, again = steps(PLAIN), steps(NESTED)
    assert once["_to_copy"] >= 2
    # both run in the forward and the product of the region again in the backward, but for the last: nothing needs it
    assert (once["exp"], again["exp"]) == (1, 2)


def test_a_checkpoint_changes_no_value_in_eager_or_in_the_replay() -> None:
    text = NESTED.replace("autocast(dtype=bf16)", "checkpoint()").replace("bf16", "f64").replace("f32", "f64")
    task = Task(place=Place(EAGER, EAGER))
    trials = [
        run_reference(parse(t), task, Journal(None))
        for t in (text, text.replace("checkpoint()", "autocast(dtype=bf16)"))
    ]
    assert [regions(t.program)[0].kind for t in trials] == ["checkpoint", "autocast"]  # float64 is never cast
    named = [t.named(t.reference) for t in trials]
    for name, value in named[0].items():
        assert torch.equal(value, named[1][name])
    for trial, values in zip(trials, named, strict=True):
        for name, r in zip(trial.targets, trial.model.reference, strict=True):
            torch.testing.assert_close(r, values[name], rtol=1e-13, atol=0)


def test_the_reference_of_an_autocast_program_is_free_of_its_rounding() -> None:
    program = parse(NESTED)
    trial = run_reference(program, Task(place=Place(EAGER, EAGER)), Journal(None))
    wide = parse(NESTED.replace("f32", "f64").replace("bf16[", "f64["))
    exact = run_reference(wide, Task(place=Place(EAGER, EAGER)), Journal(None)).reference
    for name, r in zip(trial.targets, trial.model.reference, strict=True):
        if name.endswith(".grad"):
            eager, best = trial.reference.gradients[name[:-5]], exact.gradients[name[:-5]]
            # the leaves are float32 here and there, the gradient's cast to float32 is all that is left of bfloat16
            torch.testing.assert_close(r, best, rtol=1e-2, atol=1e-2)
            assert (r - best).abs().max() < (eager.double() - best).abs().max()


AMBIENT = (
    HEAD
    + """x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[4, 3], seed=2)
with ambient_autocast(dtype=bf16):
    v0 = mm(x0, x1)
    with checkpoint():
        v1 = exp(v0)
backward(v1, cotangent(bf16[3, 3], seed=3))
"""
)
INTO_GRAD = ("accumulate", "backward_twice", "compiled_autograd")


def test_an_ambient_region_stands_around_the_call_of_the_function() -> None:
    program = parse(AMBIENT)
    assert "autocast" not in to_source(program)
    for route in ("autograd", *INTO_GRAD):
        lines = [line.strip() for line in ROUTES[route].script.write(replace(program, route=Route(route)))]
        at = lines.index("with torch.autocast(x0.device.type, dtype=torch.bfloat16):")
        assert lines[at + 1] == "v1 = f(x0, x1)"
        assert "torch.autograd." in lines[at + 2] + lines[at + 3]


def test_an_ambient_region_computes_what_one_around_all_statements_does() -> None:
    results = []
    for text in (AMBIENT, AMBIENT.replace("ambient_autocast", "autocast")):
        assert infer(parse(text))["v1"].dtype == "bf16"
        trial = run_reference(parse(text), Task(place=Place(EAGER, EAGER)), Journal(None))
        results.append(trial.named(trial.reference))
    assert results[0].keys() == results[1].keys() == {"v1", "x0.grad", "x1.grad"}
    assert all(torch.equal(a, b) for a, b in zip(results[0].values(), results[1].values(), strict=True))


def test_the_backward_of_what_is_called_under_an_ambient_region_is_compiled_outside_of_it() -> None:
    """As eager runs it: torch's default has it inside, where a product of float32 gradients is taken in bfloat16."""
    program = parse(
        HEAD
        + """x0 = leaf(f32[3, 3])
with ambient_autocast(dtype=bf16):
    v0 = solve_triangular(x0, x0, upper=False, unitriangular=True)
backward(v0, cotangent(f32[3, 3], seed=1))
"""
    )
    assert judged(program, "aot_eager") == ("agree", "")
    assert ambient_settings(program) == (("functorch.backward_pass_autocast", "off"),)
    assert ambient_settings(replace(program, body=program.nodes)) == ()
    assert torch._functorch.config.backward_pass_autocast == "same_as_forward"


def test_an_ambient_region_stands_around_all_statements_and_once() -> None:
    inner = AMBIENT.replace("backward(v1", "v2 = sin(v1)\nbackward(v2")
    twice = AMBIENT.replace("checkpoint()", "ambient_autocast(dtype=f16)")
    for text in (inner, twice):
        with pytest.raises(UnknownRegion, match="ambient_autocast must enclose all statements, once"):
            route_of(parse(text))


@pytest.mark.parametrize("route", ["autograd", "compiled_autograd"])
def test_a_program_under_an_ambient_region_agrees_without_a_compiler_of_its_own(route: str) -> None:
    assert judged(replace(parse(AMBIENT), route=Route(route)), "aot_eager") == ("agree", "")


@pytest.mark.parametrize("route", ["autograd", "backward_twice"])
def test_a_program_with_regions_agrees_without_a_compiler_of_its_own(route: str) -> None:
    assert judged(replace(parse(NESTED), route=Route(route)), "aot_eager") == ("agree", "")


# The routes that hold regions.
HOLDING = [name for name, spec in ROUTES.items() if spec.regions]


@pytest.mark.slow
@pytest.mark.parametrize(("route", "dtype"), [(route, ("bf16", "f16")[i % 2]) for i, route in enumerate(HOLDING)])
def test_every_region_agrees_under_inductor_in_every_route_that_holds_it(route: str, dtype: str) -> None:
    """Before code is written, but for one route: code knows no regions."""
    text = (NESTED if "checkpoint" in ROUTES[route].regions else PLAIN).replace("bf16", dtype)
    backend = "inductor" if route == HOLDING[0] else "inductor:ir"
    assert judged(replace(parse(text), route=Route(route)), backend) == ("agree", "")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("route", HOLDING)
def test_every_region_agrees_on_the_gpu(route: str) -> None:
    text = NESTED if "checkpoint" in ROUTES[route].regions else PLAIN
    task = Task(place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda")), fresh=True)
    with Pool(1, ["cuda"]) as pool:  # what dies there does not take the tests with it
        asked = pool.submit(examine, task, show(replace(parse(text), route=Route(route))))
        found = pool.result(asked, task)
    assert (found.verdict, found.rejected) == ("agree", "")


REFUSED = [(name, kind) for name, spec in ROUTES.items() for kind in REGIONS if kind not in spec.regions]


@pytest.mark.parametrize(("route", "kind"), REFUSED)
def test_a_route_that_cannot_hold_a_region_refuses_it(route: str, kind: str) -> None:
    nodes = parse(NESTED).nodes
    program = replace(parse(NESTED), body=(Region(kind, (), nodes),), route=Route(route))
    with pytest.raises(UnknownRoute, match=f"route {route} cannot hold a region {kind}"):
        route_of(program)
    assert judged(program, "eager")[0] == "rejected"


def test_a_region_that_matters_shrinks_to_the_statement_that_needs_it() -> None:
    def needs_half(program: Program) -> Answer:
        cast = {node.op for r in regions(program) if r.kind == "autocast" for node in walk(r.body)}
        return Answer.SAME if "mm" in cast else Answer.NONE

    found = reduce(parse(NESTED), lambda batch: [needs_half(p) for p in batch], infer=infer).program
    assert [(r.kind, [node.op for node in walk(r.body)]) for r in regions(found)] == [("autocast", ["mm"])]
    assert len(found.nodes) == 1

    def needs_both(program: Program) -> Answer:
        ops = [node.op for node in program.nodes]
        return Answer.SAME if {"mm", "exp", "sin"} <= set(ops) and regions(program) else Answer.NONE

    found = reduce(parse(NESTED), lambda batch: [needs_both(p) for p in batch], infer=infer).program
    assert [len(r.body) for r in regions(found)] == [1]


def test_a_region_that_does_not_matter_goes() -> None:
    found = reduce(parse(NESTED), lambda batch: [Answer.SAME] * len(batch), infer=infer).program
    assert not regions(found)


@pytest.mark.slow
def test_programs_for_two_devices_hold_no_autocast_and_no_random_numbers() -> None:
    def for_devices(reference: str) -> Iterator[Program]:
        place = Place(Subject("eager", reference), Subject("eager", "cpu"))
        for index in range(150):
            with suppress(Rejected, IllTyped):
                yield draw_program(Task(place=place, seed=5), index)

    def depends(program: Program) -> bool:
        kinds = {s.kind for s in statements(program.body) if isinstance(s, Region)}
        return not kinds.isdisjoint(("autocast", "ambient_autocast")) or any(
            OPS[node.op].random for node in program.nodes
        )

    found = list(for_devices("cuda"))
    assert len(found) >= 135
    assert not any(map(depends, found))
    assert any(map(depends, for_devices("cpu")))


def test_programs_for_two_devices_hold_no_op_that_is_another_on_each() -> None:
    ops = {name: OPS[name] for name in ("native_layer_norm", "native_batch_norm", "layer_norm", "sum")}

    def for_devices(device: str) -> set[str]:
        place = Place(Subject("eager", "cpu"), Subject("eager", device))
        found = (draw_program(Task(place=place, seed=5, ops=tuple(ops)), n) for n in range(40))
        return {node.op for program in found for node in program.nodes}

    assert for_devices("cpu") == set(ops)
    assert for_devices("cuda") == {name for name, spec in ops.items() if spec.portable}


LATER = """program(1)
route("autograd")
x0 = leaf(f32[3, 4], seed=1)
x1 = leaf(f32[3, 4], seed=2)
v0 = add(x0, x1)
v1 = exp(v0)
with between():
    v2 = narrow(x0, dim=0, start=0, length=1)
    v3 = mul_scalar_(v2, other=2.0)
    v4 = neg_(v0)
returns(v0)
backward(v1, cotangent(f32[3, 4], seed=3))
"""


def test_what_comes_between_forward_and_backward_is_no_part_of_the_function() -> None:
    program = parse(LATER)
    assert show(program) == LATER
    assert "mul" not in to_source(program)
    assert written_leaves(program) == ["x0"]
    for route in ("autograd", "backward_twice", "compiled_autograd"):
        lines = [line.strip() for line in ROUTES[route].script.write(replace(program, route=Route(route)))]
        at = lines.index("v0, v1 = f(x0, x1)")
        assert lines[at + 1 : at + 5] == [
            "with torch.no_grad():",
            "v2 = torch.narrow(x0, dim=0, start=0, length=1)",
            "v3 = v2.mul_(other=2.0)",
            "v4 = v0.neg_()",
        ]


def test_what_comes_between_shows_in_leaves_and_outputs_and_not_in_gradients() -> None:
    trial = run_reference(parse(LATER), Task(place=Place(EAGER, EAGER)), Journal(None))
    seen, plain = trial.named(trial.reference), materialise(parse(LATER).leaves)
    x0, x1 = plain["x0"].detach(), plain["x1"].detach()
    assert torch.equal(seen["v0"], -(x0 + x1))
    assert torch.equal(seen["x0"], torch.cat([x0[:1] * 2, x0[1:]]))
    assert torch.equal(seen["x0.grad"], seen["x1.grad"])
    assert torch.equal(seen["v1"], (x0 + x1).exp())


@pytest.mark.slow
@pytest.mark.parametrize("route", ["autograd", "backward_twice", "compiled_autograd"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor:ir"])
def test_what_comes_between_agrees_and_both_sides_refuse_what_was_saved(route: str, backend: str) -> None:
    program = replace(parse(LATER), route=Route(route))
    assert judged(program, backend) == ("agree", "")
    saved = parse(LATER.replace("neg_(v0)", "neg_(v1)"))
    verdict, why = judged(replace(saved, route=Route(route)), backend)
    assert (verdict, "modified by an inplace operation" in why) == ("rejected", True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("returns(v0)\n", ""), "may read only leaves and outputs, not v0"),
        (("backward(v1, cot", "returns(v3)\nbackward(v1, cot"), "may not bind a returned name such as v3"),
        (("returns(v0)\nbackward(v1", "v5 = sin(v1)\nreturns(v0)\nbackward(v5"), "must stand at the end of a program"),
        (('"autograd"', '"vjp"'), "route vjp cannot hold a region between"),
        (('"autograd"', '"accumulate"'), "route accumulate cannot hold a region between"),
    ],
)
def test_what_comes_between_stands_at_the_end_and_reads_what_is_there(change: tuple[str, str], told: str) -> None:
    text = LATER.replace(*change)
    if "v5" in text:
        text = text.replace("    v4 = neg_(v0)\n", "")
    with pytest.raises(UsageError, match=told):
        route_of(parse(text))


OVERWRITTEN = """program(1)
route("autograd")
x0 = leaf(f32[3, 3], requires_grad=False, seed=1)
x1 = leaf(f32[3, 3], seed=2)
v0 = mm(x0, x1)
with between():
    v1 = neg_(x0)
backward(v0, cotangent(f32[3, 3], seed=3))
"""


def test_what_eager_refuses_is_told_where_the_compiled_gradient_is_of_what_was_written() -> None:
    """pytorch #197887: a saved view of an input does not share its version. relu's backward needs a mask alone."""
    assert judged(parse(OVERWRITTEN), "inductor") == ("raises", "")
    masked = OVERWRITTEN.replace("mm(x0, x1)", "relu(x1)").replace("neg_(x0)", "neg_(v0)")
    verdict, why = judged(parse(masked), "aot_eager_decomp_partition")
    assert (verdict, "modified by an inplace operation" in why) == ("rejected", True)
