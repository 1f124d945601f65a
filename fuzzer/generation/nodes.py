"""One node, drawn in the order of its op's table and run at once on the values drawn so far."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.shapes import draw_layout, draw_long_shape, draw_shape, wished_layout
from fuzzer.generation.wish import TRIES, can_lie
from fuzzer.language.classes import main_operand
from fuzzer.language.infer import type_of
from fuzzer.language.interpret import apply, strided
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import LEAST_LARGE, NEAR_ENDS, Attribute, Draw, Limits, Operand, OpSpec
from fuzzer.language.program import (
    DIFFERENTIABLE,
    FLOATS,
    INTEGERS,
    NORMAL,
    Argument,
    Dtype,
    Leaf,
    Node,
    Recipe,
    Shape,
    TensorType,
    contiguous,
    extent,
    writable,
    writes,
)
from fuzzer.language.values import ARANGE, AROUND, ENDS, GENERAL, NEAR, POSITIONS, SPECIAL, fill

_SPECIAL = 0.04  # the share of floating leaves that hold infinities, NaN, zeros of either sign, huge numbers
_MATRICES = frozenset(("separated", "definite", "near_singular"))  # torch refuses infinities and NaN in these
_CONSTANT = 0.04  # the share of new floating operands that are constants made in the graph
_LATER = ("", AROUND, ENDS, NEAR, POSITIONS)  # wishes that are no recipe, or one whose arguments are not known yet
_USUAL_DTYPE = 0.85  # the share of operands that have the program's own dtype, where they may have it
_REUSED = 0.6  # the share of operands that are values drawn before where one fits; others are new leaves
_EDGED = 0.7  # the share of suitable leaves that hold the numbers at which their op changes its rule
_ENDED = 0.1  # the share of suitable leaves that hold the ends of their op's domain
_NEAR = 0.1  # the share of new integers near the ends of a type, and of those that count 1, 2, 3, ...
_POSITIONS = 0.1  # the share of new operands of int64 that are positions, counted in the graph
# Families whose ops take time and memory in proportion to their operands: they may read a long one.
LINEAR = frozenset(
    """activation binary comparison constant copy dropout inplace layout normalisation pointwise reduction scan softmax
    sort ternary view""".split()
)
_SQUARE = ("diag", "diag_embed", "diagflat")  # of these families, but a result has the square of an operand's elements
# Values beyond this overflow within a node or two: float16 ends at 65504.
_SANE = {"f64": 1e6, "f32": 1e6, "bf16": 1e6, "f16": 1e3, "c128": 1e6, "c64": 1e6, "i64": 1e6, "i32": 1e6}


def weighted(rng: random.Random, weights: dict[str, float]) -> str:
    """One of the names, as likely as its weight says."""
    return rng.choices(list(weights), list(weights.values()))[0]


def draw_values(rng: random.Random, dtype: str, suited: Sequence[str], divisor: bool = False) -> Recipe:
    """A recipe: mostly one that suits the op, else a general one; divisor: an integer is not 0."""
    if dtype == "bool":
        return Recipe("coins")
    if dtype not in DIFFERENTIABLE:
        return _draw_integers(rng, dtype, divisor)
    if rng.random() < _SPECIAL and _MATRICES.isdisjoint(suited):
        return Recipe(rng.choice(SPECIAL))
    # no value of a real program reaches the end of wider dtypes
    suited = [name for name in suited if name != "overflow" or dtype == "f16"]
    if suited and rng.random() < 0.92:
        return Recipe(rng.choice(suited))
    if rng.random() < 0.6:
        return NORMAL
    return Recipe(rng.choices(GENERAL, [0.2 if name == "subnormal" else 1.0 for name in GENERAL])[0])


def _draw_integers(rng: random.Random, dtype: str, divisor: bool) -> Recipe:
    """Small integers, mostly of both signs; else 1 to 100, -100 to -1, 1, 2, 3, ... or near the end of a type. divisor:
    never 0."""
    if dtype in NEAR_ENDS and rng.random() < _NEAR:
        return _near(rng, dtype)
    if not divisor and rng.random() < _NEAR:  # a narrow type wraps
        return Recipe(ARANGE)
    if rng.random() < 0.6 and not divisor:
        return Recipe("below", (5,)) if dtype == "u8" else Recipe("integers")
    return Recipe("between", (1, 100) if dtype == "u8" or rng.random() < 0.5 else (-100, -1))


def _near(rng: random.Random, dtype: str) -> Recipe:
    """Integers near the end of this type or of a narrower one."""
    return Recipe(NEAR, (rng.choice(NEAR_ENDS[dtype]),))


def new_leaf(
    draft: Draft,
    dtype: str,
    shape: Shape,
    recipe: Recipe,
    plain: bool = False,
    fixed: bool = False,
    written: bool = False,
    layout: str = "",
) -> str:
    """Add a leaf of this type; sometimes as a view of an existing leaf with enough storage.

    plain: dense and no view;  fixed: it does not require grad;  written: neither, and it may be written in place;
    layout: the wished class of layout.
    """
    rng = draft.rng
    name = f"x{len(draft.leaves)}"
    if layout and not plain:
        stride, offset = wished_layout(rng, shape, layout, TRIES)
    else:
        stride, offset = (contiguous(shape), 0) if plain else draw_layout(rng, shape)
    floating = dtype in DIFFERENTIABLE
    if written and not writable(TensorType(dtype, shape, stride)):
        stride = contiguous(shape)
    tracked = floating and draft.gradient and not fixed and not written and rng.random() < 0.88
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


def share_leaf(draft: Draft, name: str) -> None:
    """Add a leaf of one dimension in the memory of another leaf: every element from some place on, or every second."""
    rng = draft.rng
    base = next(leaf for leaf in draft.leaves if leaf.name == name)
    offset, step = rng.randint(0, 1), rng.randint(1, 2)
    shape = ((extent(base.shape, base.stride, 0) - offset + step - 1) // step,)
    leaf = Leaf(f"x{len(draft.leaves)}", base.dtype, shape, (step,), base.offset + offset, False, base=name)
    draft.leaves.append(leaf)
    draft.env[leaf.name] = torch.as_strided(draft.env[name], shape, leaf.stride, leaf.offset)
    draft.types[leaf.name] = leaf.type


def draw_node(draft: Draft, spec: OpSpec) -> Node:
    """One node of this op, its parameters drawn in table order."""
    d, known = Draw(draft.rng, draft.limits if spec.takes_complex else draft.limits.real()), len(draft.leaves)
    draft.linear = spec.family in LINEAR and spec.name not in _SQUARE
    args: list[Argument] = []
    attrs: list[tuple[str, Any]] = []
    for parameter in spec.params:
        if isinstance(parameter, Attribute):
            value = draft.wish.attribute(parameter, d) if draft.wish else parameter.draw(d)
            if draft.wish is not None and not draft.wish.keeps(parameter, value, d):
                raise Rejected(f"{spec.name}: {parameter.name} is not {draft.wish.attributes[parameter.name]}")
            d.attrs[parameter.name] = value
            if not same_value(value, parameter.default):
                attrs.append((parameter.name, value))
            continue
        if spec.effects and not args:
            draft.target = _draw_written(draft, parameter, d)
            d.operands.append(draft.types[draft.target])
            args.append(draft.target)
        else:
            args.append(_draw_argument(draft, parameter, d, first=not args))
        read = args[-1] if isinstance(args[-1], tuple) else (args[-1],)
        d.tracked |= any(name in draft.tracked for name in read)
    draft.target = ""
    _put_boundary_values(draft, zip(spec.operands, args, strict=True), d, known)
    while args and args[-1] is None:
        args.pop()
    count = spec.results(d) if callable(spec.results) else spec.results
    used = sum(len(node.outs) for node in draft.nodes)
    return Node(tuple(f"v{used + i}" for i in range(count)), spec.name, tuple(args), tuple(attrs))


def _draw_argument(draft: Draft, parameter: Operand, d: Draw, first: bool) -> Argument:
    place = len(d.operands)
    asked = draft.wish is not None and draft.wish.asks_for(place)
    if parameter.absent and draft.rng.random() < parameter.absent and not asked:
        d.operands.append(None)
        return None
    if parameter.count is None:
        asked_for = _take_given(draft, parameter, d) or _draw_wished(draft, parameter, d, place)
        name = asked_for or _draw_operand(draft, parameter, d, first)
        d.operands.append(draft.types[name])
        return name
    names: list[str] = []
    d.operands.append(())
    for _ in range(draft.rng.randint(*parameter.count)):
        wished = _take_given(draft, parameter, d) or _draw_wished(draft, parameter, d, place)
        names.append(wished or _draw_operand(draft, parameter, d, first and not names))
        d.operands[-1] = tuple(draft.types[name] for name in names)
    return tuple(names)


def _take_given(draft: Draft, operand: Operand, d: Draw) -> str:
    """The first of the values that the node shall read that fits this operand; "" where none fits."""
    fitting = [n for n in draft.given if operand.recipe is None and _admits(draft, operand, d, n, None)]
    draft.given = tuple(name for name in draft.given if name not in fitting[:1])
    return fitting[0] if fitting else ""


def _draw_wished(draft: Draft, operand: Operand, d: Draw, place: int) -> str:
    """The name of a value as the draft's wish describes it for this operand; "" where there is no wish for it."""
    wish, rng = draft.wish, draft.rng
    if wish is None or operand.recipe is not None:
        return ""
    if wish.link and place == wish.reads:
        for shape in [operand.shape(d) for _ in range(TRIES)] if operand.shape is not None else [None]:
            linked = [name for name, _ in draft.readable() if name in draft.linked]
            fitting = [name for name in linked if _admits(draft, operand, d, name, shape)]
            if fitting:
                return rng.choice(fitting)
    layout, recipe = wish.layout_at(place), wish.values_at(place)
    dtype = wish.dtype if place == main_operand(OPS[wish.op]) and wish.dtype in operand.admitted(d) else ""
    # leave room for later operands that have to fit it
    alike = draft.types[draft.linked[0]].shape if wish.link and place < wish.reads and draft.linked else None
    if not (layout or recipe or dtype or alike):
        return ""
    dtype = dtype or _operand_dtype(draft, operand, d)
    if operand.shape is None and not (layout or recipe or alike) and rng.random() < _REUSED:
        known = [n for n, t in draft.readable() if t.dtype == dtype and _admits(draft, operand, d, n, None)]
        if known:
            return rng.choices(known, [_preference(draft, name) for name in known])[0]
    shape = _wished_shape(draft, operand, d, TensorType(dtype, alike, contiguous(alike)) if alike else None, layout)
    if recipe == POSITIONS and (positions := _draw_positions(draft, shape)):
        return positions
    values = _wished_values(rng, dtype, recipe) or draw_values(rng, dtype, operand.values, operand.divisor)
    return new_leaf(draft, dtype, shape, values, fixed=_untracked(draft, operand), layout=layout)


def _wished_values(rng: random.Random, dtype: str, recipe: str) -> Recipe | None:
    """The wished recipe, where one of this dtype can be drawn before the other parameters are."""
    if recipe == NEAR and dtype in NEAR_ENDS:
        return _near(rng, dtype)
    if recipe == ARANGE and dtype in INTEGERS:
        return Recipe(recipe)
    return Recipe(recipe) if dtype in DIFFERENTIABLE and recipe not in _LATER else None


def _admits(draft: Draft, operand: Operand, d: Draw, name: str, shape: Shape | None) -> bool:
    """Whether a value may be this operand; `shape` is the exact shape drawn for it, if any."""
    return operand.admits(d, draft.types[name], shape) and not (name in draft.tracked and _untracked(draft, operand))


def _untracked(draft: Draft, operand: Operand) -> bool:
    """Whether an operand may not depend on a leaf that requires grad."""
    return operand.fixed or (draft.wish is not None and draft.wish.wants_no_elements())


def _wished_shape(draft: Draft, operand: Operand, d: Draw, alike: TensorType | None, layout: str) -> Shape:
    """A shape for an operand: that of `alike`, where allowed; else one that can have this layout, if some draws give
    one."""
    if alike is not None and operand.shape is None and operand.admits(d, alike, None) and can_lie(alike.shape, layout):
        return alike.shape
    for _ in range(TRIES):
        shape = operand.shape(d) if operand.shape is not None else _fresh_shape(draft, operand, d, draft.dtype)
        if can_lie(shape, layout):
            return shape
    # a row that draws matrices may take stacks of them, and only these can have some layouts
    stacked = (draft.rng.randint(1, 3), draft.rng.randint(2, 3), *shape[-2:])
    t = TensorType(draft.dtype, stacked, contiguous(stacked))
    return stacked if operand.shape is None and can_lie(stacked, layout) and operand.admits(d, t, None) else shape


def _draw_operand(draft: Draft, operand: Operand, d: Draw, first: bool) -> str:
    """The name of an existing value that may be this operand, or of a new leaf."""
    rng = draft.rng
    shape = operand.shape(d) if operand.shape is not None else None
    if shape is None and draft.given:  # operands before the values that are to meet have their sizes
        shape = draft.types[draft.given[0]].shape
    if first and draft.anchor and _admits(draft, operand, d, draft.anchor, shape):
        return draft.anchor
    dtype = _operand_dtype(draft, operand, d)
    if operand.recipe is not None:
        assert shape is not None, f"operand {operand.name} has a recipe and no shape"
        # plain: an index repeated by a stride of 0 would make plain scatters ambiguous
        return new_leaf(draft, dtype, shape, operand.recipe(d), plain=True, fixed=operand.fixed)
    most = draft.limits.max_numel * (draft.limits.long if draft.linear else 1)
    candidates = [n for n, t in draft.readable() if _admits(draft, operand, d, n, shape) and t.numel <= most]
    if operand.divisor:
        candidates = [n for n in candidates if draft.types[n].differentiable or bool(draft.env[n].all())]
    if candidates and rng.random() < _REUSED:
        return rng.choices(candidates, [_preference(draft, name) for name in candidates])[0]
    if shape is None:
        shape = _fresh_shape(draft, operand, d, dtype)
    if dtype == "i64" and rng.random() < _POSITIONS and (positions := _draw_positions(draft, shape)):
        return positions
    if constant := _draw_constant(draft, dtype, shape):
        return constant
    values = draw_values(rng, dtype, operand.values, operand.divisor)
    return new_leaf(draft, dtype, shape, values, fixed=_untracked(draft, operand))


def _draw_positions(draft: Draft, shape: Shape) -> str:
    """The name of new positions 1, 2, 3, ... along a dimension, the running sum of a tensor of ones; "" where they have
    no room."""
    if not (draft.counting and shape and len(draft.nodes) + len(draft.counting) < draft.limits.max_nodes):
        return ""
    sources = [leaf.name for leaf in draft.leaves if leaf.name not in draft.dead]
    sources = sources or [new_leaf(draft, draft.dtype, shape, NORMAL)]
    ones, running_sum = draft.counting
    count = sum(len(node.outs) for node in draft.nodes)
    made, sums = f"v{count}", f"v{count + 1}"
    attrs = (("size", shape), ("dtype", Dtype("i64")))
    run_node(draft, Node((made,), ones.name, (draft.rng.choice(sources),), attrs), ones)
    run_node(draft, Node((sums,), running_sum.name, (made,), (("dim", draft.rng.randrange(len(shape))),)), running_sum)
    return sums


def _draw_constant(draft: Draft, dtype: str, shape: Shape) -> str:
    """The name of a new constant of this type, made from a leaf; "" where none is drawn."""
    sources = [leaf.name for leaf in draft.leaves if leaf.type.differentiable and leaf.name not in draft.dead]
    fills = [spec for spec in draft.fills if spec.name.startswith("new_")]
    room = len(draft.nodes) + 1 < draft.limits.max_nodes
    if not (sources and fills and room and dtype in DIFFERENTIABLE and draft.rng.random() < _CONSTANT):
        return ""
    spec, x = draft.rng.choice(fills), draft.rng.choice(sources)
    d = Draw(draft.rng, draft.limits, [draft.types[x]])
    drawn = {a.name: shape if a.name == "size" else a.draw(d) for a in spec.attributes}
    drawn["dtype"] = None if draft.types[x].dtype == dtype else Dtype(dtype)
    attrs = tuple((a.name, drawn[a.name]) for a in spec.attributes if not same_value(drawn[a.name], a.default))
    node = Node((f"v{sum(len(other.outs) for other in draft.nodes)}",), spec.name, (x,), attrs)
    run_node(draft, node, spec)
    return node.outs[0]


def _draw_written(draft: Draft, operand: Operand, d: Draw) -> str:
    """The name of a value that an in-place op may write, or of a new leaf for it."""
    rng = draft.rng
    candidates = [name for name, t in draft.readable() if operand.admits(d, t, None) and draft.may_write(name)]
    asked = bool(draft.wish and draft.wish.layout_at(0))
    own = draft.wish is not None and draft.may_write_leaves and (asked or rng.random() < 0.5)  # suits the wish
    if candidates and not own and (draft.anchor in candidates or rng.random() < 0.9 or not draft.may_write_leaves):
        weights = [_preference(draft, name) for name in candidates]
        return draft.anchor if draft.anchor in candidates else rng.choices(candidates, weights)[0]
    if not draft.may_write_leaves:
        raise Rejected("no value may be written in place")
    dtype, layout = _operand_dtype(draft, operand, d), draft.wish.layout_at(0) if draft.wish else ""
    shape = _wished_shape(draft, operand, d, None, layout)
    return new_leaf(draft, dtype, shape, draw_values(rng, dtype, operand.values), written=True, layout=layout)


def _preference(draft: Draft, name: str) -> float:
    """Prefers unread results, so that programs grow deep; then values with a gradient to those without."""
    weight = 1.0
    if name.startswith("v"):
        weight *= 4
    if not draft.uses.get(name):
        weight *= 4
    return weight * (3 if name in draft.tracked else 1)


def _operand_dtype(draft: Draft, operand: Operand, d: Draw) -> str:
    dtypes = operand.admitted(d)
    if len(dtypes) == 1 or (draft.dtype in dtypes and draft.rng.random() < _USUAL_DTYPE):
        return draft.dtype if draft.dtype in dtypes else dtypes[0]
    allowed = [t for t in dtypes if t not in DIFFERENTIABLE or t in draft.limits.dtypes] or list(dtypes)
    kinds = [kind for kind in (DIFFERENTIABLE, INTEGERS, ("bool",)) if not set(kind).isdisjoint(allowed)]
    kind = draft.rng.choice(kinds)
    return draft.rng.choice([t for t in allowed if t in kind])


def _fresh_shape(draft: Draft, operand: Operand, d: Draw, dtype: str) -> Shape:
    if draft.long and draft.linear and not d.operands and operand.fresh is None and operand.rank[1] > 0:
        draft.long, shape = False, draw_long_shape(draft.rng, draft.limits, operand.rank)
        if operand.accepts is None or operand.accepts(TensorType(dtype, shape, contiguous(shape))):
            return shape
    for _ in range(50):
        shape = operand.fresh(d) if operand.fresh is not None else draw_shape(draft.rng, draft.limits, operand.rank)
        t = TensorType(dtype, shape, contiguous(shape))
        if operand.accepts is None or operand.accepts(t):
            return shape
    raise Rejected(f"operand {operand.name}: no shape of rank {operand.rank} was accepted in 50 draws")


def _put_boundary_values(draft: Draft, drawn: Iterable[tuple[Operand, Argument]], d: Draw, known: int) -> None:
    """Put the numbers at which the op changes its formula into most leaves that were drawn for it, from `known` on, and
    the ends of its domain into some."""
    for place, (operand, name) in enumerate(drawn):
        at = next((i for i, leaf in enumerate(draft.leaves) if i >= known and leaf.name == name), None)
        if at is None or not draft.leaves[at].type.differentiable:
            continue
        recipe = _boundary_values(draft, operand, d, place)
        if recipe is None:
            continue
        leaf = replace(draft.leaves[at], values=recipe)
        if leaf.base is None and all(other.base != leaf.name for other in draft.leaves):
            draft.leaves[at] = leaf
            draft.env[leaf.name] = strided(
                fill(leaf.values, leaf.seed, leaf.dtype, leaf.shape), leaf.stride, leaf.offset
            )


def _boundary_values(draft: Draft, operand: Operand, d: Draw, place: int) -> Recipe | None:
    """The numbers at the edges of an operand or at the ends of its domain, as wished, else by their shares."""
    wished = draft.wish.values if draft.wish else ""
    if draft.wish is not None and operand.edges and draft.wish.decides():
        wished = AROUND
    if operand.edges and (wished == AROUND or (not wished and draft.rng.random() < _EDGED)):
        edges = operand.edges(d)
        numbers = () if isinstance(edges, Recipe) else tuple(x for x in edges if isinstance(x, int | float))
        if isinstance(edges, Recipe) or numbers:
            return edges if isinstance(edges, Recipe) else Recipe(AROUND, numbers)
    asked = draft.wish is not None and draft.wish.values_at(place) == ENDS
    if operand.domain and (asked or (not wished and draft.rng.random() < _ENDED)):
        return Recipe(ENDS, operand.domain(d) if callable(operand.domain) else operand.domain)
    return None


def same_value(a: Any, b: Any) -> bool:
    """Equal and of one type: True is not 1 in a program's text."""
    return type(a) is type(b) and a == b


def run_node(draft: Draft, node: Node, spec: OpSpec) -> None:
    """The dry run of one node. Raises Rejected where torch refuses it."""
    draft.nodes.append(node)
    draft.announced(node.outs)
    with torch.no_grad():
        try:
            apply(node, draft.env)
        except Exception as error:  # torch's refusal may have any type
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise Rejected(f"{spec.name}: {reason[0]}") from None
    for name in node.outs:
        draft.types[name] = type_of(draft.env[name])
    if spec.differentiable and any(u in draft.tracked for u in node.uses):
        draft.tracked.update(name for name in _results_requiring_grad(draft, node) if draft.types[name].differentiable)
    draft.count(node)


def _results_requiring_grad(draft: Draft, node: Node) -> Sequence[str]:
    """The results that depend on an operand with a gradient: not all results of meshgrid do, nor reshape_as on its
    second operand."""
    if writes(node) or (
        len(node.outs) == 1 and all(u in draft.tracked for u in node.uses if draft.types[u].differentiable)
    ):
        return node.outs
    env: dict[str, Any] = {u: draft.env[u].detach().requires_grad_(u in draft.tracked) for u in node.uses}
    apply(node, env)
    return [name for name in node.outs if env[name].requires_grad]


def has_useful_values(draft: Draft, node: Node) -> bool:
    """Whether the node's floating results are finite, of usual size and not all zero.

    If an operand or an attribute is not, or lies at the ends of a domain, three of four result elements need not be
    either. Where one factor is zero, the product may be.
    """
    if draft.wish is not None and draft.wish.wants_no_elements():
        return True
    recipes = {leaf.values.name for leaf in draft.leaves if leaf.name in node.uses}
    numbers = [value for _, value in node.attrs if isinstance(value, int | float)]
    passed_on = ENDS in recipes or any(abs(n) >= LEAST_LARGE for n in numbers)
    passed_on |= any(_extreme(draft.env[u], draft.types[u]) for u in node.uses)
    shown = [name for out in node.outs for name in draft.sharing(out)] if writes(node) else node.outs
    # a write through a view changes its base
    for name in [name for name in shown if name not in node.outs] or node.outs:
        value = draft.env[name]
        if not draft.types[name].differentiable or value.numel() == 0:
            continue
        if passed_on and bool((value.isfinite() & (value != 0)).sum() * 4 > value.numel()):
            continue
        if _extreme(value, draft.types[name]) or (not value.any() and "lone_zero" not in recipes):
            return False
    return True


def _extreme(value: torch.Tensor, t: TensorType) -> bool:
    """Whether an element is not finite, or so large that it overflows within a node or two."""
    return t.dtype in _SANE and bool(value.numel()) and not float(value.abs().max()) <= _SANE[t.dtype]


def within_limits(leaf: Leaf, limits: Limits) -> bool:
    """Whether a leaf keeps to the limits, which an op's own rules for shapes and dtypes may not know."""
    return leaf.type.numel <= limits.max_numel * limits.long and (
        leaf.dtype not in FLOATS or leaf.dtype in limits.dtypes
    )
