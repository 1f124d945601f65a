"""Values chosen for the op that reads them: drawn programs hold them, and eager lies inside its floor on them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.interpret import apply
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import FLOATS, Node, Program
from fuzzer.language.text import parse, show
from fuzzer.language.values import TORCH_DTYPES, fill, neighbours
from fuzzer.trial.pipeline import run_both
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task
from tests.drawn import LEAST, drawn

DRAWN = 12
EAGER = Place(Subject("eager", "cpu"), Subject("eager", "cpu"))
Attributes = dict[str, Any]
Holds = Callable[[torch.Tensor, Attributes], bool]


@functools.cache
def programs(
    op: str, dtypes: tuple[str, ...] = FLOATS, count: int = DRAWN, least: float = LEAST
) -> tuple[Program, ...]:
    """So many programs of this op alone, as the generator draws them, taken from their text."""
    limits = Limits(max_nodes=1, max_numel=256, dtypes=dtypes)
    found = drawn([f"{op}/{number}" for number in range(count)], {op: OPS[op]}, limits, least=least)
    return tuple(parse(show(program)) for program in found)


def read(program: Program) -> Iterator[tuple[Node, list[torch.Tensor]]]:
    """The nodes, each with what its floating operands that are leaves were filled with, layouts aside."""
    leaves = {leaf.name: leaf for leaf in program.leaves if leaf.type.is_float and leaf.base is None}
    for node in program.nodes:
        operands = [leaves[name] for name in node.uses if name in leaves]
        yield node, [fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape) for leaf in operands]


def share(op: str, holds: Holds, dtypes: tuple[str, ...] = FLOATS, count: int = DRAWN) -> float:
    """In how many of the programs some operand of the op holds such values."""
    made = programs(op, dtypes, count)
    shown = [
        any(holds(t, attributes(node)) for node, given in read(program) for t in given if t.numel()) for program in made
    ]
    return sum(shown) / len(made)


def attributes(node: Node) -> Attributes:
    return {a.name: a.default for a in OPS[node.op].attributes} | dict(node.attrs)


# ---------------------------------------------------------------- thresholds

THRESHOLDS: dict[str, Callable[[Attributes], list[float | None]]] = {
    "relu": lambda a: [0.0],
    "relu6": lambda a: [0.0, 6.0],
    "leaky_relu": lambda a: [0.0],
    "prelu": lambda a: [0.0],
    "rrelu": lambda a: [0.0],
    "elu": lambda a: [0.0],
    "selu": lambda a: [0.0],
    "celu": lambda a: [0.0],
    "softplus": lambda a: [a["threshold"] / a["beta"]],
    "softshrink": lambda a: [a["lambd"], -a["lambd"]],
    "hardshrink": lambda a: [a["lambd"], -a["lambd"]],
    "hardtanh": lambda a: [a["min_val"], a["max_val"]],
    "hardsigmoid": lambda a: [-3.0, 3.0],
    "hardswish": lambda a: [-3.0, 3.0],
    "threshold": lambda a: [a["threshold"]],
    "clamp": lambda a: [a["min"], a["max"]],
    "clamp_min": lambda a: [a["min"]],
    "clamp_max": lambda a: [a["max"]],
    "logit": lambda a: [a["eps"]],
    "frac": lambda a: [1.0, -1.0],
    "fmod_scalar": lambda a: [a["other"], 2 * a["other"]],
    "remainder_scalar": lambda a: [a["other"], 2 * a["other"]],
    "hinge_embedding_loss": lambda a: [a["margin"]],
}


def beside(threshold: float, dtype: torch.dtype) -> list[float]:
    """The numbers of the dtype next to the one nearest to the threshold, by their bits; of 0, the smallest normal."""
    nearest = torch.tensor(threshold, dtype=torch.float64).to(dtype)
    if nearest == 0:
        return [torch.finfo(dtype).smallest_normal, -torch.finfo(dtype).smallest_normal]
    bits = nearest.view({8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize])
    return [float((bits + step).view(dtype)) for step in (1, -1)]


def at_threshold(of: Callable[[Attributes], list[float | None]]) -> Holds:
    """Whether elements equal a threshold as the dtype has it, and others are one unit away from one."""

    def holds(x: torch.Tensor, given: Attributes) -> bool:
        numbers = set(x.double().flatten().tolist())
        thresholds = [float(t) for t in of(given) if t is not None]
        exact = {float(torch.tensor(t, dtype=torch.float64).to(x.dtype)) for t in thresholds}
        near = {n for t in thresholds for n in beside(t, x.dtype)}
        return bool(numbers & exact) and bool(numbers & near)

    return holds


@pytest.mark.parametrize("op", THRESHOLDS)
def test_operands_lie_at_and_beside_the_thresholds_that_were_drawn(op: str) -> None:
    assert share(op, at_threshold(THRESHOLDS[op])) >= 0.2


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", [0.7, -0.7, 1.0, -2.0, 1 / 3, 20.0, 0.0])
def test_neighbours_are_the_next_numbers_of_the_dtype(number: float, dtype: str) -> None:
    inner, nearest, outer = neighbours(number, TORCH_DTYPES[dtype])
    assert nearest == float(torch.tensor(number, dtype=torch.float64).to(TORCH_DTYPES[dtype]))
    assert sorted(beside(number, TORCH_DTYPES[dtype])) == sorted([inner, outer])


# ---------------------------------------------------------------- the other groups


def tied(x: torch.Tensor, given: Attributes) -> bool:
    return x.unique().numel() < x.numel() and x.unique().numel() > 1


def zero(x: torch.Tensor, given: Attributes) -> bool:
    return bool((x == 0).any()) and bool((x != 0).any())


def near_singular(x: torch.Tensor, given: Attributes) -> bool:
    if x.dim() < 2 or not x.isfinite().all():
        return False
    found = torch.linalg.svdvals(x.double())
    return bool((found[..., -1] < found[..., 0] / 50).any()) and bool((found[..., -1] > 1e-3).all())


def at_the_end(x: torch.Tensor, given: Attributes) -> bool:
    """Elements whose square is just within float16's range or just beyond."""
    return bool(((x.abs() >= 255.75) & (x.abs() <= 256)).any()) or bool((x.abs() > 32700).any())


def subnormal(x: torch.Tensor, given: Attributes) -> bool:
    return bool(((x != 0) & (x.abs() < torch.finfo(x.dtype).smallest_normal)).any())


HALF = ("f16",)
# what: the test for it, the least share of the programs, the dtypes, the ops
GROUPS: dict[str, tuple[Holds, float, tuple[str, ...], str]] = {
    "ties": (
        tied,
        0.5,
        FLOATS,
        """amax amin max min max_all min_all median median_all nanmedian masked_amax masked_median sort msort topk
        kthvalue cummax cummin maximum minimum fmax fmin max_binary clamp_tensor scatter_reduce index_reduce
        segment_reduce_lengths max_pool1d max_pool2d max_pool3d max_pool2d_with_indices adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d quantile dist cdist l1_loss smooth_l1_loss
        huber_loss margin_ranking_loss multi_margin_loss""",
    ),
    "zeros": (
        zero,
        0.4,
        FLOATS,
        """prod prod_all masked_prod cumprod masked_cumprod norm vector_norm linalg_norm masked_norm pow pow_scalar
        float_power atan2 hypot xlogy xlog1py abs sqrt sinc entr normalize renorm copysign""",
    ),
    "matrices that are almost singular": (
        near_singular,
        0.15,
        FLOATS,
        """cholesky cholesky_ex torch_cholesky inv inv_ex pinv pinv_hermitian torch_pinverse det slogdet torch_logdet
        matrix_power matrix_norm cond qr qr_of_wide svd svdvals eigh eigvalsh lu lu_factor solve solve_ex
        solve_triangular torch_triangular_solve norm_nuclear""",
    ),
    "the end of float16's range": (
        at_the_end,
        0.12,
        HALF,
        """exp exp2 expm1 sinh cosh square pow_scalar mul_scalar mul add sum prod cumprod cumsum logsumexp logcumsumexp
        norm vector_norm hypot""",
    ),
    "subnormal numbers": (
        subnormal,
        0.15,
        FLOATS,
        "relu leaky_relu elu threshold hardtanh abs neg mul mul_scalar div atan2 hypot norm vector_norm exp",
    ),
}


@pytest.mark.parametrize("what", GROUPS)
def test_operands_hold_what_their_op_finds_hard(what: str) -> None:
    holds, least, dtypes, ops = GROUPS[what]
    shares = {op: share(op, holds, dtypes) for op in ops.split()}
    assert sum(shares.values()) / len(shares) >= least, shares
    # where an op has a threshold too, most of its operands lie around that
    never = [op for op, found in shares.items() if not found and not share(op, holds, dtypes, 3 * DRAWN)]
    assert len(never) <= len(shares) / 8, never


def test_some_programs_overflow_in_a_part_of_their_elements() -> None:
    parts = 0
    for program in [p for op in ("exp", "square", "mul_scalar", "prod", "cumsum") for p in programs(op, HALF)]:
        for node, given in read(program):
            env = dict(zip(node.uses, given, strict=False))
            if len(env) == len(set(node.uses)):
                apply(node, env)
                infinite = env[node.outs[0]].isinf()
                parts += bool(infinite.any()) and not bool(infinite.all())
    assert parts >= 5


@pytest.mark.slow
def test_eager_lies_inside_its_floor_on_such_values() -> None:
    listed = [op for *_, ops in GROUPS.values() for op in ops.split()]
    made = [programs(op, count=3, least=0.6)[n % 2] for n, op in enumerate(dict.fromkeys([*THRESHOLDS, *listed]))]
    assert len(made) >= 100
    told = {show(p): found for p in made if (found := verdicts(run_both(p, Task(place=EAGER), Journal(None))))}
    assert not told


def test_integers_are_divided_by_none_that_are_zero() -> None:
    found = drawn([f"divided/{n}" for n in range(160)], {name: OPS[name] for name in ("div", "sum", "mul")}, least=0.99)
    leaves = [{leaf.name: leaf for leaf in p.leaves} for p in found]
    divisors = [held.get(n.args[1]) for p, held in zip(found, leaves, strict=True) for n in p.nodes if n.op == "div"]
    integers = [
        fill(x.values, x.seed, x.dtype, x.shape) for x in divisors if x is not None and not x.type.differentiable
    ]
    assert len(integers) >= 2
    assert all(bool(values.all()) for values in integers)
