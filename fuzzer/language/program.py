"""The Program: one whole experiment as a frozen value.

A program says which leaves exist (with their layout and values), which operations are applied, which results are
differentiated against which cotangent, by which route the gradient is compiled and under which compiler settings.
It does not say where it runs. This module knows no torch.

Invariants, checked when a Program is made (`ProgramError` names the offender):

* every name is bound once and bound before it is used; the name that an in-place op (trailing underscore) writes to is
  dead afterwards, while other names of the same memory show the write;
* an output names a value; no value is an output twice;
* the shape, stride and offset of a leaf describe elements at non-negative positions; only a floating or complex leaf
  requires grad or is a parameter, only a complex one is conjugated; a leaf_view has the dtype of its base.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

Shape = tuple[int, ...]
_T = TypeVar("_T")

DTYPES = ("f64", "f32", "bf16", "f16", "c128", "c64", "i64", "i32", "i16", "i8", "u8", "bool")
FLOATS = ("f64", "f32", "bf16", "f16")
COMPLEX = ("c128", "c64")
DIFFERENTIABLE = FLOATS + COMPLEX
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
# The minimizer's replacements for an op that could be any: a sign and a kink, which readers know without looking them
# up.
PLAIN_OPS = ("neg", "relu")


class ProgramError(ValueError):
    """A program that breaks an invariant; the message names the offending statement.

    part, number   which statement: the number-th of the "leaves", "nodes" (regions flattened) or "outputs".
    """

    def __init__(self, message: str, part: str = "", number: int = 0):
        super().__init__(message)
        self.part, self.number = part, number


@dataclass(frozen=True)
class Dtype:
    """A dtype as an attribute value (`dtype=f64`), told apart from a string."""

    name: str


# The values of an attribute. Tuples nest (padding lists, permutations).
Value = bool | int | float | str | None | Dtype | tuple["Value", ...]
Attributes = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Recipe:
    """The recipe of a tensor's values: a name in `values.RECIPES` and arguments, e.g. `below(7)` or `data([1.0,
    2.0])`."""

    name: str
    args: tuple[Value, ...] = ()


NORMAL = Recipe("normal")


def contiguous(shape: Shape) -> Shape:
    """Strides, in elements, of a dense row-major tensor of this shape (torch's convention: size 0 counts as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def extent(shape: Shape, stride: Shape, offset: int = 0) -> int:
    """Elements of storage that a tensor of this geometry reaches, counted from element 0."""
    if 0 in shape:
        return offset
    return offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1


@dataclass(frozen=True)
class TensorType:
    """dtype, shape (sizes) and stride (elements) of a value."""

    dtype: str
    shape: Shape
    stride: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_complex(self) -> bool:
        return self.dtype in COMPLEX

    @property
    def differentiable(self) -> bool:
        """Whether torch can differentiate with respect to it."""
        return self.dtype in DIFFERENTIABLE


def writable(t: TensorType) -> bool:
    """Whether no two elements share a place, as far as sizes and strides tell, so that it may be written in place."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(t.shape, t.stride, strict=True) if size > 1):
        if step <= reach:
            return False
        reach += step * (size - 1)
    return True


@dataclass(frozen=True)
class Leaf:
    """An input tensor of the program. `base` names another leaf whose storage it shares (a leaf_view)."""

    name: str
    dtype: str
    shape: Shape
    stride: Shape
    offset: int = 0
    requires_grad: bool = True
    values: Recipe = NORMAL
    seed: int = 0
    base: str | None = None
    parameter: bool = False  # held by a module, in the routes that have one, instead of passed in
    conj: bool = False  # reads its storage's numbers conjugated, as a lazy `torch.conj` does

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape, self.stride)


# A tensor argument: a name, several names (cat, index_put), or nothing (an optional operand left out).
Argument = str | tuple[str | None, ...] | None


@dataclass(frozen=True)
class Node:
    """One application of an op: `outs = op(*args, **attrs)`. Attributes at their default are absent."""

    outs: tuple[str, ...]
    op: str
    args: tuple[Argument, ...]
    attrs: Attributes = ()

    @property
    def uses(self) -> tuple[str, ...]:
        """Names read, in order, with repetitions."""
        found: list[str] = []
        for arg in self.args:
            if isinstance(arg, str):
                found.append(arg)
            elif arg is not None:
                found.extend(name for name in arg if name is not None)
        return tuple(found)


@dataclass(frozen=True)
class Region:
    """Statements that run under a context, e.g. `with autocast(dtype=bf16):`, or that are the body of a function to be
    transformed, e.g. `with vmap(x0):`.

    args: the names that are parameters of the body; each is read in it (others are dropped) and bound outside.
    """

    kind: str
    attrs: Attributes
    body: tuple[Statement, ...]
    args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.args:
            reads = outer_reads(self.body)
            object.__setattr__(self, "args", tuple(name for name in dict.fromkeys(self.args) if name in reads))


Statement = Node | Region
BETWEEN = "between"  # the kind of region whose statements run after the function (see `between`)


@dataclass(frozen=True)
class Cotangent:
    """The tensor from which an output's backward starts, with its own dtype, layout and values."""

    dtype: str
    shape: Shape
    stride: Shape
    values: Recipe = NORMAL
    seed: int = 0
    offset: int = 0

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape, self.stride)


@dataclass(frozen=True)
class Output:
    """A value that the program returns; differentiated when it has a cotangent."""

    value: str
    cotangent: Cotangent | None = None


@dataclass(frozen=True)
class Route:
    """How the gradient gets compiled: a name in `routes.ROUTES` and its options (absent at their default)."""

    name: str = "autograd"
    options: Attributes = ()


@dataclass(frozen=True)
class Program:
    """The whole experiment. Frozen: no function edits a program, each makes a new one (see `dataclasses.replace`)."""

    leaves: tuple[Leaf, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    route: Route = Route()
    settings: Attributes = ()
    comment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in execution order, regions flattened."""
        return tuple(walk(self.body))

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(output.value for output in self.outputs)

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    def role(self, name: str) -> str:
        """`leaf` for the name of a leaf, else `cotangent`."""
        return "leaf" if any(leaf.name == name for leaf in self.leaves) else "cotangent"


def walk(body: tuple[Statement, ...]) -> Iterator[Node]:
    """The nodes of a body in execution order."""
    for statement in body:
        if isinstance(statement, Node):
            yield statement
        else:
            yield from walk(statement.body)


def outer_reads(body: tuple[Statement, ...]) -> list[str]:
    """The names that a body reads and does not bind, in the order of their first use."""
    bound = {name for node in walk(body) for name in node.outs}
    return [name for name in dict.fromkeys(n for node in walk(body) for n in node.uses) if name not in bound]


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """The nodes and regions of a body, each region before its contents."""
    for statement in body:
        yield statement
        if isinstance(statement, Region):
            yield from statements(statement.body)


def between(program: Program) -> Region | None:
    """The region of statements between the function's return and the backward: the program's last statement, if of that
    kind. It reads leaves and outputs, and none of its results is returned."""
    last = program.body[-1] if program.body else None
    return last if isinstance(last, Region) and last.kind == BETWEEN else None


def function_body(program: Program) -> tuple[Statement, ...]:
    """The statements of the program's function."""
    return program.body if between(program) is None else program.body[:-1]


def is_tracked(program: Program) -> bool:
    """Whether some leaf requires a gradient."""
    return any(leaf.requires_grad for leaf in program.leaves)


def has_gradient(program: Program) -> bool:
    """Whether a backward runs: some leaf requires a gradient and some output has a cotangent."""
    return is_tracked(program) and any(output.cotangent is not None for output in program.outputs)


def map_nodes(body: tuple[Statement, ...], change: Callable[[Node], Node | None]) -> tuple[Statement, ...]:
    """The body with every node changed, or dropped where `change` returns None. Emptied regions go too."""
    found: list[Statement] = []
    for s in body:
        if isinstance(s, Region):
            renamed: dict[str, str] = {}
            inner = map_nodes(s.body, functools.partial(_changed, change, renamed))
            args = tuple(renamed.get(name, name) for name in s.args)
            found += [replace(s, body=inner, args=args)] if inner else []
        else:
            node = change(s)
            found += [] if node is None else [node]
    return tuple(found)


def _changed(change: Callable[[Node], Node | None], renamed: dict[str, str], node: Node) -> Node | None:
    """change(node); adds to `renamed` the names that readers must now use instead of the node's own."""
    new = change(node)
    if new is not None and len(new.uses) == len(node.uses):
        renamed.update({old: name for old, name in zip(node.uses, new.uses, strict=True) if old != name})
    return new


def unwrap(body: tuple[Statement, ...], kind: str) -> tuple[Statement, ...]:
    """The body without regions of this kind: their statements stand where they were."""
    found: list[Statement] = []
    for s in body:
        inner = unwrap(s.body, kind) if isinstance(s, Region) else ()
        if isinstance(s, Region) and s.kind != kind:
            found.append(replace(s, body=inner))
        else:
            found += inner if isinstance(s, Region) else [s]
    return tuple(found)


def substitute_node(body: tuple[Statement, ...], old: Node, new: Node | None) -> tuple[Statement, ...]:
    """The body with one node replaced, or dropped."""
    return map_nodes(body, lambda node: new if node is old else node)


def substitute_operands(node: Node, names: Mapping[str, str]) -> Node:
    """The node with some of the names it reads replaced."""

    def argument(arg: Argument) -> Argument:
        if isinstance(arg, str):
            return names.get(arg, arg)
        return None if arg is None else tuple(None if name is None else names.get(name, name) for name in arg)

    return replace(node, args=tuple(map(argument, node.args)))


def writes(node: Node) -> str | None:
    """The name of the operand that an in-place node overwrites."""
    first = node.args[0] if node.args else None
    return first if node.op.endswith("_") and isinstance(first, str) else None


def may_alias(program: Program) -> dict[str, set[str]]:
    """For each name, the names that may share its memory: those linked through first operands, since only torch knows
    which ops make views."""
    found = {leaf.name: {leaf.name} for leaf in program.leaves}
    links: list[tuple[tuple[str, ...], str | None]] = [((leaf.name,), leaf.base) for leaf in program.leaves]
    links += [(node.outs, node.uses[0] if node.uses else None) for node in program.nodes]
    for names, source in links:
        family = set(names).union(found.get(source, ()) if source else (), *(found.get(n, ()) for n in names))
        for member in family:
            found[member] = family
    return found


def needed_by_outputs(program: Program) -> tuple[set[tuple[str, ...]], set[str]]:
    """(results of the nodes, names) that the outputs need.

    An in-place node whose result is not read is needed if a later statement reads a name that may share its memory. All
    statements before the backward are needed.
    """
    family, late = may_alias(program), between(program)
    live = {output.value for output in program.outputs}
    kept: set[tuple[str, ...]] = set()
    for node in walk(late.body) if late else ():
        kept.add(node.outs)
        live.update(node.uses)
    for node in reversed(program.nodes):
        target = writes(node)
        if not live.isdisjoint(node.outs) or (target is not None and not live.isdisjoint(family[target])):
            kept.add(node.outs)
            live.update(node.uses)
    live.update(leaf.base for leaf in program.leaves if leaf.name in live and leaf.base is not None)
    return kept, live


def written_leaves(program: Program) -> list[str]:
    """The leaves that in-place nodes may write to, in order; leaves that require grad count only before the
    backward."""
    family, late = may_alias(program), between(program)

    def shown(nodes: Iterable[Node]) -> set[str]:
        return set[str]().union(*(family[target] for node in nodes if (target := writes(node)) is not None))

    anywhere, before_backward = shown(program.nodes), shown(walk(late.body) if late else ())
    return [leaf.name for leaf in program.leaves
            if leaf.name in (before_backward if leaf.requires_grad else anywhere)]  # fmt: skip


def gaining_leaves(program: Program) -> set[str]:
    """The leaves without a gradient into which an in-place node writes a value with one: they carry a gradient
    afterwards."""
    family, without = may_alias(program), {leaf.name for leaf in program.leaves if not leaf.requires_grad}
    carrying, gaining = {leaf.name for leaf in program.leaves if leaf.requires_grad}, set[str]()
    for node in program.nodes:
        if not carrying.isdisjoint(node.uses):
            written = family.get(writes(node) or "", set())
            carrying.update(node.outs, written)
            gaining |= written & without
    return gaining


def _check(program: Program) -> None:
    """Raise `ProgramError` where an invariant of the module's docstring does not hold."""
    bound: dict[str, Leaf | Node] = {}
    dead: set[str | None] = set()
    returned: set[str] = set()

    def bind(name: str, where: str, by: Leaf | Node) -> None:
        if not name.isidentifier():
            raise ProgramError(f"{where}: {name!r} is not a name")
        if name in bound:
            raise ProgramError(f"{where}: {name} is bound twice")
        bound[name] = by

    def use(name: str, where: str) -> None:
        if name not in bound:
            raise ProgramError(f"{where}: {name} is used before it is bound")
        if name in dead:
            raise ProgramError(f"{where}: {name} was overwritten by an in-place op and is dead")

    def check_leaf(leaf: Leaf) -> None:
        _check_geometry(leaf.name, leaf.dtype, leaf.shape, leaf.stride, leaf.offset)
        if leaf.requires_grad and not leaf.type.differentiable:
            raise ProgramError(f"{leaf.name}: a leaf of dtype {leaf.dtype} cannot require grad")
        if leaf.parameter and not leaf.type.differentiable:
            raise ProgramError(f"{leaf.name}: a leaf of dtype {leaf.dtype} cannot be a parameter")
        if leaf.conj and not leaf.type.is_complex:
            raise ProgramError(f"{leaf.name}: a leaf of dtype {leaf.dtype} cannot be conjugated")
        if leaf.base is not None:
            use(leaf.base, leaf.name)
            base = bound[leaf.base]
            if isinstance(base, Leaf) and base.dtype != leaf.dtype:
                raise ProgramError(f"{leaf.name}: a view of {base.name} has its dtype, {base.dtype}, not {leaf.dtype}")
        bind(leaf.name, "leaf", leaf)

    def check_node(node: Node) -> None:
        where = f"{', '.join(node.outs)} = {node.op}(...)"
        if not node.outs:
            raise ProgramError(f"{node.op}: a node needs at least one result name")
        for name in node.uses:
            use(name, where)
        for name in node.outs:
            bind(name, where, node)
        written = writes(node)
        if written is not None:
            dead.add(written)

    def check_output(output: Output) -> None:
        use(output.value, "output")
        if output.value in returned:
            raise ProgramError(f"output: {output.value} is returned twice")
        returned.add(output.value)
        if output.cotangent is not None:
            c = output.cotangent
            _check_geometry(f"cotangent of {output.value}", c.dtype, c.shape, c.stride, c.offset)

    _check_each("leaves", program.leaves, check_leaf)
    _check_each("nodes", program.nodes, check_node)
    late = between(program)
    dead -= {writes(node) for node in walk(late.body)} if late else set()  # returned before these writes
    _check_each("outputs", program.outputs, check_output)


def _check_each(part: str, statements: Iterable[_T], check_one: Callable[[_T], None]) -> None:
    for number, statement in enumerate(statements):
        try:
            check_one(statement)
        except ProgramError as error:
            raise ProgramError(str(error), part, number) from None


def _check_geometry(where: str, dtype: str, shape: Shape, stride: Shape, offset: int) -> None:
    if dtype not in DTYPES:
        raise ProgramError(f"{where}: unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
    if len(shape) != len(stride):
        raise ProgramError(f"{where}: shape {shape} and stride {stride} differ in rank")
    if min((*shape, *stride, offset), default=0) < 0:
        raise ProgramError(f"{where}: negative size, stride or offset in {shape}, {stride}, {offset}")


def rename(program: Program, fresh: Callable[[str], str]) -> Program:
    """The same program with every name replaced by `fresh(name)` (which must be injective)."""

    def argument(arg: Argument) -> Argument:
        if isinstance(arg, str):
            return fresh(arg)
        return None if arg is None else tuple(None if name is None else fresh(name) for name in arg)

    def statement(s: Statement) -> Statement:
        if isinstance(s, Region):
            return replace(s, body=tuple(map(statement, s.body)), args=tuple(map(fresh, s.args)))
        return replace(s, outs=tuple(map(fresh, s.outs)), args=tuple(map(argument, s.args)))

    return replace(
        program,
        leaves=tuple(
            replace(leaf, name=fresh(leaf.name), base=None if leaf.base is None else fresh(leaf.base))
            for leaf in program.leaves
        ),
        body=tuple(statement(s) for s in program.body),
        outputs=tuple(replace(o, value=fresh(o.value)) for o in program.outputs),
    )


def canonical(program: Program) -> Program:
    """The same experiment under canonical names (leaves x0.. , results v0.. in order) and without comments."""
    names = {leaf.name: f"x{i}" for i, leaf in enumerate(program.leaves)}
    results = (name for node in program.nodes for name in node.outs)
    names |= {name: f"v{i}" for i, name in enumerate(results)}
    return replace(rename(program, names.__getitem__), comment=())
