"""The stage `graph`: what inductor's decompositions and passes make of a program, run by eager."""

from __future__ import annotations

import pytest
import torch

from fuzzer.language.private import graph_pass, replaced_decomposition, replaced_lowering
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.language.text import parse
from fuzzer.stages import STAGES, cannot_run
from fuzzer.stages.cannot import Cannot
from tests.stages.bodies import GRAPH, agrees, examined
from tests.workers.light import BODY

SIGMOID = f'program(1)\nroute("autograd")\n{BODY.replace("sin", "sigmoid")}'


@pytest.mark.parametrize("route", ANY_BACKEND)
def test_a_sound_program_agrees_on_every_route(route: str) -> None:
    agrees(examined(GRAPH, SIGMOID.replace("autograd", route)))


def test_a_wrong_decomposition_is_heard() -> None:
    with replaced_decomposition(torch.ops.aten.sigmoid_backward.default, lambda grad, y: grad * y):
        assert examined(GRAPH, SIGMOID).verdict == "wrong"


def test_a_wrong_pass_is_heard() -> None:
    def negate(graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sigmoid.default):
            node.target = torch.ops.aten.tanh.default

    with graph_pass(negate):
        assert examined(GRAPH, SIGMOID).verdict == "wrong"


def test_a_wrong_lowering_is_not() -> None:
    with replaced_lowering(torch.ops.aten.sigmoid.default, lambda before, backward, x: x):
        agrees(examined(GRAPH, SIGMOID))


def test_what_eager_cannot_run_of_a_graph_is_a_reason_to_build() -> None:
    from fuzzer.stages.graph import GraphCode

    code = GraphCode(run=lambda x: x.no_such_method())
    with pytest.raises(Cannot):
        code([torch.ones(2)])
    assert code.reasons == ["AttributeError: 'Tensor' object has no attribute 'no_such_method'"]


def test_it_takes_its_inputs_away_as_compiled_code_does() -> None:
    from fuzzer.stages.graph import GraphCode

    given = [torch.ones(2), torch.ones(2)]
    assert GraphCode(run=torch.add)(given).tolist() == [2, 2]
    assert given == []


@pytest.mark.parametrize(
    ("head", "why"),
    [('route("aoti")', "route: aoti"), ('route("autograd")', ""),
     ('settings({"inductor.cpp_wrapper": True})\nroute("vjp")', "setting: inductor.cpp_wrapper"),
     ('settings({"inductor.triton.cudagraphs": True})\nroute("vjp")', "setting: inductor.triton.cudagraphs")],
)  # fmt: skip
def test_what_writes_no_python_is_built(head: str, why: str) -> None:
    assert list(STAGES) == ["graph", "ir"]
    assert cannot_run(parse(f"program(1)\n{head}\n{BODY}")) == why
