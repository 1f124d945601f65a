"""(rng, ops, limits) -> Program.

Nodes are drawn one at a time: a family, then an op of it, each as likely; then the op's parameters in table order.
Every node is run at once, in eager, on the values drawn so far (the dry run), so a program that torch refuses is
refused here (`Rejected`), and results that would teach nothing (nonfinite, huge, all zero) are mostly drawn again.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.generation.draft import Draft
from fuzzer.generation.knobs import USUAL, Knobs
from fuzzer.language import settings as compiler_settings
from fuzzer.language.infer import type_of
from fuzzer.language.interpret import apply, cotangents, materialise, run_each, strided, to_function
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.ops.spec import Attribute, Draw, Limits, Operand, OpSpec, log_uniform, writable
from fuzzer.language.program import (
    DIFFERENTIABLE,
    FLOATS,
    NORMAL,
    Argument,
    Attributes,
    Cotangent,
    Leaf,
    Node,
    Output,
    Program,
    Recipe,
    Region,
    Route,
    Shape,
    Statement,
    TensorType,
    contiguous,
    extent,
    map_nodes,
    needed_by_outputs,
    writes,
)
from fuzzer.language.regions import REGIONS, RegionSpec
from fuzzer.language.routes import DEFAULT, ROUTES, Call, acts, draw_route
from fuzzer.language.values import GENERAL, fill, real_parts

# Half precision has fewer elements to hide a fault in, float64 the least rounding: all four are worth their compile.
# Complex ones are drawn only where the limits hold them.
DTYPE_WEIGHTS = {"f32": 0.45, "f64": 0.2, "bf16": 0.2, "f16": 0.15, "c64": 1.4, "c128": 0.6}
# Beyond this, values overflow within a node or two: float16 ends at 65504.
_SANE = {"f64": 1e6, "f32": 1e6, "bf16": 1e6, "f16": 1e3, "c128": 1e6, "c64": 1e6}
# A program whose gradients are zero or noise would spend a compile on nothing: it is drawn again, this often.
_MAX_REDRAWS = 8
# Ops that end a program, by the layout that their backward hands on: broadcast, permuted, or zeros around a part.
# A real loss ends in a reduction; sum's backward is a bare expand (stride 0), mean's divides, and is dense again.
CLOSING = {"sum": 6.0, "mean": 1.0, "permute": 1.0, "transpose": 1.0, "select": 0.5, "narrow": 0.5}
_FAVOURED = 0.5  # the share of nodes that are of the family that the knobs name, where they name one
_EDGED = 0.7  # the share of suitable leaves that hold the numbers at which their op changes its rule
_CLEAR = 400.0  # 10 floors of about 6.4 standard deviations, times 6 because the model allows more than eager shows


class Rejected(ValueError):
    """A draw that torch refused; the message names the op and torch's reason."""


def weighted(rng: random.Random, weights: dict[str, float]) -> str:
    """One of the names, as likely as its weight says."""
    return rng.choices(list(weights), list(weights.values()))[0]


# ---------------------------------------------------------------- leaves


def draw_shape(rng: random.Random, limits: Limits, rank: tuple[int, int]) -> Shape:
    """A shape of a rank in `rank`: sizes log-uniform, 1 and 0 among them, at most limits.max_numel elements."""
    lowest, highest = rank[0], min(rank[1], limits.max_rank)
    ranks = list(range(lowest, max(lowest, highest) + 1))
    dims = rng.choices(ranks, [{0: 1, 1: 3, 2: 6, 3: 5, 4: 2, 5: 0.7}.get(r, 0.2) for r in ranks])[0]
    sizes: list[int] = []
    room = limits.max_numel
    for _ in range(dims):
        size = min(log_uniform(rng, 1, limits.max_size), max(room, 1))
        sizes.append(size)
        room //= max(size, 1)
    if sizes and rng.random() < 0.006:
        sizes[rng.randrange(dims)] = 0
    rng.shuffle(sizes)
    return tuple(sizes)


def draw_layout(rng: random.Random, shape: Shape, dense: float = USUAL.dense) -> tuple[Shape, int]:
    """A stride and an offset: dense in this share, else permuted, with gaps, broadcast (stride 0), or overlapping."""
    kinds = ("dense", "permuted", "gaps", "broadcast", "overlapping")
    kind = rng.choices(kinds, (dense, *((1 - dense) * share for share in (0.45, 0.35, 0.15, 0.05))))[0]
    if not shape or kind == "dense":
        return contiguous(shape), 0
    if kind == "permuted":
        order = list(range(len(shape)))
        if len(shape) in (4, 5) and rng.random() < 0.5:
            order.append(order.pop(1))  # channels_last, of two or three spatial dimensions
        else:
            rng.shuffle(order)
        steps = contiguous(tuple(shape[i] for i in order))
        return tuple(steps[order.index(i)] for i in range(len(shape))), 0
    if kind == "gaps":
        step = rng.choice((1, 2, 3))
        padded = tuple(size + rng.choice((0, 0, 1, 3)) for size in shape)
        return tuple(s * step for s in contiguous(padded)), rng.choice((0, 1, 5))
    return _overlapping_strides(rng, shape) if kind == "overlapping" else broadcast_strides(rng, shape), 0


def _overlapping_strides(rng: random.Random, shape: Shape) -> Shape:
    """Strides of windows into a shorter tensor: one dimension steps less far than what lies inside it reaches."""
    dense = contiguous(shape)
    wide = [i for i, size in enumerate(shape) if size > 1 and dense[i] > 1]
    if not wide:
        return dense
    at = rng.choice(wide)
    return (*dense[:at], rng.randint(1, dense[at] - 1), *dense[at + 1 :])


def broadcast_strides(rng: random.Random, shape: Shape) -> Shape:
    """Strides of a tensor that was expanded along some of its dimensions: stride 0 there, dense elsewhere."""
    expanded = set(rng.sample(range(len(shape)), rng.randint(1, len(shape))))
    dense = contiguous(tuple(1 if i in expanded else size for i, size in enumerate(shape)))
    return tuple(0 if i in expanded else step for i, step in enumerate(dense))


def draw_values(rng: random.Random, dtype: str, suited: Sequence[str]) -> Recipe:
    """A recipe: mostly one that suits the op, else a general one."""
    if dtype == "bool":
        return Recipe("coins")
    if dtype not in DIFFERENTIABLE:
        return Recipe("below", (5,)) if dtype == "u8" else Recipe("integers")
    # wider dtypes end where no value of a real program comes
    suited = [name for name in suited if name != "overflow" or dtype == "f16"]
    if suited and rng.random() < 0.92:
        return Recipe(rng.choice(suited))
    if rng.random() < 0.6:
        return NORMAL
    return Recipe(rng.choices(GENERAL, [0.2 if name == "subnormal" else 1.0 for name in GENERAL])[0])


def _new_leaf(
    draft: Draft,
    dtype: str,
    shape: Shape,
    recipe: Recipe,
    plain: bool = False,
    fixed: bool = False,
    written: bool = False,
) -> str:
    """Add a leaf of this type; sometimes as a view of an existing one with enough storage.

    plain: dense and no view;  fixed: it does not require grad;  written: neither, and it may be written in place.
    """
    rng = draft.rng
    name = f"x{len(draft.leaves)}"
    stride, offset = (contiguous(shape), 0) if plain else draw_layout(rng, shape, draft.knobs.dense)
    floating = dtype in DIFFERENTIABLE
    if written and not writable(TensorType(dtype, shape, stride)):
        stride = contiguous(shape)
    tracked = floating and not fixed and not written and rng.random() < 0.88
    leaf = Leaf(name, dtype, shape, stride, offset, tracked, recipe, rng.randrange(1000))
    taken = draft.written_memory() | ({draft.memory(draft.target)} if draft.target else set())
    bases = [
        base
        for base in draft.leaves
        if base.base is None
        and not written
        and draft.memory(base.name) not in taken
        and (base.dtype, base.values) == (dtype, recipe)
        and extent(base.shape, base.stride, base.offset) >= extent(shape, stride, offset)
    ]
    if bases and floating and not plain and 0 not in shape and rng.random() < 0.25:
        base = rng.choice(bases)
        leaf = replace(leaf, base=base.name, values=NORMAL, seed=0)
        value = torch.as_strided(draft.env[base.name], shape, stride, offset)
    else:
        value = strided(fill(recipe, leaf.seed, dtype, shape), stride, offset)
    if leaf.type.is_complex and not plain and not written and rng.random() < 0.15:
        leaf, value = replace(leaf, conj=True), value.conj()
    draft.leaves.append(leaf)
    draft.env[name], draft.types[name] = value, leaf.type
    if leaf.requires_grad:
        draft.tracked.add(name)
    return name


# ---------------------------------------------------------------- operands


def _draw_written(draft: Draft, operand: Operand, d: Draw) -> str:
    """The name of a value that an in-place op may write, or of a new leaf for it."""
    rng = draft.rng
    candidates = [name for name, t in draft.readable() if operand.admits(d, t, None) and draft.may_write(name)]
    if candidates and (draft.anchor in candidates or rng.random() < 0.9 or not draft.may_write_leaves):
        weights = [_preference(draft, name) for name in candidates]
        return draft.anchor if draft.anchor in candidates else rng.choices(candidates, weights)[0]
    if not draft.may_write_leaves:
        raise Rejected("no value may be written in place")
    dtype = _operand_dtype(draft, operand, d)
    shape = _fresh_shape(draft, operand, d, dtype)
    return _new_leaf(draft, dtype, shape, draw_values(rng, dtype, operand.values), written=True)


def _draw_operand(draft: Draft, operand: Operand, d: Draw, first: bool) -> str:
    """The name of an existing value that may stand here, or of a new leaf."""
    rng = draft.rng
    shape = operand.shape(d) if operand.shape is not None else None
    if first and draft.anchor and operand.admits(d, draft.types[draft.anchor], shape):
        return draft.anchor
    dtype = _operand_dtype(draft, operand, d)
    if operand.recipe is not None:
        assert shape is not None, f"operand {operand.name} has a recipe and no shape"
        # plain: an index repeated by a stride of 0 would make plain scatters ambiguous
        return _new_leaf(draft, dtype, shape, operand.recipe(d), plain=True, fixed=operand.fixed)
    candidates = [name for name, t in draft.readable() if operand.admits(d, t, shape)]
    if candidates and rng.random() < draft.knobs.reuse:
        return rng.choices(candidates, [_preference(draft, name) for name in candidates])[0]
    if shape is None:
        shape = _fresh_shape(draft, operand, d, dtype)
    return _new_leaf(draft, dtype, shape, draw_values(rng, dtype, operand.values))


def _preference(draft: Draft, name: str) -> float:
    """Results that nothing uses yet first, so that programs grow deep; what carries a gradient before what does not."""
    weight = 1.0
    if name.startswith("v"):
        weight *= 4
    if not draft.uses.get(name):
        weight *= 4
    return weight * (3 if name in draft.tracked else 1)


def _operand_dtype(draft: Draft, operand: Operand, d: Draw) -> str:
    dtypes = operand.admitted(d)
    if len(dtypes) == 1 or (draft.dtype in dtypes and draft.rng.random() < 0.9):
        return draft.dtype if draft.dtype in dtypes else dtypes[0]
    allowed = [t for t in dtypes if t not in DIFFERENTIABLE or t in draft.limits.dtypes]
    return draft.rng.choice(allowed or list(dtypes))


def _fresh_shape(draft: Draft, operand: Operand, d: Draw, dtype: str) -> Shape:
    for _ in range(50):
        shape = operand.fresh(d) if operand.fresh is not None else draw_shape(draft.rng, draft.limits, operand.rank)
        t = TensorType(dtype, shape, contiguous(shape))
        if operand.accepts is None or operand.accepts(t):
            return shape
    raise Rejected(f"operand {operand.name}: no shape of rank {operand.rank} was accepted in 50 draws")


def draw_node(draft: Draft, spec: OpSpec) -> Node:
    """One node of this op: its parameters in table order."""
    d, known = Draw(draft.rng, draft.limits if spec.takes_complex else draft.limits.real()), len(draft.leaves)
    args: list[Argument] = []
    attrs: list[tuple[str, Any]] = []
    for parameter in spec.params:
        if isinstance(parameter, Attribute):
            value = parameter.draw(d)
            d.attrs[parameter.name] = value
            if not _same_value(value, parameter.default):
                attrs.append((parameter.name, value))
            continue
        if spec.effects and not args:
            draft.target = _draw_written(draft, parameter, d)
            d.operands.append(draft.types[draft.target])
            args.append(draft.target)
        else:
            args.append(_draw_argument(draft, parameter, d, first=not args))
    draft.target = ""
    _put_boundary_values(draft, zip(spec.operands, args, strict=True), d, known)
    while args and args[-1] is None:
        args.pop()
    count = spec.results(d) if callable(spec.results) else spec.results
    used = sum(len(node.outs) for node in draft.nodes)
    return Node(tuple(f"v{used + i}" for i in range(count)), spec.name, tuple(args), tuple(attrs))


def _put_boundary_values(draft: Draft, drawn: Iterable[tuple[Operand, Argument]], d: Draw, known: int) -> None:
    """Put the numbers at which the op changes its rule into most leaves that were drawn for it, from `known` on."""
    for operand, name in drawn:
        edges = [x for x in operand.edges(d) if isinstance(x, int | float)] if operand.edges else []
        at = next((i for i, leaf in enumerate(draft.leaves) if i >= known and leaf.name == name), None)
        if not edges or at is None or draft.rng.random() >= _EDGED:
            continue
        leaf = replace(draft.leaves[at], values=Recipe("around", tuple(edges)))
        if leaf.base is None and all(other.base != leaf.name for other in draft.leaves):
            draft.leaves[at] = leaf
            draft.env[leaf.name] = strided(
                fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape), leaf.stride, leaf.offset
            )


def _draw_argument(draft: Draft, parameter: Operand, d: Draw, first: bool) -> Argument:
    if parameter.absent and draft.rng.random() < parameter.absent:
        d.operands.append(None)
        return None
    if parameter.count is None:
        name = _draw_operand(draft, parameter, d, first)
        d.operands.append(draft.types[name])
        return name
    names: list[str] = []
    d.operands.append(())
    for _ in range(draft.rng.randint(*parameter.count)):
        names.append(_draw_operand(draft, parameter, d, first and not names))
        d.operands[-1] = tuple(draft.types[name] for name in names)
    return tuple(names)


def _same_value(a: Any, b: Any) -> bool:
    """Equal and of one type: True is not 1 in a program's text."""
    return type(a) is type(b) and a == b


# ---------------------------------------------------------------- the program


def run_node(draft: Draft, node: Node, spec: OpSpec) -> None:
    """The dry run of one node. Raises Rejected where torch refuses it."""
    draft.nodes.append(node)
    with torch.no_grad():
        try:
            apply(node, draft.env)
        except Exception as error:  # torch's refusal is the answer; every type of it occurs
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise Rejected(f"{spec.name}: {reason[0]}") from None
    for name in node.outs:
        draft.types[name] = type_of(draft.env[name])
    if spec.differentiable and any(u in draft.tracked for u in node.uses):
        draft.tracked.update(name for name in _results_requiring_grad(draft, node) if draft.types[name].differentiable)
    draft.count(node)


def _results_requiring_grad(draft: Draft, node: Node) -> Sequence[str]:
    """The results that depend on an operand with a gradient: not all of meshgrid's, and not on reshape_as's second."""
    if writes(node) or (
        len(node.outs) == 1 and all(u in draft.tracked for u in node.uses if draft.types[u].differentiable)
    ):
        return node.outs
    env: dict[str, Any] = {u: draft.env[u].detach().requires_grad_(u in draft.tracked) for u in node.uses}
    apply(node, env)
    return [name for name in node.outs if env[name].requires_grad]


def _has_useful_values(draft: Draft, node: Node) -> bool:
    """Whether the node's floating results are finite, of sane size and not all zero.

    Where a leaf is there to overflow, three of four elements may; where one factor is zero, the product may be.
    """
    recipes = {leaf.values.name for leaf in draft.leaves if leaf.name in node.uses}
    shown = [name for out in node.outs for name in draft.sharing(out)] if writes(node) else node.outs
    # what a write through a view changed is seen in its base
    for name in [name for name in shown if name not in node.outs] or node.outs:
        value = draft.env[name]
        if not draft.types[name].differentiable or value.numel() == 0:
            continue
        if "overflow" in recipes and bool((value.isfinite() & (value != 0)).sum() * 4 > value.numel()):
            continue
        top = float(value.abs().max())
        if not math.isfinite(top) or (top == 0 and "lone_zero" not in recipes) or top > _SANE[draft.types[name].dtype]:
            return False
    return True


def _within_limits(leaf: Leaf, limits: Limits) -> bool:
    """Whether a leaf keeps to the limits: an op's own rules for shapes and dtypes may not know them."""
    return leaf.type.numel <= limits.max_numel and (leaf.dtype not in FLOATS or leaf.dtype in limits.dtypes)


def generate(
    rng: random.Random,
    ops: dict[str, OpSpec] = REAL,
    limits: Limits = Limits(),  # noqa: B008  (a frozen value)
    routes: Sequence[str] = (Route().name,),
    device: str = "cpu",
    fixed: Attributes = (),
    portable: bool = False,
    knobs: Knobs = USUAL,
) -> Program:
    """A program that ran in eager on the CPU. Raises Rejected where torch refused the draw.

    `fixed` settings stand in every program, over what is drawn. A portable one means the same on every device: no
    random numbers, no autocast, which has a list of operators for each, no op whose entry says that it does not. The
    result depends on the arguments alone.
    """
    groups: dict[str, list[OpSpec]] = {}
    drawing = not portable and any(ROUTES[name].draws for name in routes)
    for spec in [s for s in ops.values() if (drawing or not s.random) and (s.portable or not portable)]:
        groups.setdefault(spec.family, []).append(spec)
    with torch.random.fork_rng(devices=[]):  # random ops draw in the dry runs
        torch.default_generator.manual_seed(0)
        for _ in range(_MAX_REDRAWS):
            dtype = knobs.dtype or weighted(rng, {k: w for k, w in DTYPE_WEIGHTS.items() if k in limits.dtypes})
            draft = Draft(rng, limits, dtype, any(ROUTES[name].writes_leaves for name in routes), knobs=knobs)
            _draw_body(draft, groups)
            _close_loose_results(draft, ops)
            program = draw_regions(_finish(draft, routes, device, fixed), rng, portable)
            if _has_detectable_gradient(program):
                break
    return program


def _draw_body(draft: Draft, groups: dict[str, list[OpSpec]]) -> None:
    """Draw nodes up to a drawn number, at least one of which carries a gradient."""
    rng, limits = draft.rng, draft.limits
    lengths = range(1, limits.max_nodes + 1)
    wanted = rng.choices(lengths, [1 / k**draft.knobs.nodes for k in lengths])[0]
    for _ in range(wanted * 4 + 8):
        if len(draft.nodes) >= wanted and any(name.startswith("v") for name in draft.tracked):
            break
        if len(draft.nodes) >= limits.max_nodes:  # full, and nothing in it carries a gradient
            draft.undo((0, 0, frozenset()))
        favoured = draft.knobs.family in groups and rng.random() < _FAVOURED
        spec = rng.choice(groups[draft.knobs.family if favoured else rng.choice(list(groups))])
        if not spec.effects:
            add_node(draft, spec)
        else:
            _prepare_write(draft, groups)
            _add_write(draft, spec)
            draft.anchor = ""


def add_node(draft: Draft, spec: OpSpec) -> bool:
    """Draw and run a node of this op; whether it stayed. Raises Rejected where torch refuses it.

    An op that takes complex numbers may not take all that its entry says of real ones: then it does not stay.
    """
    mark = draft.mark()
    try:
        node = draw_node(draft, spec)
        if all(_within_limits(leaf, draft.limits) for leaf in draft.leaves[mark[0] :]):
            run_node(draft, node, spec)
            if _has_eager_gradient(draft, spec) and (_has_useful_values(draft, node) or draft.rng.random() >= 0.97):
                return True
    except Rejected:
        if not spec.takes_complex:
            raise
    draft.undo(mark)
    draft.target = ""
    return False


def _has_eager_gradient(draft: Draft, spec: OpSpec) -> bool:
    """Whether eager has the gradient of what an op that takes complex numbers has made; of others it is taken to."""
    return not spec.takes_complex or _requires_grad_in_eager(draft) is not None


def _prepare_write(draft: Draft, groups: dict[str, list[OpSpec]]) -> None:
    """Often draw a result for an in-place op to write to, and then a view of it, through which it writes."""
    rng = draft.rng
    results = [name for node in draft.nodes for name in node.outs if name not in draft.dead and draft.may_write(name)]
    ordinary = [family for family, specs in groups.items() if not any(spec.effects for spec in specs)]
    if not results and ordinary and rng.random() < 0.75:
        add_node(draft, rng.choice(groups[rng.choice(ordinary)]))
        results = [name for node in draft.nodes[-1:] for name in node.outs if draft.may_write(name)]
    views = [spec for spec in groups.get("view", ()) if spec.results == 1]  # torch forbids it for views of several
    if results and views and len(draft.nodes) < draft.limits.max_nodes and rng.random() < 0.5:
        draft.anchor = rng.choice(results)
        if add_node(draft, rng.choice(views)):
            draft.anchor = draft.nodes[-1].outs[0]


def _add_write(draft: Draft, spec: OpSpec) -> None:
    """Draw a node of this in-place op, which stays where eager can still compute all gradients."""
    mark = draft.mark()
    try:
        stays = len(draft.nodes) < draft.limits.max_nodes and add_node(draft, spec)
    except Rejected:
        stays = False
    shared = draft.sharing(draft.nodes[-1].outs[0]) if stays else []
    tracked = _requires_grad_in_eager(draft) if stays else None
    if tracked is None:
        draft.target = ""
        draft.undo(mark)
    else:
        # a base carries the gradient of what was written through its view
        draft.tracked |= {name for name in shared if name in tracked and spec.differentiable}


def _requires_grad_in_eager(draft: Draft) -> set[str] | None:
    """The names that require grad in eager; None where an in-place node makes it raise.

    In the forward: a view of several, a partial overlap. In the backward: what it needs has been overwritten.
    """
    leaves = materialise(draft.leaves)
    env: dict[str, Any] = dict(leaves)
    wanted = [leaves[leaf.name] for leaf in draft.leaves if leaf.requires_grad]
    try:
        for node in draft.nodes:
            apply(node, env)
        results = {name: env[name] for node in draft.nodes for name in node.outs if env[name].requires_grad}
        if results and wanted:
            ones = [torch.ones_like(t) for t in results.values()]
            torch.autograd.grad(list(results.values()), wanted, ones, allow_unused=True)
    except Exception:  # torch's refusal, of whatever type, is the answer
        return None
    return {name for name, t in env.items() if isinstance(t, torch.Tensor) and t.requires_grad}


def _close_loose_results(draft: Draft, ops: dict[str, OpSpec]) -> None:
    """End some of the loose results with an op whose backward hands on a cotangent of a particular layout.

    On the autograd route declared layouts do not reach the backward graph (AOTAutograd makes tangents match what it
    traced): there, stride 0 comes from a sum or mean at the end, a permuted cotangent from a permutation.
    """
    closing = {name: weight for name, weight in CLOSING.items() if name in ops}
    for name in _loose_results(draft) if closing else ():
        if (
            name in draft.tracked
            and len(draft.nodes) < draft.limits.max_nodes
            and draft.rng.random() < draft.knobs.closed
        ):
            spec, mark = ops[weighted(draft.rng, closing)], draft.mark()
            draft.anchor = name
            node = draw_node(draft, spec)
            draft.anchor = ""
            if name not in node.uses:
                draft.undo(mark)
                continue
            run_node(draft, node, spec)
            if not (_has_eager_gradient(draft, spec) and _has_useful_values(draft, node)):
                draft.undo(mark)


def _loose_results(draft: Draft) -> list[str]:
    """Results that no node uses, or none since they were written to through another name."""
    names = [name for node in draft.nodes for name in node.outs]
    return [name for name in names if name not in draft.dead and not draft.uses.get(name)]


def _has_detectable_gradient(program: Program) -> bool:
    """Whether a wrong gradient could show: the dry run of the backward.

    Some element of some gradient must exceed CLEAR times the root mean square difference between the gradient as
    eager computes it and the same in float64, from the same numbers, where both are finite. Where
    the program has no float64 form, nonzero is enough.
    """
    own = dry_gradients(program)
    if own is None:
        return True  # refused: the reference side will say so
    drawing = any(OPS[node.op].random for node in program.nodes)  # float64 would draw other numbers
    wide = None if drawing else dry_gradients(program, _to_double)
    for name, gradient in own.items():
        if gradient is None or not gradient.numel():
            continue
        g = real_parts(gradient).double()
        exact = None if wide is None or wide[name] is None else real_parts(wide[name])
        off = torch.zeros_like(g) if exact is None else g - exact
        finite = torch.isfinite(g) & torch.isfinite(off)
        noise = off[finite].square().mean().sqrt()
        if bool((g[finite].abs() > _CLEAR * noise).any()):
            return True
    return False


def _to_double(t: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128."""
    return t.to(torch.promote_types(t.dtype, torch.float64))


def dry_gradients(
    program: Program, change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> dict[str, torch.Tensor | None] | None:
    """Eager's gradients, of leaves and cotangents with `change` applied to those that float or are complex."""

    def changed(t: torch.Tensor) -> torch.Tensor:
        rounded = t.is_floating_point() or t.is_complex()
        return change(t.detach()).requires_grad_(t.requires_grad) if rounded else t

    try:
        leaves = {name: changed(t) for name, t in materialise(program.leaves).items()}
        seeds = [changed(t) for t in cotangents(program)]
        return DEFAULT.run(Call(program, to_function(program), leaves, seeds)).gradients
    except Exception:  # torch's refusal, of whatever type, is the answer
        return None


def _finish(draft: Draft, routes: Sequence[str], device: str, fixed: Attributes) -> Program:
    """Choose outputs and cotangents, the route and the settings."""
    rng = draft.rng
    writes_leaf = any(draft.memory(leaf.name) in draft.written_memory() for leaf in draft.leaves)
    drawing = any(OPS[node.op].random for node in draft.nodes)
    fitting = [name for name in routes if ROUTES[name].writes_leaves or not writes_leaf]
    route = draw_route(rng, [name for name in fitting if ROUTES[name].draws or not drawing])
    loose = _loose_results(draft)
    used = [name for name, uses in draft.uses.items() if uses and name.startswith("v") and name not in draft.dead]
    inner = [name for name in used if rng.random() < 0.08]
    outputs: list[Output] = []
    for name in [*loose, *inner]:
        if name in draft.tracked:
            outputs.append(Output(name, draw_cotangent(draft, draft.types[name], route.name)))
        elif draft.types[name].dtype != "i64" and rng.random() < 0.5:
            # i64 results are mostly positions, and which of several equal elements is named is nobody's promise
            outputs.append(Output(name))
    if not any(o.cotangent for o in outputs):
        alive = [name for name in draft.types if name.startswith("v") and name not in draft.dead]
        tracked = [name for name in alive if name in draft.tracked]
        if not tracked:
            raise Rejected("no result carries a gradient")
        name = tracked[-1]
        outputs = [o for o in outputs if o.value != name]
        outputs.append(Output(name, draw_cotangent(draft, draft.types[name], route.name)))
    if rng.random() < 0.04:
        _new_leaf(draft, draft.dtype, draw_shape(rng, draft.limits, (0, 3)), NORMAL)
    acting = [setting for setting in compiler_settings.SETTINGS if acts(setting, device, route.name)]
    drawn = dict(compiler_settings.draw_settings(rng, acting, draft.knobs.settings)) | dict(fixed)
    leaves = _draw_parameters(rng, draft.leaves) if ROUTES[route.name].module else draft.leaves
    if any(leaf.parameter for leaf in leaves) and rng.random() < 0.5:
        drawn.setdefault("inductor.freezing", True)  # acts on parameters alone
    program = Program(
        tuple(leaves),
        tuple(draft.nodes),
        tuple(outputs),
        route,
    )
    program = without_dead_nodes(program)
    if any(OPS[node.op].random for node in program.nodes):
        # functorch's settings decide what is recomputed, and so what is drawn again
        harmless = {name: value for name, value in drawn.items() if not name.startswith("functorch")}
        drawn = harmless | dict(fixed) | dict([compiler_settings.SAME_DRAWS])
    return replace(program, settings=tuple(sorted(drawn.items())))


def draw_regions(program: Program, rng: random.Random, portable: bool = False) -> Program:
    """Some programs with runs of their statements in regions, which may nest; as it was where none can stand."""
    for kind in ROUTES[program.route.name].regions:
        if portable and not REGIONS[kind].portable:
            continue
        while rng.random() < REGIONS[kind].share:
            attrs = tuple((name, rng.choice(values)) for name, values in REGIONS[kind].attributes.items())
            region = Region(kind, attrs, program.body)
            bodies = wrap(rng, program.body, region), (region,)
            if changes_no_type(program, region):
                continue
            for body in bodies:
                enclosed = _with_matching_cotangents(program, replace(program, body=body), REGIONS[kind])
                if enclosed is not None:
                    program = enclosed
                    break
    return program


def changes_no_type(program: Program, region: Region) -> bool:
    """Whether this region around the whole body changes no type though that is its purpose; then it changes none
    around a part either, since every statement was tried in it on operands of the types that it has outside.
    """
    plain = all(isinstance(s, Node) for s in program.body)
    if not plain or REGIONS[region.kind].recomputes:
        return False
    types = _eager_types(program)
    return types is not None and types == _eager_types(replace(program, body=(region,)))


def _eager_types(program: Program) -> dict[str, TensorType] | None:
    """The type of every value where the program runs in eager; None where it raises.

    Fake tensors (`infer`) would give the same types in ten times the time.
    """
    env: dict[str, Any] = dict(materialise(program.leaves))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        try:
            run_each(program.body, lambda node: apply(node, env))
            return {name: type_of(env[name]) for node in program.nodes for name in node.outs}
        except Exception:  # torch's refusal, of whatever type, is the answer
            return None


def wrap(rng: random.Random, body: tuple[Statement, ...], like: Region) -> tuple[Statement, ...]:
    """A run of the body's statements in this region; half of the time inside a region that is there already."""
    inner = [(i, s) for i, s in enumerate(body) if isinstance(s, Region)]
    if inner and rng.random() < 0.5:
        i, region = rng.choice(inner)
        return (*body[:i], replace(region, body=wrap(rng, region.body, like)), *body[i + 1 :])
    start = rng.randrange(len(body))
    end = rng.randint(start + 1, len(body))
    return (*body[:start], replace(like, body=body[start:end]), *body[end:])


def _with_matching_cotangents(program: Program, enclosed: Program, spec: RegionSpec) -> Program | None:
    """The enclosed program with each cotangent of its output's dtype.

    None where the region breaks a type, changes none though that is its purpose, or would read anew what was
    overwritten meanwhile (eager's checkpoint keeps its operands as they are, not as they were).
    """
    if spec.recomputes and any(OPS[node.op].effects or OPS[node.op].random for node in enclosed.nodes):
        return None
    before, types = _eager_types(program), _eager_types(enclosed)
    if before is None or types is None or (types == before and not spec.recomputes):
        return None
    outputs = (
        o if o.cotangent is None else replace(o, cotangent=replace(o.cotangent, dtype=types[o.value].dtype))
        for o in enclosed.outputs
    )
    found = replace(enclosed, outputs=tuple(outputs))
    return None if dry_gradients(found) is None else found


def _draw_parameters(rng: random.Random, leaves: Sequence[Leaf]) -> list[Leaf]:
    """In one of five programs each floating leaf is, as likely as not, a parameter."""
    if rng.random() < 0.8:
        return list(leaves)
    return [replace(leaf, parameter=leaf.type.differentiable and rng.random() < 0.5) for leaf in leaves]


def draw_cotangent(draft: Draft, t: TensorType, route: str) -> Cotangent:
    """A cotangent of an output of this type: dense where the route does not show layouts to the backward."""
    rng = draft.rng
    stride, offset = contiguous(t.shape), 0
    if ROUTES[route].shows_layouts and t.shape:
        kind = rng.choices(("dense", "any", "broadcast"), (0.35, 0.35, 0.3))[0]
        if kind != "dense":
            stride, offset = (broadcast_strides(rng, t.shape), 0) if kind == "broadcast" else draw_layout(rng, t.shape)
    values = rng.choices((NORMAL, Recipe("ones"), Recipe("integers"), Recipe("zeros")), (0.6, 0.2, 0.17, 0.03))[0]
    return Cotangent(t.dtype, t.shape, stride, values, rng.randrange(1000), offset)


def without_dead_nodes(program: Program) -> Program:
    """Without the nodes that no output needs. One unused leaf stays: it is part of what is tried."""
    kept, live = needed_by_outputs(program)
    used = live | {leaf.base for leaf in program.leaves if leaf.base is not None}
    extra = [leaf.name for leaf in program.leaves if leaf.name not in used][:1]
    leaves = tuple(leaf for leaf in program.leaves if leaf.name in used or leaf.name in extra)
    return replace(program, leaves=leaves, body=map_nodes(program.body, lambda n: n if n.outs in kept else None))
