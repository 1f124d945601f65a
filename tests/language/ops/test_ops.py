"""The op tables: every entry draws calls that torch accepts, forward and backward, and states torch's own defaults."""

from __future__ import annotations

import functools
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytest
import torch

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.nodes import draw_node
from fuzzer.language.interpret import PROPERTIES, apply
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.spec import REQUIRED, Attribute, Limits, Operand
from fuzzer.language.program import DIFFERENTIABLE, DTYPES, FLOATS, Dtype, Leaf, Node, writes
from fuzzer.language.values import DTYPE_NAMES, fill, real_parts

DRAWS = 10
Tensors = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Single:
    """One op, drawn once: the node and the leaves and values it is applied to."""

    node: Node
    leaves: tuple[Leaf, ...]
    values: dict[str, torch.Tensor]

    def forward(self, node: Node | None = None) -> tuple[dict[str, torch.Tensor], Tensors]:
        """Leaves that require grad where they can, and the results. A leaf that is written is cloned first."""
        spec = OPS[self.node.op]
        fixed = {name for name, operand in zip(self.node.args, spec.operands, strict=False) if operand.fixed}
        leaves = {
            name: value.detach().requires_grad_(DTYPE_NAMES[value.dtype] in DIFFERENTIABLE and name not in fixed)
            for name, value in self.values.items()
        }
        env: dict[str, Any] = dict(leaves)
        written = writes(self.node)
        if written is not None:
            env[written] = torch.empty_strided(env[written].shape, env[written].stride(), dtype=env[written].dtype)
            env[written].copy_(leaves[written])
        apply(node or self.node, env)
        return leaves, tuple(env[name] for name in self.node.outs)

    def gradients(self) -> list[torch.Tensor]:
        leaves, results = self.forward()
        wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
        if not wanted:
            return []  # drawn on integers
        tracked = [r for r in results if r.requires_grad]
        assert tracked, f"{self.node} has no result that carries a gradient"
        ones = [torch.ones_like(r) for r in tracked]
        return [g for g in torch.autograd.grad(tracked, wanted, ones, allow_unused=True) if g is not None]


def finite(t: torch.Tensor) -> torch.Tensor:
    """The tensor, or a complex one's parts, without NaN and infinities."""
    return torch.nan_to_num(real_parts(t))


def draw(name: str, number: int) -> Single:
    """The `number`-th draw of this op, each floating dtype in turn."""
    draft = Draft(random.Random(f"{name} {number}"), Limits(), FLOATS[number % len(FLOATS)])
    node = draw_node(draft, OPS[name])
    return Single(node, tuple(draft.leaves), {leaf.name: draft.env[leaf.name] for leaf in draft.leaves})


@functools.cache
def outcomes(name: str) -> tuple[list[str], bool]:
    """Why draws of this op were rejected, and whether any gradient was not zero. Torch's refusals are of any type."""
    reasons: list[str] = []
    moved = False
    for number in range(DRAWS):
        try:
            single = draw(name, number)
            if OPS[name].differentiable:
                moved |= any(bool((g != 0).any()) for g in single.gradients())
            else:
                single.forward()
        except (Rejected, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            reasons.append(f"{name} {number}: {type(error).__name__}: {str(error).splitlines()[0]}")
    return reasons, moved


@pytest.mark.parametrize("name", OPS)
def test_draws_of_an_op_run_forward_and_backward(name: str) -> None:
    # one refusal in ten draws is what an op with a rejection rate of up to 5 % may show; two are not
    reasons, _ = outcomes(name)
    assert len(reasons) <= 1, reasons


def test_at_most_one_draw_in_a_hundred_is_rejected() -> None:
    reasons = [reason for name in OPS for reason in outcomes(name)[0]]
    assert len(reasons) <= len(OPS) * DRAWS / 100, reasons


def test_every_differentiable_op_moves_some_gradient() -> None:
    still = [name for name, spec in OPS.items() if spec.differentiable and not outcomes(name)[1]]
    assert not still


def test_a_result_tracked_by_an_undifferentiable_op_has_a_zero_gradient() -> None:
    # sign, floor and their like carry a gradient for torch; it must be zero, or the entry hides a derivative
    carrying = 0
    for name, spec in OPS.items():
        if spec.differentiable:
            continue
        for number in range(4):
            leaves, results = draw(name, number).forward()
            tracked = [r for r in results if r.requires_grad]
            if tracked:
                carrying += 1
                wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
                found = torch.autograd.grad(tracked, wanted, [torch.ones_like(r) for r in tracked])
                assert not any(bool((g != 0).any()) for g in found), name
    assert carrying >= 32  # 40, of 33 ops


def defaulted(name: str) -> list[Attribute]:
    """The op's attributes with a default, without split's dim: the number of results was counted for the drawn one."""
    of_split = {"dim"} if name.startswith("split") else set()
    return [a for a in OPS[name].attributes if a.default is not REQUIRED and a.name not in of_split]


@pytest.mark.parametrize("name", list(filter(defaulted, OPS)))
def test_a_default_written_out_gives_what_leaving_it_out_gives(name: str) -> None:
    compared = 0
    for number in range(4):
        single = draw(name, number)
        for attribute in defaulted(name):
            others = tuple((key, value) for key, value in single.node.attrs if key != attribute.name)
            left_out = replace(single.node, attrs=others)
            written = replace(single.node, attrs=(*others, (attribute.name, attribute.default)))
            try:
                torch.default_generator.manual_seed(0)
                _, expected = single.forward(left_out)
                torch.default_generator.manual_seed(0)
                _, results = single.forward(written)
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # the default does not go with the other drawn attributes, or torch has it by omission only
            for a, b in zip(results, expected, strict=True):
                assert torch.equal(finite(a), finite(b)), (attribute.name, single.node)
                compared += 1
    assert compared


def test_every_default_may_be_left_out() -> None:
    # (the counterpart of the test above, which passes over calls that torch refuses)
    stuck = []
    for name, spec in OPS.items():
        optional = [a.name for a in spec.attributes if a.default is not REQUIRED]
        omitted: Counter[str] = Counter()
        for number in range(70):  # a default may be one of many values
            written = {key for key, _ in draw(name, number).node.attrs}
            omitted.update(set(optional) - written)
            if all(omitted[key] for key in optional):
                break
        stuck += [(name, key) for key in optional if not omitted[key]]
    # always written: a mode that is the entry's own, and what makes an op what its entry says it is
    assert {key for _, key in stuck} <= {
        "mode",
        "training",
        "stable",
        "p",
        "hermitian",
        "full_matrices",
        "return_indices",
    }, stuck


def test_every_source_names_a_callable() -> None:
    for spec in OPS.values():
        found = reduce(getattr, spec.source.split(".")[1:], torch)
        assert callable(found) or spec.source in PROPERTIES, spec.source


def test_every_attribute_draws_a_value_that_a_program_may_hold() -> None:
    def legal(value: Any) -> bool:
        if isinstance(value, tuple):
            return all(map(legal, value))
        return value is None or type(value) in (bool, int, float, str, Dtype)

    for name in OPS:
        for number in range(4):
            assert all(legal(value) for _, value in draw(name, number).node.attrs), name


def test_every_operand_has_known_dtypes() -> None:
    for spec in OPS.values():
        for operand in spec.operands:
            assert operand.dtypes == "same" or set(operand.dtypes) <= set(DTYPES), spec.name


def test_indices_of_writes_that_do_not_accumulate_are_distinct() -> None:
    # torch leaves open which of two writes to one place wins, so no entry may ask for it
    looked = 0
    for name in ("scatter", "index_copy", "index_put"):
        for number in range(40):
            single = draw(name, number)
            if dict(single.node.attrs).get("accumulate"):
                continue
            dim = dict(single.node.attrs).get("dim", -1)
            for leaf in single.leaves:
                if leaf.dtype != "i64" or not leaf.shape:
                    continue
                values = fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape)
                along = int(dim) if name == "scatter" else -1  # type: ignore[arg-type]
                ordered = values.sort(along).values
                assert not bool((ordered.diff(dim=along) == 0).any()), (name, leaf)
                looked += 1
    assert looked > 60


def test_only_ops_that_say_so_are_random() -> None:
    for name in [name for name, spec in OPS.items() if not spec.random]:
        single = draw(name, 1)
        torch.default_generator.manual_seed(1)
        _, first = single.forward()
        torch.default_generator.manual_seed(2)
        _, second = single.forward()
        for a, b in zip(first, second, strict=True):
            assert torch.equal(finite(a), finite(b)), name


def test_no_two_entries_say_the_same() -> None:
    # the same callable may stand twice only where the parameters differ
    seen: dict[Any, str] = {}
    for spec in OPS.values():
        shown = tuple((type(p).__name__, p.name) for p in spec.params)
        ranks = tuple(p.rank for p in spec.params if isinstance(p, Operand))
        modes = tuple(value for a in spec.attributes if a.name == "mode" for _, value in _attrs_of(spec.name, a.name))
        key = (
            spec.source,
            spec.then,
            shown,
            ranks,
            modes,
            spec.name if spec.name.startswith(("split", "cross_entropy")) else "",
        )
        assert key not in seen, (spec.name, seen[key])
        seen[key] = spec.name


def _attrs_of(name: str, attribute: str) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in draw(name, 0).node.attrs if key == attribute]


def test_the_tables_are_large_enough() -> None:
    assert len(OPS) >= 150
    assert sum(spec.differentiable for spec in OPS.values()) >= 120


def test_families_are_words_and_scatter_stays_small() -> None:
    assert all(family.isalpha() for family in ops_by_family())
    assert len(ops_by_family()["scatter"]) <= 10
    assert {"slice_scatter", "select_scatter", "diagonal_scatter"} <= {spec.name for spec in ops_by_family()["scatter"]}


# the 27 functions that must be reachable, and the entry that reaches each
NAMED = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "matmul": "matmul",
    "transpose": "transpose",
    "sum": "sum",
    "mean": "mean",
    "max": "amax",
    "min": "amin",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "abs": "abs",
    "clip": "clamp",
    "log10": "log10",
    "log2": "log2",
    "relu": "relu",
    "leaky_relu": "leaky_relu",
    "prelu": "prelu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "gelu": "gelu",
    "softmax": "softmax",
    "pow": "pow",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
}


@pytest.mark.parametrize("function", NAMED)
def test_a_named_function_is_reachable(function: str) -> None:
    assert len(NAMED) == 27
    assert NAMED[function] in OPS


def test_matmul_draws_all_its_forms() -> None:
    forms = set()
    for number in range(200):
        single = draw("matmul", number)
        left, right = (len(single.values[str(name)].shape) for name in single.node.args)
        forms.add((left, right) if max(left, right) < 3 else "batched")
    assert {(2, 2), (2, 1), (1, 2), (1, 1), "batched"} <= forms


def test_prelu_draws_scalar_and_vector_weights() -> None:
    sizes = {draw("prelu", number).leaves[-1].shape for number in range(60)}
    assert (1,) in sizes
    assert any(size > (1,) for size in sizes)


def test_gelu_draws_both_approximations() -> None:
    drawn = {dict(draw("gelu", number).node.attrs).get("approximate", "none") for number in range(30)}
    assert drawn == {"none", "tanh"}


def test_scatter_reduce_draws_every_mode_with_and_without_self() -> None:
    drawn = {
        (attrs["reduce"], attrs.get("include_self", True))
        for attrs in (dict(draw("scatter_reduce", number).node.attrs) for number in range(120))
    }
    assert len(drawn) == 10


def test_softmax_draws_every_dimension() -> None:
    drawn = set()
    for number in range(120):
        single = draw("softmax", number)
        rank = len(single.leaves[0].shape)
        drawn.add((rank, int(dict(single.node.attrs)["dim"]) % max(rank, 1)))  # type: ignore[arg-type]
    assert {(3, 0), (3, 1), (3, 2)} <= drawn
