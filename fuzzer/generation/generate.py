"""(rng, ops, limits) -> Program.

Nodes are drawn one at a time: a family, then an op of the family, each equally likely; then the op's parameters in
table order. Every node runs at once, in eager, on the values drawn so far (the dry run). So a program that torch
refuses is refused here (`Rejected`), and useless results (nonfinite, huge, all zero) are mostly drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from fuzzer.generation.add import KEPT, add_node, add_write, has_eager_gradient, prepare_write
from fuzzer.generation.draft import Announce, Draft, Rejected
from fuzzer.generation.dry_run import has_detectable_gradient
from fuzzer.generation.enclose import draw_regions
from fuzzer.generation.history import LATE, draw_between, draw_history
from fuzzer.generation.nodes import draw_node, has_useful_values, new_leaf, run_node, weighted, within_limits
from fuzzer.generation.rejoin import joining, meeting
from fuzzer.generation.shapes import broadcast_strides, draw_layout, draw_shape
from fuzzer.generation.wish import AFTER, BESIDE, WISH_STEPS, Wish
from fuzzer.language import settings as compiler_settings
from fuzzer.language.ops import OPS, REAL
from fuzzer.language.ops.constant import FAMILY as FILLS
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import (
    BETWEEN,
    NORMAL,
    Attributes,
    Cotangent,
    Leaf,
    Node,
    Output,
    Program,
    Recipe,
    Route,
    TensorType,
    contiguous,
    map_nodes,
    needed_by_outputs,
    writes,
)
from fuzzer.language.regions import REGIONS
from fuzzer.language.routes import ROUTES, acts, draw_route

# Half precision has fewer elements in which a fault can hide, float64 the least rounding: all four are worth a compile.
# Complex ones are drawn only where the limits hold them.
DTYPE_WEIGHTS = {"f32": 0.45, "f64": 0.2, "bf16": 0.2, "f16": 0.15, "c64": 1.4, "c128": 0.6}
# A program whose gradients are zero or noise would waste a compile: it is drawn again, at most so often.
_MAX_REDRAWS = 8
# Ops that end a program, by the layout that their backward hands on: broadcast, permuted, or zeros around a part.
# A real loss ends in a reduction; sum's backward is a bare expand (stride 0), mean's divides, and is dense again.
CLOSING = {"sum": 6.0, "mean": 1.0, "permute": 1.0, "transpose": 1.0, "select": 0.5, "narrow": 0.5}
_COUNTING = ("new_ones", "cumsum")  # the ops that make positions
_LONG = 0.08  # the share of programs in which one leaf may be long: enough for a reduction to be split
_REJOINED = 0.15  # the share of nodes in which two values that were made of one meet again, where there are two; of
# programs that are asked for cells the share that ends in such a node
_WISHED = 4  # draws of a node that is asked for, until one stays, before it is asked for less
_INNER = 0.08  # the share of the values that are read within a program that it returns, too
_CLOSED = 0.75  # the share of loose results that end in one of CLOSING
_TOLD = 0.5  # the share of loose positions and signs of zeros that decide a number
_LOCATED = 0.25  # the share of programs with a value that lies out of order in which an extremum of one is located
_LOCATING = {"argmax": 2.0, "argmin": 2.0, "max": 1.0, "min": 1.0}  # the ops that locate it, by weight
_ALIASED = 0.5  # the share of programs without a gradient that begin with a history, whose views are returned
_RETURNED = 0.5  # the share of their inner values that are returned, too
_WRITTEN_AFTER = 0.5  # the share of these whose inputs or results are written after the function has returned
_INTEGERS = 0.3  # the share of the others that compute with integers
_COUNTED = ("i64", "i32")
HISTORIES = 0.08  # the share of programs that begin with a history of one value's memory (`history.py`)


def generate(
    rng: random.Random,
    ops: dict[str, OpSpec] = REAL,
    limits: Limits = Limits(),  # noqa: B008  (a frozen value)
    routes: Sequence[str] = (Route().name,),
    device: str = "cpu",
    fixed: Attributes = (),
    portable: bool = False,
    histories: float = HISTORIES,
    wishes: Sequence[Wish] = (),
    announce: Announce | None = None,
    gradient: bool = True,
) -> Program:
    """A program that ran in eager on the CPU. Raises Rejected where torch refused a drawn node.

    `fixed` settings stand in every program, over what is drawn. A portable one means the same on every device: no
    random numbers, no autocast, which has a list of operators for each, no op whose entry says that it does not. Its
    first nodes are such as the wishes ask for, as far as that goes. The result depends on the arguments alone.
    histories: the share of programs without wishes that begin with a history of one value's memory (`history.py`).
    announce: called with each part of it before that runs in eager, where it may take the process with it.
    gradient: without one, no leaf requires a gradient and all results are returned. Half of these programs write in
    place, into inputs above all, which may share memory, and return views.
    """
    routes = routes if gradient else routes_forward(routes)
    aliased = not gradient and rng.random() < _ALIASED
    counted = not gradient and not aliased and rng.random() < _INTEGERS
    late = aliased and rng.random() < _WRITTEN_AFTER
    most = limits.max_nodes
    limits = replace(limits, max_nodes=most - LATE) if late and most > LATE else limits  # leaves room for these writes
    groups: dict[str, list[OpSpec]] = {}
    for spec in drawable(ops, routes, portable).values():
        if counted and not _counts(spec):
            continue
        groups.setdefault(spec.family, []).append(spec)
    known = {spec.name: spec for specs in groups.values() for spec in specs}
    counting = tuple(known[name] for name in _COUNTING) if known.keys() >= set(_COUNTING) else ()
    with torch.random.fork_rng(devices=[]):  # random ops draw in the dry runs
        torch.default_generator.manual_seed(0)
        for _ in range(_MAX_REDRAWS):
            asked = next((wish.dtype for wish in wishes if wish.dtype in limits.dtypes), "")
            dtype = asked or weighted(rng, {k: w for k, w in DTYPE_WEIGHTS.items() if k in limits.dtypes})
            dtype = rng.choice(_COUNTED) if counted else dtype
            writing = any(ROUTES[name].writes_leaves for name in routes)
            fills = tuple(groups.get(FILLS, ()))
            draft = Draft(rng, limits, dtype, writing, gradient, fills=fills, counting=counting, announce=announce)
            draft.long = limits.long > 1 and rng.random() < _LONG
            _draw_body(draft, groups, wishes, 1.0 if aliased else histories)
            if gradient:
                _locate(draft, ops)
            _close_loose_results(draft, ops)
            finished = _finish(draft, routes, device, fixed, _RETURNED if aliased else _INNER)
            if announce is not None:
                announce(finished)
            share = 1.0 if late else REGIONS[BETWEEN].share
            program = draw_between(draw_regions(finished, rng, portable), rng, groups, most, share)
            if gradient and (has_detectable_gradient(program) or rng.random() < KEPT):
                break
            if not gradient and (not aliased or any(map(writes, program.nodes))):
                break
    return program


def drawable(ops: dict[str, OpSpec], routes: Sequence[str], portable: bool) -> dict[str, OpSpec]:
    """Those of these ops that may be drawn for these routes."""
    drawing = not portable and any(ROUTES[name].draws for name in routes)
    return {n: s for n, s in ops.items() if (drawing or not s.random) and (s.portable or not portable)}


def _counts(spec: OpSpec) -> bool:
    """Whether an op's first operand may be integers of any width."""
    dtypes = spec.operands[0].dtypes if spec.operands else ()
    return isinstance(dtypes, tuple) and set(_COUNTED) <= set(dtypes)


def _draw_body(draft: Draft, groups: dict[str, list[OpSpec]], wishes: Sequence[Wish], histories: float) -> None:
    """Draw the nodes that are asked for, else up to a drawn number, at least one of which carries a gradient."""
    rng, limits = draft.rng, draft.limits
    if wishes:
        _draw_wishes(draft, groups, wishes)
        if rng.random() < _REJOINED:
            _rejoin(draft, groups)
        wanted = len(draft.nodes)
    else:
        # Known backward faults need one to three nodes, often next to a leaf, and small programs compile sooner.
        lengths = range(1, limits.max_nodes + 1)
        wanted = rng.choices(lengths, [1 / k for k in lengths])[0]
        if rng.random() < histories:
            draw_history(draft, groups)
    for _ in range(wanted * 4 + 8):
        carrying = draft.tracked if draft.gradient else draft.types
        if len(draft.nodes) >= wanted and any(name.startswith("v") for name in carrying):
            break
        if len(draft.nodes) >= limits.max_nodes:  # full, and no node carries a gradient
            draft.undo((0, 0, frozenset()))
        if rng.random() < _REJOINED and _rejoin(draft, groups):
            continue
        _draw_one(draft, groups, rng.choice(groups[rng.choice(list(groups))]))


def _rejoin(draft: Draft, groups: dict[str, list[OpSpec]]) -> bool:
    """Draw a node in which two values with a common origin meet; the draft may drop it. False where there are no such
    values."""
    pair = meeting(draft) if len(draft.nodes) < draft.limits.max_nodes else None
    alike = pair is not None and () != draft.types[pair[0]].shape == draft.types[pair[1]].shape
    joiner = joining(draft.rng, groups, alike) if pair else None
    if pair is None or joiner is None:
        return False
    draft.given = pair
    _draw_one(draft, groups, joiner)
    draft.given = ()
    return True


def _draw_one(draft: Draft, groups: dict[str, list[OpSpec]], spec: OpSpec, wish: Wish | None = None) -> None:
    """Draw a node of this op; the draft may drop it. Raises Rejected where torch refuses it."""
    if not spec.effects:
        draft.wish = wish
        add_node(draft, spec)
    else:
        prepare_write(draft, groups)
        draft.wish = wish
        add_write(draft, spec)
        draft.anchor = ""


def _draw_wishes(draft: Draft, groups: dict[str, list[OpSpec]], wishes: Sequence[Wish]) -> None:
    """Draw a node for each wish, and for integers, which have no gradient, a node that reads them."""
    known = {spec.name: spec for specs in groups.values() for spec in specs}
    for wish in (wish for wish in wishes if wish.op in known):
        before = draft.nodes[-1:]
        linked = [name for node in before for name in (node.uses if wish.link == BESIDE else node.outs)]
        made = _draw_wish(draft, groups, known[wish.op], wish, linked)
        dtype = draft.types[made.outs[0]].dtype if made is not None else ""
        if made is not None and dtype in ("i64", "i32") and all(draft.types[n].dtype == dtype for n in made.outs):
            readers = [(name, at) for name, spec in known.items() for at in _takes_integers(spec, dtype)]
            if readers:
                name, at = draft.rng.choice(readers)
                _draw_wish(draft, groups, known[name], Wish(name, link=AFTER, reads=at), made.outs)


def _takes_integers(spec: OpSpec, dtype: str) -> list[int]:
    """The places of those of an op's operands, except the first, that may be computed integers of this dtype."""
    return [i for i, o in enumerate(spec.operands) if i and o.recipe is None and dtype in o.dtypes]


def _draw_wish(
    draft: Draft, groups: dict[str, list[OpSpec]], spec: OpSpec, wish: Wish, linked: Sequence[str]
) -> Node | None:
    """The node drawn for a wish, if need be a relaxed one; None where the draft kept none."""
    for draws in range(WISH_STEPS * _WISHED):
        count, mark = len(draft.nodes), draft.mark()
        draft.linked = tuple(name for name in linked if name not in draft.dead)
        strict = draws % _WISHED < _WISHED - 1
        try:
            _draw_one(draft, groups, spec, replace(wish.relaxed(draws // _WISHED), strict=strict))
        except Rejected:
            draft.undo(mark)
        draft.wish, draft.target, draft.anchor = None, "", ""
        if len(draft.nodes) > count and draft.nodes[-1].op == spec.name:
            return draft.nodes[-1]
    return None


def _close_loose_results(draft: Draft, ops: dict[str, OpSpec]) -> None:
    """End some of the loose results with an op whose backward passes on a cotangent of a particular layout. Before
    that, some loose positions and signs of zeros decide a number (`_tell`).

    On the autograd route declared layouts do not reach the backward graph (AOTAutograd makes tangents match the layout
    it traced): there, stride 0 comes from a sum or mean at the end, a permuted cotangent from a permutation.
    """
    for name in _loose_results(draft) if draft.gradient else ():
        if draft.rng.random() < _TOLD:
            _tell(draft, ops, name)
    closing = {name: weight for name, weight in CLOSING.items() if name in ops}
    for name in _loose_results(draft) if closing else ():
        if name in draft.tracked and len(draft.nodes) < draft.limits.max_nodes and draft.rng.random() < _CLOSED:
            spec, mark = ops[weighted(draft.rng, closing)], draft.mark()
            draft.anchor = name
            node = draw_node(draft, spec)
            draft.anchor = ""
            if name not in node.uses:
                draft.undo(mark)
                continue
            run_node(draft, node, spec)
            if not (has_eager_gradient(draft, spec) and has_useful_values(draft, node)):
                draft.undo(mark)


def _locate(draft: Draft, ops: dict[str, OpSpec]) -> None:
    """Add the position of an extremum of a value, and let that position say what is taken from a new leaf (`_tell`).
    The value, or one that it was made of, lies out of order (`_lies_in_order`): compilers may count its elements in the
    order in which they lie. Raises Rejected."""
    locating = {name: weight for name, weight in _LOCATING.items() if name in ops}
    found = [
        name
        for node in draft.nodes
        for name in node.outs
        if name not in draft.dead and draft.types[name].differentiable and draft.types[name].numel > 1
        if not all(_lies_in_order(draft.env[near]) for near in (name, *node.uses))
    ]
    if not (locating and found) or draft.rng.random() >= _LOCATED or len(draft.nodes) + 2 > draft.limits.max_nodes:
        return
    spec, mark = ops[weighted(draft.rng, locating)], draft.mark()
    draft.anchor = draft.rng.choice(found)
    node = draw_node(draft, spec)
    draft.anchor, anchored = "", draft.anchor in node.uses
    if anchored:
        run_node(draft, node, spec)
        _tell(draft, ops, node.outs[-1])
    if not anchored or draft.nodes[-1] == node:  # the position would decide nothing
        draft.undo(mark)


def _lies_in_order(value: torch.Tensor) -> bool:
    """Whether a tensor's dimensions stand in its memory in their own order."""
    steps = [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]
    return steps == sorted(steps, reverse=True)


def _tell(draft: Draft, ops: dict[str, OpSpec], name: str) -> None:
    """Let positions say what is taken from a new leaf. Let zeros give a new leaf their signs, where the result or an
    operand of its op holds a minus zero. Otherwise a wrong position or a wrong sign of zero changes no gradient."""
    value, t, maker = draft.env[name], draft.types[name], next(n for n in draft.nodes if name in n.outs)
    read = draft.types[maker.uses[0]] if maker.uses else t
    if not t.numel or t.is_complex or len(draft.nodes) >= draft.limits.max_nodes:
        return
    if t.dtype == "i64" and int(value.min()) >= 0 and int(value.max()) < read.numel:
        op, shown = "take", TensorType(draft.dtype, (read.numel,), (1,))
    elif t.is_float and bool((value == 0).any()) and any(_holds_minus_zero(draft.env[n]) for n in (name, *maker.uses)):
        op, shown = "copysign", t
    else:
        return
    if op in ops:
        mark, count = draft.mark(), sum(len(node.outs) for node in draft.nodes)
        node = Node((f"v{count}",), op, (new_leaf(draft, shown.dtype, shown.shape, NORMAL), name))
        run_node(draft, node, ops[op])
        if not (within_limits(draft.leaves[-1], draft.limits) and has_useful_values(draft, node)):
            draft.undo(mark)


def _holds_minus_zero(value: torch.Tensor) -> bool:
    """Whether an element is a zero with the sign of negative numbers."""
    return value.is_floating_point() and bool(((value == 0) & value.signbit()).any())


def _loose_results(draft: Draft) -> list[str]:
    """Results that no node reads, or none since the result was written to through another name."""
    names = [name for node in draft.nodes for name in node.outs]
    return [name for name in names if name not in draft.dead and not draft.uses.get(name)]


def routes_forward(routes: Sequence[str]) -> list[str]:
    """Those of these routes that programs without a gradient take: the others differ in how it is added up alone."""
    return [name for name in routes if not ROUTES[name].script.into_grad]


def _returned(draft: Draft, inner: float) -> list[Output]:
    """The results of a program without a gradient: those that nothing reads, and this share of the others. Raises
    Rejected where there are none."""
    loose = _loose_results(draft)
    known = [name for name in draft.types if name.startswith("v") and name not in draft.dead]
    outputs = [Output(name) for name in known if name in loose or draft.rng.random() < inner]
    if not outputs:
        raise Rejected("there is no result")
    return outputs


def _finish(draft: Draft, routes: Sequence[str], device: str, fixed: Attributes, inner: float) -> Program:
    """Choose outputs and cotangents, the route and the settings. inner: the share of the values that are read within
    the program that it returns, too."""
    rng = draft.rng
    writes_leaf = any(draft.memory(leaf.name) in draft.written_memory() for leaf in draft.leaves)
    drawing = any(OPS[node.op].random for node in draft.nodes)
    fitting = [name for name in routes if ROUTES[name].writes_leaves or not writes_leaf]
    route = draw_route(rng, [name for name in fitting if ROUTES[name].draws or not drawing])
    outputs = _differentiated(draft, route, inner) if draft.gradient else _returned(draft, inner)
    if rng.random() < 0.04:
        new_leaf(draft, draft.dtype, draw_shape(rng, draft.limits, (0, 3)), NORMAL)
    acting = [setting for setting in compiler_settings.SETTINGS if acts(setting, device, route.name)]
    drawn = dict(compiler_settings.draw_settings(rng, acting)) | dict(fixed)
    leaves = _draw_parameters(rng, draft.leaves) if ROUTES[route.name].module else draft.leaves
    if any(leaf.parameter for leaf in leaves) and rng.random() < 0.5:
        drawn.setdefault("inductor.freezing", True)  # acts on parameters only
    program = Program(
        tuple(leaves),
        tuple(draft.nodes),
        tuple(outputs),
        route,
    )
    program = without_dead_nodes(program)
    if any(OPS[node.op].random for node in program.nodes):
        # functorch's settings decide which values are recomputed, and so which random numbers are drawn again. A memory
        # budget does not, though it should keep drawn values (pytorch #190758)
        kept = ("functorch.activation_memory_budget",)
        harmless = {name: value for name, value in drawn.items() if name in kept or not name.startswith("functorch")}
        drawn = harmless | dict(fixed) | dict([compiler_settings.SAME_DRAWS])
    return replace(program, settings=tuple(sorted(drawn.items())))


def _differentiated(draft: Draft, route: Route, inner: float) -> list[Output]:
    """Outputs with cotangents, and some without. Raises Rejected where no result carries a gradient."""
    rng = draft.rng
    loose = _loose_results(draft)
    used = [name for name, uses in draft.uses.items() if uses and name.startswith("v") and name not in draft.dead]
    read = [name for name in used if rng.random() < inner]
    outputs: list[Output] = []
    for name in [*loose, *read]:
        if name in draft.tracked:
            outputs.append(Output(name, draw_cotangent(draft, draft.types[name], route.name)))
        elif rng.random() < 0.5:
            outputs.append(Output(name))
    if not any(o.cotangent for o in outputs):
        alive = [name for name in draft.types if name.startswith("v") and name not in draft.dead]
        tracked = [name for name in alive if name in draft.tracked]
        if not tracked:
            raise Rejected("no result carries a gradient")
        name = tracked[-1]
        outputs = [o for o in outputs if o.value != name]
        outputs.append(Output(name, draw_cotangent(draft, draft.types[name], route.name)))
    return outputs


def _draw_parameters(rng: random.Random, leaves: Sequence[Leaf]) -> list[Leaf]:
    """In one of five programs each floating leaf is a parameter with probability one half."""
    if rng.random() < 0.8:
        return list(leaves)
    return [replace(leaf, parameter=leaf.type.differentiable and rng.random() < 0.5) for leaf in leaves]


def draw_cotangent(draft: Draft, t: TensorType, route: str) -> Cotangent:
    """A cotangent for an output of this type, dense where the route does not pass layouts on to the backward."""
    rng = draft.rng
    stride, offset = contiguous(t.shape), 0
    if ROUTES[route].shows_layouts and t.shape:
        kind = rng.choices(("dense", "any", "broadcast"), (0.35, 0.35, 0.3))[0]
        if kind != "dense":
            stride, offset = (broadcast_strides(rng, t.shape), 0) if kind == "broadcast" else draw_layout(rng, t.shape)
    values = rng.choices((NORMAL, Recipe("ones"), Recipe("integers"), Recipe("zeros")), (0.6, 0.2, 0.17, 0.03))[0]
    return Cotangent(t.dtype, t.shape, stride, values, rng.randrange(1000), offset)


def without_dead_nodes(program: Program) -> Program:
    """The program without nodes that no output needs. One unused leaf stays, since compilers must handle it too."""
    kept, live = needed_by_outputs(program)
    used = live | {leaf.base for leaf in program.leaves if leaf.base is not None}
    extra = [leaf.name for leaf in program.leaves if leaf.name not in used][:1]
    leaves = tuple(leaf for leaf in program.leaves if leaf.name in used or leaf.name in extra)
    return replace(program, leaves=leaves, body=map_nodes(program.body, lambda n: n if n.outs in kept else None))
