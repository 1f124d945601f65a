"""Ops as a person names them: sets of them, and lists with commas. Importing this imports no torch."""

from __future__ import annotations

from fuzzer.language.errors import UnknownOp, meant
from fuzzer.language.ops import OPS

# Sets of ops by name. core: the ops of most models, with each kind of backward formula and layout once; every op that
# may end a program is in it.
SETS: dict[str, tuple[str, ...]] = {
    "core": (
        "exp", "log", "sigmoid", "tanh", "pow_scalar",
        "relu", "gelu", "silu",
        "add", "sub", "mul", "div", "maximum",
        "where",
        "sum", "mean", "amax", "var",
        "softmax",
        "layer_norm",
        "matmul", "linear",
        "conv2d",
        "max_pool2d", "avg_pool2d",
        "gather", "index_select",
        "slice_scatter", "scatter_add", "index_add",
        "reshape", "transpose", "permute", "expand", "narrow", "select",
        "cat",
        "pad",
        "cumsum",
        "embedding",
        "flip",
        "cross_entropy",
    ),
}  # fmt: skip


def parse_ops(text: str) -> tuple[str, ...]:
    """The ops that a list with commas names: sets and single ops. Raises UnknownOp."""
    found: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name not in SETS and name not in OPS:
            known = f"sets are {', '.join(SETS)}, `backfuzz ops` lists the ops"
            raise UnknownOp(f"no op or set of ops {name!r}: {known}{meant(name, [*SETS, *OPS])}")
        found += SETS.get(name, (name,))
    return tuple(dict.fromkeys(found))
