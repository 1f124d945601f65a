"""The routes: the same gradients in eager, and which cotangent layouts reach the compiler's backward graph."""

from __future__ import annotations

import ast
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings

from fuzzer.generation.strategies import programs
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language import interpret
from fuzzer.language.ops import OPS
from fuzzer.language.program import Program, Region, Route, writes
from fuzzer.language.routes import (
    ROUTES,
    UnknownRoute,
    draw_route,
    gradient_leaves,
)
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program
from fuzzer.trial.tasks import report_words
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.language.routes.runs import EAGER, FRESH, HEAD, HELD, run

ROOT = Path(__file__).parents[3]
PACKAGED = ROOT / "corpus" / "seeds" / "aoti.prog"


def without_regions(program: Program) -> bool:
    """autograd and torch.func cast at other places"""
    return not any(isinstance(s, Region) for s in program.body)


@given(programs(max_nodes=4, routes=("vjp",)).filter(without_regions))  # the route that can hold the least
@settings(max_examples=30)
def test_every_route_gives_the_same_outputs_and_gradients_in_eager(program: Program) -> None:
    plain = tuple(replace(leaf, parameter=False) for leaf in program.leaves)
    # torch.func decomposes some ops (binary_cross_entropy_with_logits), which rounds otherwise
    first, second = run(replace(program, route=Route(), leaves=plain)), run(program)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    assert list(first.gradients) == list(second.gradients) == gradient_leaves(program)
    for name, a in first.gradients.items():
        b = second.gradients[name]
        assert b is not None
        torch.testing.assert_close(torch.zeros_like(b) if a is None else a, b, equal_nan=True)


TWICE = tuple(name for name, spec in ROUTES.items() if spec.times == 2)


def repeats(program: Program) -> bool:
    """Whether a second forward computes the same: it draws nothing and writes to no leaf."""
    return not any(OPS[node.op].random or writes(node) for node in program.nodes)


@pytest.mark.parametrize("route", TWICE)
@given(programs(max_nodes=4, dtypes=("f32", "f64")).filter(repeats))
@settings(max_examples=25)
def test_what_runs_the_backward_twice_gives_every_gradient_twice(route: str, program: Program) -> None:
    once, twice = run(program), run(replace(program, route=Route(route)))
    for name, gradient in once.gradients.items():
        second = twice.gradients[name]
        if gradient is None:
            assert second is None
        else:
            torch.testing.assert_close(second, gradient + gradient, rtol=0, atol=0, equal_nan=True)


PRODUCT = (
    "x0 = leaf(f32[3, 4], seed=1)\nx1 = leaf(f32[4], seed=2)\n"
    "v0 = mul(x0, x1)\nv1 = exp(v0)\nv2 = sum(v1, dim=(0,))\nbackward(v2, cotangent(f32[4], seed=3))\n"
)


DIRECTIONS = {"vjp": {"joint"}}


@pytest.mark.slow
@pytest.mark.parametrize("route", [name for name in ROUTES if name != "aoti"])  # its package is made below
def test_every_route_agrees_with_eager_under_inductor_and_tells_its_directions(route: str) -> None:
    found = report_words(FRESH, HEAD.replace("autograd", route) + PRODUCT)
    assert (found.verdict, found.rejected) == ("agree", "")
    assert found.detectable == found.elements > 0
    for family in ("node", "link", "kernel", "line"):
        told = {word.split()[0] for word in found.files[family].splitlines()}
        assert told == DIRECTIONS.get(route, {"forward", "backward"}), family


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
        torch.testing.assert_close(found.gradients["x0"], ROUTES[name].times * 2 * a * b * b * seed)
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


def test_a_route_of_one_backend_is_refused_for_any_other() -> None:
    text = HELD.replace("vjp", "aoti")
    found = report_program(parse(text), Task(place=Place(EAGER, Subject("aot_eager", "cpu"))), Journal(None))
    assert found.rejected == "route aoti is for the backend inductor alone, not aot_eager"
    assert report_program(parse(text), Task(place=Place(EAGER, EAGER)), Journal(None)).verdict == "agree"


@pytest.mark.slow
def test_a_package_is_made_loaded_and_removed_and_tells_its_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package takes long to build: this one is that of the seed, for `test_seeds`, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = report_words(FRESH, PACKAGED.read_text())
    assert (found.verdict, found.rejected) == ("agree", "")
    for family in ("node", "link"):
        assert {word.split()[0] for word in found.files[family].splitlines()} == {"joint"}, family
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


def test_autograds_graph_is_compiled_alone_where_the_forward_is_eager() -> None:
    text = HEAD.replace('"autograd"', '"compiled_autograd", eager_forward=True')
    program, graphs = parse(text + PRODUCT), []
    torch._dynamo.reset()  # autograd finds the graph of a program of the same operations

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        graphs.append(function)
        return function

    compiled, eager = run(program, compile), run(program)
    assert [isinstance(g, torch.fx.GraphModule) for g in graphs] == [True]
    assert all(torch.equal(compiled.gradients[name], gradient) for name, gradient in eager.gradients.items())
    assert "return backward(f, " in "\n".join(ROUTES["compiled_autograd"].script.write(program))


def test_phases_are_named_in_order() -> None:
    program = parse(HEAD + "x0 = leaf(f32[3])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[3]))")
    told: list[str] = []
    run(program, phases=told)
    assert told == ["forward", "backward"]


def test_routes_are_drawn_by_their_weight_and_some_with_options() -> None:
    rng = random.Random(0)
    drawn = [draw_route(rng, list(ROUTES)) for _ in range(2000)]
    count = Counter(route.name for route in drawn)
    assert set(count) == set(ROUTES)
    assert count["autograd"] + count["vjp"] >= 0.7 * len(drawn)
    assert 0.05 < sum(("dynamic", True) in route.options for route in drawn) / len(drawn) < 0.2
    assert {draw_route(rng, ["vjp"]).name for _ in range(20)} == {"vjp"}
    of_eager = [("eager_forward", True) in draw_route(rng, ["compiled_autograd"]).options for _ in range(200)]
    assert 0.2 < sum(of_eager) / len(of_eager) < 0.4


@pytest.mark.parametrize("route", [name for name, spec in ROUTES.items() if "dynamic" in spec.options])
def test_a_dynamic_program_is_compiled_with_symbolic_sizes_and_judged_like_any_other(route: str) -> None:
    text = f'program(1)\nroute("{route}", dynamic=True)\n' + PRODUCT
    torch._dynamo.reset()
    with patch.object(torch, "compile", wraps=torch.compile) as asked:
        found = report_program(parse(text), Task(place=Place(EAGER, Subject("aot_eager", "cpu"))), Journal(None))
    assert asked.call_args.kwargs["dynamic"] is True
    assert (found.verdict, found.rejected) == ("agree", "")


def test_every_file_with_a_route_is_in_the_list() -> None:
    files = [path for path in (ROOT / "fuzzer/language/routes").glob("*.py") if "\nROUTE = " in path.read_text()]
    assert {path.stem for path in files} == set(ROUTES)


def test_nobody_else_names_a_route() -> None:
    paths = [path for package in ("fuzzer", "minimizer") for path in sorted((ROOT / package).rglob("*.py"))]
    attributes = {attribute.name for spec in OPS.values() for attribute in spec.params}
    found = set()
    for path in paths:
        text = path.read_text()
        if not any(name in text for name in ROUTES):
            continue  # and no tree of it is needed
        texts = {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)}
        named = texts & set(ROUTES) - (attributes if path.parent.name == "ops" else set())
        found |= {(str(path.relative_to(ROOT)), name) for name in named}
    default = ("fuzzer/language/program.py", Route().name)  # what a text without a route means
    assert found - {default} == {("fuzzer/language/routes/__init__.py", name) for name in ROUTES}


# ---------------------------------------------------------------- layouts in the graph that the compiler receives


class Seen:
    """A backend that notes the graphs it is given, as inductor would get them, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[tuple[str, torch.fx.GraphModule, list[torch.Tensor]]] = []
        torch._dynamo.reset()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        from torch._dynamo.backends.common import aot_autograd

        backend = aot_autograd(
            fw_compiler=self._noting("forward"),
            bw_compiler=self._noting("backward"),
            inference_compiler=self._noting("inference"),
        )
        return torch.compile(function, backend=backend, fullgraph=True, dynamic=False)

    def _noting(self, kind: str) -> Callable[..., Any]:
        from functorch.compile import make_boxed_func

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


WITHOUT = "x0 = leaf(f32[3], requires_grad=False, seed=1)\nv0 = sin(x0)\nv1 = neg_(v0)\nreturns(v1)\n"


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_runs_a_program_without_a_gradient(route: str) -> None:
    program = parse(f'program(1)\nroute("{route}")\n{WITHOUT}')
    (x,) = interpret.materialise(program.leaves).values()
    found = run(program)
    assert not found.gradients
    assert [out.tolist() for out in found.outputs] == [(-x.sin()).tolist()]
    script = "\n".join(ROUTES[route].script.write(program))
    assert "def results(" in script
    assert "grad" not in script.replace("no_grad", "").replace("autograd", "")


def test_a_program_without_a_gradient_whose_forward_is_not_compiled_is_refused() -> None:
    program = parse(f'program(1)\nroute("compiled_autograd", eager_forward=True)\n{WITHOUT}')
    with pytest.raises(UnknownRoute, match="compiles nothing"):
        run(program)


def test_a_program_without_a_gradient_is_judged_by_its_outputs_and_writes() -> None:
    program = parse(f'program(1)\nroute("vjp")\n{WITHOUT}')
    told = report_program(program, Task(place=Place(EAGER, Subject("inductor:ir"))), Journal(None))
    assert (told.verdict, told.stage, told.forward) == ("agree", "ir", True)
