"""What counts as simpler, and what of two findings follows the other."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.language.program import Node, Recipe
from fuzzer.language.text import parse
from minimizer.order import cost


def test_simpler_values_come_before_attributes_and_a_node_before_everything() -> None:
    small = parse('program(1)\nroute("autograd")\nx0 = leaf(f32[2], values="ones")\nv0 = exp(x0)\nreturns(v0)\n')
    normal = replace(small, leaves=(replace(small.leaves[0], values=Recipe("normal")),))
    longer = replace(small, body=(*small.body, Node(("v1",), "exp", ("v0",))))
    configured = replace(normal, settings=(("inductor.max_fusion_size", 4),))
    assert cost(small) < cost(normal) < cost(configured) < cost(longer)
