"""Programs rewritten: what pruning keeps, and what follows when a type changes."""

from __future__ import annotations

from fuzzer.language.infer import infer
from fuzzer.language.program import Cotangent
from fuzzer.language.text import parse
from minimizer.rewrite import prune, restride, retype


def test_pruning_keeps_an_in_place_op_that_writes_what_is_read_later() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f32[2])
x1 = leaf(f32[2])
v0 = exp(x0)
v1 = view(v0, size=(2,))
v2 = add_(v1, x1)
v3 = exp(x1)
v4 = relu(v0)
returns(v4)
"""
    assert [node.op for node in prune(parse(text)).nodes] == ["exp", "view", "add_", "relu"]
    unrelated = parse(text.replace("relu(v0)", "relu(v3)"))
    assert [node.op for node in prune(unrelated).nodes] == ["exp", "relu"]


def test_retyping_gives_a_cotangent_the_shape_of_its_output_and_keeps_a_stride_that_fits() -> None:
    text = """program(1)
route("autograd")
x0 = leaf(f64[2, 3])
v0 = exp(x0)
backward(v0, cotangent(f32[4, 6], stride=(1, 4)))
"""
    program = parse(text)
    fitting = retype(program, infer(program)).outputs[0].cotangent
    assert fitting == Cotangent("f64", (2, 3), (1, 2))
    assert restride((4, 6), (0, 1), (2, 3)) == (0, 1)
    assert restride((4, 6), (6, 1), (2, 3)) == (3, 1)
