"""Small programs for the minimizer, as a Hypothesis strategy."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

from fuzzer.language.program import Cotangent, Leaf, Node, Output, Program, Recipe, Route, contiguous

SHAPES = ((), (3,), (2, 3), (1, 5), (4, 1, 3))
UNARY = ("relu", "exp", "sigmoid")


@st.composite
def programs(draw: Callable) -> Program:
    """Small well-typed programs: unary ops, sums and additions of equal shapes, with layouts, values and settings."""
    leaves, body, shapes = [], [], {}
    for i in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(SHAPES))
        gap = draw(st.integers(1, 2))
        stride = tuple(s * gap for s in contiguous(shape))
        values = Recipe(draw(st.sampled_from(("normal", "ties", "integers"))))
        dtype = draw(st.sampled_from(("f32", "f64")))
        leaves.append(Leaf(f"x{i}", dtype, shape, stride, draw(st.integers(0, 2)), values=values, seed=i))
        shapes[f"x{i}"] = (dtype, shape)
    for i in range(draw(st.integers(1, 4))):
        a = draw(st.sampled_from(sorted(shapes)))
        alike = [b for b in sorted(shapes) if shapes[b] == shapes[a]]
        op = draw(st.sampled_from((*UNARY, "sum", "add")))
        args = (a, draw(st.sampled_from(alike))) if op == "add" else (a,)
        body.append(Node((f"v{i}",), op, args))
        shapes[f"v{i}"] = (shapes[a][0], ()) if op == "sum" else shapes[a]
    made = [f"v{i}" for i in range(len(body))]
    chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    outputs = [Output(v, Cotangent(shapes[v][0], shapes[v][1], contiguous(shapes[v][1]), seed=4)) for v in chosen]
    options = draw(st.sampled_from(((), (("dynamic", False),))))
    chosen_settings = draw(st.sampled_from(((), (("inductor.max_fusion_size", 4),))))
    return Program(tuple(leaves), tuple(body), tuple(outputs), Route("autograd", options), chosen_settings)


FEW = settings(max_examples=8, deadline=None)
