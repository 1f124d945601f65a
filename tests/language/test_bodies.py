"""Regions whose statements are the body of a function: what they compute, how they are written, typed and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fuzzer.generation.dry_run import eager_values
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.infer import IllTyped, check_cotangents, infer, type_of
from fuzzer.language.interpret import materialise, to_function, to_source, value_recipes
from fuzzer.language.program import BETWEEN, Program, Region, Route, map_nodes, statements, substitute_operands
from fuzzer.language.regions import REGIONS
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import write_function
from fuzzer.language.text import ParseError, parse, show
from fuzzer.trial.pipeline import report_program, run_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from minimizer.reduce import reduce
from minimizer.same import Answer

EAGER = Subject("eager", "cpu")
HEAD = """program(1)
route("autograd")
x0 = leaf(f32[4, 3], seed=1)
x1 = leaf(f32[4, 3], seed=2)
x2 = leaf(f32[3], seed=3)
"""
TWO = "    v0 = sin({})\n    v1 = mul(v0, x2)\n"
LAST = "v2 = mul(v1, v1)\nbackward(v2, cotangent(f32[{}], seed=4))\n"
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def scanned(x0: torch.Tensor, x2: torch.Tensor, backwards: bool) -> torch.Tensor:
    carry, found = x2, [torch.empty(0)] * 4
    for i in reversed(range(4)) if backwards else range(4):
        found[i] = carry * x0[i]
        carry = torch.cos(found[i])
    return torch.stack(found)


# kind -> texts, each with what its last value is, of the leaves.
BODIES: dict[str, list[tuple[str, Callable[..., torch.Tensor]]]] = {
    "no_grad": [
        ("with no_grad():\n    v0 = sin(x0)\nv1 = mul(v0, x2)\n" + LAST.format("4, 3"), lambda a, b, c: a.sin() * c)
    ],
    "hook": [("with hook(scale=2.0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c)],
    "function": [
        ("with function():\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c),
        ("with function(scale=-0.5):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c),
    ],
    "vmap": [
        ("with vmap(x0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c),
        (
            "with vmap(x0, x1, in_dims=1, out_dims=-1):\n    v1 = mul(x0, x1)\n" + LAST.format("4, 3"),
            lambda a, b, c: a * b,
        ),
    ],
    "grad": [("with grad(x0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.cos() * c)],
    "jacrev": [("with jacrev(x2):\n    v1 = sin(x2)\n" + LAST.format("3, 3"), lambda a, b, c: c.cos().diag())],
    "jacfwd": [("with jacfwd(x2):\n    v1 = sin(x2)\n" + LAST.format("3, 3"), lambda a, b, c: c.cos().diag())],
    "jvp": [("with jvp(x0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.cos() * a * c)],
    "cond": [
        ("with cond(x0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c * a[0, 0].sign()),
        ("with cond(x1):\n" + TWO.format("x1") + LAST.format("4, 3"), lambda a, b, c: b.sin() * c * b[0, 0].sign()),
    ],
    "map": [("with map(x0):\n" + TWO.format("x0") + LAST.format("4, 3"), lambda a, b, c: a.sin() * c)],
    "scan": [
        (f"with scan(x2, x0{given}):\n    v0 = mul(x2, x0)\n    v1 = cos(v0)\nv2 = mul(v0, v1)\nreturns(v1)\n"
         "backward(v0, cotangent(f32[4, 3], seed=4))\n", lambda a, b, c, r=backwards: scanned(a, c, r))
        for given, backwards in (("", False), (", reverse=True", True))
    ],
    "while_loop": [
        ("with while_loop(x0, times=3):\n    v1 = cos(x0)\n" + LAST.format("4, 3"), lambda a, b, c: a.cos().cos().cos())
    ],
}  # fmt: skip
TEXTS = [(kind, HEAD + text, value) for kind, cases in BODIES.items() for text, value in cases]
KINDS = [kind for kind, _, _ in TEXTS]


def compared(program: Program, backend: str) -> tuple[str, str]:
    torch._dynamo.reset()
    found = report_program(program, Task(place=Place(EAGER, Subject(backend, "cpu")), fresh=True), Journal(None))
    return found.verdict, found.rejected


def test_every_kind_of_body_has_a_case() -> None:
    assert {"autocast", "no_autocast", "ambient_autocast", "checkpoint", BETWEEN, *BODIES} == set(REGIONS)


@pytest.mark.parametrize(("kind", "text", "value"), TEXTS, ids=KINDS)
def test_a_body_computes_what_its_name_says_and_is_typed_so(
    kind: str, text: str, value: Callable[..., torch.Tensor]
) -> None:
    program = parse(text)
    assert show(program) == text
    name = "v0" if kind == "scan" else "v1"
    values, leaves = eager_values(program), materialise(program.leaves)
    assert values is not None
    torch.testing.assert_close(values[name], value(*leaves.values()).detach())
    types = infer(program)
    check_cotangents(program, types)
    assert all(types[node.outs[0]] == type_of(values[node.outs[0]]) for node in program.nodes)
    last = to_function(program)(*leaves.values())[-1]
    torch.testing.assert_close(last, values[program.outputs[-1].value])


@pytest.mark.parametrize(("kind", "text"), [t[:2] for t in TEXTS], ids=KINDS)
def test_the_reference_of_a_body_is_what_eager_computes_without_its_rounding(kind: str, text: str) -> None:
    trial = run_reference(parse(text), Task(place=Place(EAGER, EAGER)), Journal(None))
    named = trial.named(trial.reference)
    for name, r in zip(trial.targets, trial.model.reference, strict=True):
        torch.testing.assert_close(r, named[name].double(), rtol=1e-4, atol=1e-5)


def gradient(text: str) -> torch.Tensor:
    program = parse(HEAD + text)
    leaves = materialise(program.leaves)
    return torch.autograd.grad(to_function(program)(*leaves.values())[0].sum(), leaves["x0"])[0]


def test_no_grad_a_hook_and_a_function_of_its_own_change_the_gradient_and_nothing_else() -> None:
    plain = gradient("v1 = sin(x0)\nbackward(v1, cotangent(f32[4, 3]))\n")
    for region, factor in {"function()": 1.0, "function(scale=-0.5)": -0.5, "hook(scale=2.0)": 2.0}.items():
        found = gradient(f"with {region}:\n    v1 = sin(x0)\nbackward(v1, cotangent(f32[4, 3]))\n")
        torch.testing.assert_close(found, plain * factor)
    text = "with no_grad():\n    v0 = sin(x0)\nv1 = mul(v0, x0)\nbackward(v1, cotangent(f32[4, 3]))\n"
    torch.testing.assert_close(gradient(text), materialise(parse(HEAD + text).leaves)["x0"].sin())


def test_a_body_is_the_python_that_a_person_would_write() -> None:
    text = (
        "with function(scale=2.0):\n    v0 = sin(x0)\nwith scan(x2, v0):\n    v1 = mul(x2, v0)\n"
        "backward(v1, cotangent(f32[3], seed=4))\n"
    )
    assert "\n".join(write_function(parse(HEAD + text))) == (
        """def block_v0(x0):
    v0 = torch.sin(x0)
    return v0


class Function_v0(torch.autograd.Function):
    @staticmethod
    def forward(x0):
        return block_v0(x0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *gs):
        _, pull = torch.func.vjp(block_v0, *ctx.saved_tensors)
        return tuple(g * 2.0 for g in pull(gs[0]))


def f(x0, x1, x2):
    v0 = Function_v0.apply(x0)
    def block(x2, v0):
        v1 = torch.mul(x2, v0)
        return v1, (v1.clone(),)
    v1, _ = torch._higher_order_ops.scan(block, x2, v0)
    return v1"""
    )


def test_a_body_that_reads_what_nobody_gives_it_closes_over_it() -> None:
    lines = to_source(parse(TEXTS[KINDS.index("vmap")][1])).splitlines()
    assert lines[1:5] == [
        "    def block(x0):",
        "        v0 = torch.sin(x0)",
        "        v1 = torch.mul(v0, x2)",
        "        return v1",
    ]
    assert lines[5] == "    v1 = torch.vmap(block)(x0)"


WRONG = [
    ("with vmap():\n    v1 = sin(x0)\n", "region vmap takes 1 to 3 operand"),
    ("with scan(x0):\n    v1 = sin(x0)\n", "region scan takes 2 operand"),
    ("with grad(x0):\n    v0 = sin(x0)\n    v1 = cos(v0)\nv2 = mul(v0, v1)\n", "region grad returns only v1, but v0"),
    ("with vmap(x0, x2):\n    v1 = mul(x0, x2)\n", "a region: vmap: Expected all tensors to have the same size"),
    ("with map(x0):\n    v1 = select(x0, dim=0, index=0)\n    v2 = neg(x0)\n", "in the memory of an operand"),
    ("with while_loop(x0):\n    v1 = sum(x0, dim=(0,))\n", "carries torch.float32[3] on where it was"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_no_body_can_be_is_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(IllTyped) as caught:
        infer(parse(HEAD + text + "returns(v1)\n"))
    assert words in str(caught.value)


def test_operands_that_the_body_does_not_read_are_refused_in_a_text_and_dropped_by_a_change() -> None:
    with pytest.raises(ParseError, match="operands that the region reads"):
        parse(HEAD + "with vmap(x0, x1):\n    v1 = sin(x0)\nreturns(v1)\n")
    program = parse(HEAD + "with vmap(x0, x1):\n    v1 = mul(x0, x1)\nreturns(v1)\n")
    other = map_nodes(program.body, lambda n: substitute_operands(n, {"x0": "x1"}))
    assert [s.args for s in other if isinstance(s, Region)] == [("x1",)]


def test_what_only_a_body_knows_is_not_recorded() -> None:
    assert set(value_recipes(parse(TEXTS[KINDS.index("grad")][1]))) == {"x0", "x1", "x2", "v1", "v2"}


def regions(program: Program) -> list[str]:
    return [s.kind for s in statements(program.body) if isinstance(s, Region)]


@pytest.mark.parametrize(("kind", "text"), [t[:2] for t in TEXTS], ids=KINDS)
def test_a_body_that_does_not_matter_goes_and_one_that_does_gets_plain(kind: str, text: str) -> None:
    found = reduce(parse(text), lambda batch: [Answer.SAME] * len(batch), infer=infer).program
    assert not regions(found)

    def needs_it(program: Program) -> Answer:
        return Answer.SAME if kind in regions(program) else Answer.NONE

    found = reduce(parse(text), lambda batch: [needs_it(p) for p in batch], infer=infer).program
    (region,) = found.body
    assert isinstance(region, Region)
    assert (len(region.body), len(region.args)) == (1, REGIONS[kind].operands[0])
    assert [name for name, _ in region.attrs] == list(REGIONS[kind].required)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "text"), [t[:2] for t in TEXTS], ids=KINDS)
def test_a_body_agrees_in_every_route_that_holds_it(kind: str, text: str) -> None:
    held = [name for name in ("autograd", "vjp", "compiled_autograd") if kind in ROUTES[name].regions]
    assert held
    for route in held:
        if REGIONS[kind].own_backward and ROUTES[route].joint:
            continue
        assert compared(replace(parse(text), route=Route(route)), "aot_eager_decomp_partition") == ("agree", "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cond", "scan", "while_loop"])
def test_a_body_agrees_under_inductor(kind: str) -> None:
    """The kinds that inductor has code for: of the others it sees a graph of plain ops."""
    assert compared(parse(TEXTS[KINDS.index(kind)][1]), "inductor") == ("agree", "")
