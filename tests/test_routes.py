"""The routes: the same gradients in eager, and which cotangent layouts reach the compiler's backward graph."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from functorch.compile import make_boxed_func
from hypothesis import assume, given, settings
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import run_and_get_code

from fuzzer import interpret
from fuzzer.execution.messages import Place, Subject
from fuzzer.execution.worker import Journal, Task, report
from fuzzer.ops import OPS
from fuzzer.program import Program, Region, Route
from fuzzer.routes import ROUTES, Call, Results, UnknownRoute, draw, find, uncompiled, wanted
from fuzzer.settings import in_force
from fuzzer.strategies import programs
from fuzzer.text import parse

EAGER = Subject("eager", "cpu")
HEAD = 'program(1)\nroute("autograd")\n'


def run(program: Program, compile: Callable[..., Any] = uncompiled, phases: list[str] | None = None) -> Results:
    spec, _ = find(program)
    note = (lambda name: None) if phases is None else phases.append
    leaves = interpret.materialise(program.leaves)
    torch.manual_seed(0)
    return spec.run(Call(program, interpret.function(program), leaves, interpret.cotangents(program), compile, note))


@given(programs(max_nodes=4, routes=("vjp",)))  # which can hold the least
@settings(max_examples=60)
def test_every_route_gives_the_same_outputs_and_gradients_in_eager(program: Program) -> None:
    assume(not any(isinstance(s, Region) for s in program.body))  # autograd and torch.func cast at other places
    plain = tuple(replace(leaf, parameter=False) for leaf in program.leaves)
    # torch.func decomposes some ops (binary_cross_entropy_with_logits), which rounds otherwise
    first, second = run(replace(program, route=Route(), leaves=plain)), run(program)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    assert list(first.gradients) == list(second.gradients) == wanted(program)
    for name, a in first.gradients.items():
        b = second.gradients[name]
        assert b is not None
        torch.testing.assert_close(torch.zeros_like(b) if a is None else a, b, equal_nan=True)


TWICE = ("backward_twice", "accumulate")


@pytest.mark.parametrize("route", TWICE)
@given(programs(max_nodes=4, dtypes=("f32", "f64")))
@settings(max_examples=25)
def test_what_runs_the_backward_twice_gives_every_gradient_twice(route: str, program: Program) -> None:
    if any(OPS[node.op].random for node in program.nodes):  # the second forward draws anew
        return
    once, twice = run(program), run(replace(program, route=Route(route)))
    for name, gradient in once.gradients.items():
        second = twice.gradients[name]
        if gradient is None:
            assert second is None
        else:
            torch.testing.assert_close(second, gradient + gradient, rtol=0, atol=0, equal_nan=True)


FRESH = Task(place=Place(EAGER, Subject("inductor", "cpu")), fresh=True)
PRODUCT = (
    "x0 = leaf(f32[3, 4], seed=1)\nx1 = leaf(f32[4], seed=2)\n"
    "v0 = mul(x0, x1)\nv1 = exp(v0)\nv2 = sum(v1, dim=(0,))\nbackward(v2, cotangent(f32[4], seed=3))\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_agrees_with_eager_under_inductor(route: str) -> None:
    program = parse(HEAD.replace("autograd", route) + PRODUCT)
    found = report(program, FRESH, Journal(None))
    assert (found.verdict, found.rejected) == ("agree", "")
    assert found.detectable == found.elements > 0


def test_gradients_are_those_of_the_definition() -> None:
    program = parse(
        HEAD + "x0 = leaf(f64[3], seed=1)\nx1 = leaf(f64[3], seed=2)\nx2 = leaf(f64[3], requires_grad=False)\n"
        "v0 = mul(x0, x1)\nv1 = mul(v0, v0)\nreturns(v0)\nbackward(v1, cotangent(f64[3], seed=3))"
    )
    leaves, (seed,) = interpret.materialise(program.leaves), interpret.cotangents(program)
    a, b = leaves["x0"].detach(), leaves["x1"].detach()
    for name in ROUTES:
        found = run(replace(program, route=Route(name)))
        assert list(found.gradients) == ["x0", "x1"]
        times = 2 if name in TWICE else 1
        torch.testing.assert_close(found.gradients["x0"], times * 2 * a * b * b * seed)
        assert not any(t.requires_grad for t in found.outputs)


def test_accumulate_runs_one_compiled_function_twice_and_backward_twice_one_graph() -> None:
    for name, calls in (("autograd", 1), ("backward_twice", 1), ("accumulate", 2)):
        compiled: list[str] = []
        called: list[str] = []

        def compile(function: Callable[..., Any], compiled: list[str] = compiled, called: list[str] = called) -> Any:
            compiled.append("once")
            return lambda *given: (called.append("called"), function(*given))[1]

        run(parse(HEAD.replace("autograd", name) + PRODUCT), compile)
        assert (len(compiled), len(called)) == (1, calls)


HELD = (
    'program(1)\nroute("vjp")\nx0 = leaf(f32[3, 4], seed=1)\nx1 = leaf(f32[4, 4], parameter=True, seed=2)\n'
    "v0 = tanh(x1)\nv1 = mm(x0, v0)\nbackward(v1, cotangent(f32[3, 4], seed=3))\n"
)


def test_a_parameter_is_held_by_a_module_and_its_gradient_is_that_of_a_leaf() -> None:
    handed: list[Any] = []

    def compile(step: Callable[..., Any]) -> Callable[..., Any]:
        handed.append(step)
        return step

    held, plain = run(parse(HELD), compile), run(parse(HELD.replace("parameter=True, ", "")))
    assert [name for name, _ in handed[0].named_parameters()] == ["x1"]
    assert list(held.gradients) == list(plain.gradients) == ["x0", "x1"]
    for name, gradient in plain.gradients.items():
        assert torch.equal(held.gradients[name], gradient)


@pytest.mark.parametrize("route", [name for name, spec in ROUTES.items() if not spec.module])
def test_a_route_without_a_module_refuses_parameters(route: str) -> None:
    with pytest.raises(UnknownRoute, match=f"route {route} has no module that x1 could be a parameter of"):
        find(parse(HELD.replace("vjp", route)))


def code(text: str, frozen: bool) -> str:
    """What inductor generates for a program, forward and backward."""
    program = parse(text)
    torch._dynamo.reset()
    uncached = (("inductor.force_disable_caches", True), ("inductor.freezing", frozen))
    with in_force(uncached):
        _, found = run_and_get_code(run, program, lambda f: torch.compile(f, fullgraph=True, dynamic=False))
    return re.sub("# AOT ID.*", "", "\n".join(found))  # a count of compiles


@pytest.mark.slow
def test_freezing_acts_on_the_parameters_of_the_vjp_route() -> None:
    usual, frozen = code(HELD, False), code(HELD, True)
    assert "_frozen_param" not in usual
    assert "tanh" in usual.replace("tanh_backward", "")
    # the parameter is a constant of the code, and what depends on it alone was computed by the compiler
    assert "_frozen_param" in frozen
    assert "tanh()" not in frozen
    found = report(
        parse(HELD.replace("route", 'settings({"inductor.freezing": True})\nroute', 1)), FRESH, Journal(None)
    )
    assert (found.verdict, found.rejected) == ("agree", "")


@pytest.mark.slow
def test_freezing_is_inert_in_the_autograd_route() -> None:
    text = HELD.replace("vjp", "autograd").replace("parameter=True, ", "")
    assert code(text, False) == code(text, True)


def test_a_route_of_one_backend_is_refused_for_any_other() -> None:
    text = HELD.replace("vjp", "aoti")
    found = report(parse(text), Task(place=Place(EAGER, Subject("aot_eager", "cpu"))), Journal(None))
    assert found.rejected == "route aoti is for the backend inductor alone, not aot_eager"
    assert report(parse(text), Task(place=Place(EAGER, EAGER)), Journal(None)).verdict == "agree"


@pytest.mark.slow
def test_a_package_is_made_loaded_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = report(parse(HELD.replace("vjp", "aoti")), FRESH, Journal(None))
    assert (found.verdict, found.rejected) == ("agree", "")
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".pt2"]


def test_compiled_autograd_compiles_the_graph_of_the_backward_and_eager_does_not() -> None:
    program = parse(HEAD.replace("autograd", "compiled_autograd") + PRODUCT)
    graphs: list[Any] = []

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        graphs.append(function)
        return function

    compiled, eager = run(program, compile), run(program)
    assert [isinstance(g, torch.fx.GraphModule) for g in graphs] == [False, True]
    names = {str(getattr(node.target, "__name__", node.target)) for node in graphs[1].graph.nodes}
    assert any("exp" in name.lower() for name in names), names
    for name, gradient in eager.gradients.items():
        assert torch.equal(compiled.gradients[name], gradient)


def test_phases_are_named_in_order() -> None:
    program = parse(HEAD + "x0 = leaf(f32[3])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[3]))")
    told: list[str] = []
    run(program, phases=told)
    assert told == ["forward", "backward"]


WRONG = [
    (Route("detour"), f"no route 'detour'; known are {', '.join(ROUTES)}"),
    (Route("vjp", (("mode", "fast"),)), "route vjp has no option 'mode'; it has dynamic"),
]


@pytest.mark.parametrize(("route", "words"), WRONG)
def test_an_unknown_route_or_option_is_refused_by_name(route: Route, words: str) -> None:
    with pytest.raises(UnknownRoute) as caught:
        find(replace(parse(HEAD), route=route))
    assert str(caught.value) == words


def test_options_have_defaults() -> None:
    assert find(parse('program(1)\nroute("vjp")\n'))[1] == {"dynamic": False}
    assert find(parse('program(1)\nroute("vjp", dynamic=True)\n'))[1] == {"dynamic": True}


def test_routes_are_drawn_by_their_weight_and_some_with_symbolic_sizes() -> None:
    rng = random.Random(0)
    drawn = [draw(rng, list(ROUTES)) for _ in range(2000)]
    count = Counter(route.name for route in drawn)
    assert set(count) == set(ROUTES)
    assert count["autograd"] + count["vjp"] >= 0.7 * len(drawn)
    assert 0.05 < sum(("dynamic", True) in route.options for route in drawn) / len(drawn) < 0.2
    assert {draw(rng, ["vjp"]).name for _ in range(20)} == {"vjp"}


@pytest.mark.parametrize("route", [name for name, spec in ROUTES.items() if "dynamic" in spec.options])
def test_a_dynamic_program_is_compiled_with_symbolic_sizes_and_judged_like_any_other(route: str) -> None:
    text = f'program(1)\nroute("{route}", dynamic=True)\n' + PRODUCT
    torch._dynamo.reset()
    with patch.object(torch, "compile", wraps=torch.compile) as asked:
        found = report(parse(text), Task(place=Place(EAGER, Subject("aot_eager", "cpu"))), Journal(None))
    assert asked.call_args.kwargs["dynamic"] is True
    assert (found.verdict, found.rejected) == ("agree", "")


# ---------------------------------------------------------------- layouts in the graph that the compiler receives


class Seen:
    """A backend that notes the graphs it is given, as inductor would get them, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[tuple[str, torch.fx.GraphModule, list[torch.Tensor]]] = []
        torch._dynamo.reset()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        backend = aot_autograd(
            fw_compiler=self._noting("forward"),
            bw_compiler=self._noting("backward"),
            inference_compiler=self._noting("inference"),
        )
        return torch.compile(function, backend=backend, fullgraph=True, dynamic=False)

    def _noting(self, kind: str) -> Callable[..., Any]:
        def note(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            self.graphs.append((kind, graph, inputs))
            return make_boxed_func(graph.forward)

        return note

    def strides(self, kind: str) -> list[tuple[int, ...]]:
        """Strides of every tensor in the graphs of a kind, inputs included."""
        found = []
        for name, graph, _ in self.graphs:
            for node in graph.graph.nodes if name == kind else ():
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor):
                    found.append(tuple(value.stride()))
        return found

    def inputs(self, kind: str) -> list[tuple[int, ...]]:
        return [tuple(t.stride()) for name, _, given in self.graphs if name == kind for t in given if t.dim()]

    def tangents(self) -> list[tuple[int, ...]]:
        return [
            tuple(node.meta["val"].stride())
            for name, graph, _ in self.graphs
            for node in graph.graph.nodes
            if name == "backward" and node.op == "placeholder" and "tangents" in node.name
        ]


LAYOUTS = [("contiguous", (5, 1)), ("permuted", (1, 4)), ("broadcast", (0, 1)), ("broadcast at the end", (1, 0)),
           ("broadcast twice", (0, 0)), ("with gaps", (14, 2))]  # fmt: skip


@pytest.mark.parametrize("stride", [x[1] for x in LAYOUTS], ids=[x[0] for x in LAYOUTS])
def test_a_declared_cotangent_layout_reaches_the_graph_in_the_vjp_route(stride: tuple[int, int]) -> None:
    program = parse(
        f'program(1)\nroute("vjp")\nx0 = leaf(f32[4, 5], offset=3, seed=1)\nv0 = exp(x0)\n'
        f"backward(v0, cotangent(f32[4, 5], stride={stride}, seed=2))"
    )
    seen = Seen()
    found = run(program, seen.compile)
    assert stride in seen.inputs("inference")
    torch.testing.assert_close(found.gradients["x0"], run(program).gradients["x0"])


@pytest.mark.parametrize("stride", [x[1] for x in LAYOUTS[1:]], ids=[x[0] for x in LAYOUTS[1:]])
def test_a_declared_cotangent_layout_does_not_reach_the_graph_in_the_autograd_route(stride: tuple[int, int]) -> None:
    program = parse(
        HEAD
        + f"x0 = leaf(f32[4, 5], seed=1)\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4, 5], stride={stride}, seed=2))"
    )
    seen = Seen()
    run(program, seen.compile)
    assert seen.tangents() == [(5, 1)]


LAST = "x0 = leaf(f32[4, 5], seed=1)\nv0 = exp(x0)\n"
# the program's last operation, the type of the cotangent, and the strides one of which it makes in the backward graph
MADE = [
    ("contiguous", "v1 = mul(v0, v0)", "4, 5", {(5, 1)}),
    ("broadcast along rows", "v1 = sum(v0, dim=0)", "5", {(0, 1)}),
    ("broadcast along columns", "v1 = sum(v0, dim=1)", "4", {(1, 0)}),
    ("broadcast everywhere", "v1 = sum(v0)", "()", {(0, 0)}),
    ("mean", "v1 = mean(v0, dim=1)", "4", {(1, 0)}),
    (
        "permuted",
        "v1 = transpose(v0, dim0=0, dim1=1)",
        "5, 4",
        {(1, 5), (1, 4)},
    ),  # the tangent is traced in the output's own layout, or dense (torch 2.11)
]


@pytest.mark.parametrize(("last", "shape", "strides"), [m[1:] for m in MADE], ids=[m[0] for m in MADE])
def test_the_programs_last_operation_makes_layouts_in_the_autograd_routes_backward(
    last: str, shape: str, strides: set[tuple[int, ...]]
) -> None:
    program = parse(HEAD + LAST + last + f"\nbackward(v1, cotangent(f32[{shape}], seed=2))")
    seen = Seen()
    found = run(program, seen.compile)
    assert strides & set(seen.strides("backward"))
    torch.testing.assert_close(found.gradients["x0"], run(program).gradients["x0"])
