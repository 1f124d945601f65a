"""Functions beneath those of torch.nn: the public one computes the same, and is how a script calls it."""

from __future__ import annotations

import re

import pytest
import torch

from fuzzer.language.infer import infer
from fuzzer.language.interpret import materialise, to_function
from fuzzer.language.routes.writing import write_function
from fuzzer.language.text import parse, show
from minimizer.natural import unnatural
from minimizer.public import PUBLIC, public_op
from minimizer.rewrite import Types

BENEATH = {
    "native_layer_norm": "x0 = leaf(f32[2, 3, 4], seed=1)\nx1 = leaf(f32[4], seed=2)\nx2 = leaf(f32[4], seed=3)\n"
    "v0, v1, v2 = native_layer_norm(x0, x1, x2, normalized_shape=(4,), eps=1e-05)",
    "native_group_norm": "x0 = leaf(f32[2, 4, 3], seed=1)\nx1 = leaf(f32[4], seed=2)\nx2 = leaf(f32[4], seed=3)\n"
    "v0, v1, v2 = native_group_norm(x0, x1, x2, N=2, C=4, HxW=3, group=2, eps=0.001)",
    "native_batch_norm": "x0 = leaf(f32[2, 4, 3], seed=1)\nx1 = leaf(f32[4], seed=2)\nx2 = leaf(f32[4], seed=3)\n"
    "v0, v1, v2 = native_batch_norm(x0, x1, x2, running_mean=None, running_var=None, training=True, momentum=0.5, "
    "eps=0.1)",
    "native_batch_norm_legit": "x0 = leaf(f32[2, 4, 3], seed=1)\nx1 = leaf(f32[4], seed=2)\nx2 = leaf(f32[4], seed=3)\n"
    "v0, v1, v2 = native_batch_norm_legit(x0, x1, x2, training=True, momentum=0.1, eps=0.1)",
    "upsample_bilinear2d_aa": "x0 = leaf(f32[1, 2, 4, 4], seed=1)\n"
    "v0 = upsample_bilinear2d_aa(x0, output_size=(3, 5), align_corners=False)",
    "constant_pad_nd": "x0 = leaf(f32[4], seed=1)\nv0 = constant_pad_nd(x0, pad=(1, 2), value=-2.5)",
    "grid_sampler_2d": "x0 = leaf(f32[1, 2, 4, 4], seed=1)\nx1 = leaf(f32[1, 3, 3, 2], seed=2)\n"
    "v0 = grid_sampler_2d(x0, x1, interpolation_mode=2, padding_mode=1, align_corners=False)",
    "grid_sampler_3d": "x0 = leaf(f32[1, 2, 3, 4, 4], seed=1)\nx1 = leaf(f32[1, 3, 3, 2, 3], seed=2)\n"
    "v0 = grid_sampler_3d(x0, x1, interpolation_mode=0, padding_mode=2, align_corners=True)",
}


@pytest.mark.parametrize("op", PUBLIC)
def test_a_function_beneath_torch_nn_becomes_the_public_one_of_the_same_numbers(op: str) -> None:
    program = parse(f'program(1)\nroute("autograd")\n{BENEATH[op]}\nreturns(v0)\n')
    [public] = public_op(program, Types(infer(program)))
    assert infer(public).keys() >= {"v0"}
    assert show(parse(show(public))) == show(public)
    leaves = materialise(program.leaves)
    beneath, above = (to_function(p)(*leaves.values())[0] for p in (program, public))
    assert torch.equal(beneath, above)
    assert unnatural(public, 1.0) < unnatural(program, 1.0)
    source = "\n".join(write_function(public))
    assert re.search(r"return F\.(layer_norm|group_norm|batch_norm|interpolate|pad|grid_sample)\(", source)


def test_a_function_of_which_another_result_is_read_stays() -> None:
    text = f'program(1)\nroute("autograd")\n{BENEATH["native_layer_norm"]}\nv3 = mul(v0, v1)\nreturns(v3)\n'
    program = parse(text)
    assert list(public_op(program, Types(infer(program)))) == []
