"""The cells of a program: combinations of an op with a dtype, a layout or an attribute, read before anything is
compiled.

A cell is a few words with a family of CELLS, as "layer_norm weight permuted". The classes of layouts and of attributes'
values are those of `language.classes`. Layouts and dtypes of computed values come from a dry run in eager.
`possible_cells` lists the cells that the table of ops allows, for the families where the table says enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from fuzzer.generation.dry_run import eager_values
from fuzzer.language.classes import (
    attribute_class,
    draw_of,
    layout_classes,
    main_operand,
    possible_classes,
    possible_dtypes,
    possible_layouts,
)
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import Leaf, Node, Program, Region, TensorType, statements, written_leaves
from fuzzer.language.values import DTYPE_NAMES

_Words = Iterator[str]


@dataclass(frozen=True)
class Scene:
    """A program, and its values in eager."""

    program: Program
    values: Mapping[str, torch.Tensor]

    @cached_property
    def leaves(self) -> dict[str, Leaf]:
        return {leaf.name: leaf for leaf in self.program.leaves}

    @cached_property
    def maker(self) -> dict[str, Node]:
        return {out: node for node in self.program.nodes for out in node.outs}

    def type(self, name: str) -> TensorType:
        t = self.values[name]
        return TensorType(DTYPE_NAMES[t.dtype], tuple(t.shape), tuple(t.stride()))

    def operands(self) -> Iterator[tuple[Node, OpSpec, int, str]]:
        """(node, the op's row, the operand's place in the row, a name that the node reads there)."""
        for node in self.program.nodes:
            for place, arg in enumerate(node.args):
                for name in (arg,) if isinstance(arg, str) else arg or ():
                    if name is not None:
                        yield node, OPS[node.op], place, name


# ---------------------------------------------------------------- families


def _ops(scene: Scene) -> _Words:
    return (node.op for node in scene.program.nodes)


def _dtypes(scene: Scene) -> _Words:
    """The op and the dtype of its main operand."""
    for node, spec, place, name in scene.operands():
        if place == main_operand(spec):
            yield f"{node.op} {scene.type(name).dtype}"


def _attributes(scene: Scene) -> _Words:
    """The op, an attribute of it, and the class of its value."""
    for node in scene.program.nodes:
        spec = OPS[node.op]
        types = [_operand_type(scene, arg) for arg in node.args]
        d = draw_of(spec, types, node.attrs)
        for attribute in spec.attributes:
            if attribute.name in d.attrs:
                yield f"{node.op} {attribute.name}={attribute_class(attribute, d.attrs[attribute.name], d)}"


def _operand_type(scene: Scene, arg: object) -> object:
    if isinstance(arg, str):
        return scene.type(arg)
    return tuple(scene.type(name) for name in arg if name is not None) if isinstance(arg, tuple) else None


def _layouts(scene: Scene) -> _Words:
    """The op, an operand of it, and each class of its layout."""
    for node, spec, place, name in scene.operands():
        t = scene.values[name]
        for found in layout_classes(tuple(t.shape), tuple(t.stride()), t.storage_offset()):
            yield f"{node.op} {spec.operands[place].name} {found}"


def _values(scene: Scene) -> _Words:
    """The op, one of its operands that is a leaf, and the leaf's recipe."""
    for node, spec, place, name in scene.operands():
        if name in scene.leaves and scene.leaves[name].base is None:
            yield f"{node.op} {spec.operands[place].name} {scene.leaves[name].values.name}"


def _pairs(scene: Scene) -> _Words:
    """The op that made a value, and the operand of the op that reads it."""
    for node, spec, place, name in scene.operands():
        if name in scene.maker:
            yield f"{scene.maker[name].op} > {node.op} {spec.operands[place].name}"


def _twice(scene: Scene) -> _Words:
    """Two ops that read the same value, or one that reads it twice."""
    readers: dict[str, list[str]] = {}
    for node, _, _, name in scene.operands():
        for other in readers.get(name, ()):
            yield " & ".join(sorted((other, node.op)))
        readers.setdefault(name, []).append(node.op)


def _settings(scene: Scene) -> _Words:
    """A compiler setting, and a family of ops whose kernels the setting affects."""
    for name, value in scene.program.settings:
        for family in dict.fromkeys(OPS[node.op].family for node in scene.program.nodes):
            yield f"{name}={value} {family}"


def _routes(scene: Scene) -> _Words:
    """The route, with each property of the program: it writes, draws random numbers, has several outputs and so on."""
    program = scene.program
    route = program.route.name + " dynamic" * (dict(program.route.options).get("dynamic") is True)
    effects = {
        "writes": any(OPS[node.op].effects for node in program.nodes),
        "writes a leaf": bool(written_leaves(program)),
        "draws": any(OPS[node.op].random for node in program.nodes),
        "views a leaf": any(leaf.base for leaf in program.leaves),
        "parameter": any(leaf.parameter for leaf in program.leaves),
        "several outputs": len(program.outputs) > 1,
        "returns": any(output.cotangent is None for output in program.outputs),
    }
    found = [name for name, there in effects.items() if there]
    found += [s.kind for s in statements(program.body) if isinstance(s, Region)]
    return (f"{route} {effect}" for effect in found or ["computes"])


CELLS: Mapping[str, Callable[[Scene], _Words]] = {
    "op": _ops,
    "dtype": _dtypes,
    "attribute": _attributes,
    "layout": _layouts,
    "values": _values,
    "pair": _pairs,
    "twice": _twice,
    "setting": _settings,
    "route": _routes,
}
CELL_FAMILIES = tuple(CELLS)


def cells(program: Program) -> dict[str, frozenset[str]]:
    """The cells of a program, by family of CELLS; none where eager refuses the program on the CPU."""
    values = eager_values(program)
    return (
        {} if values is None else {family: frozenset(words(Scene(program, values))) for family, words in CELLS.items()}
    )


# ---------------------------------------------------------------- possible cells


@dataclass(frozen=True)
class Possible:
    """The possible cells of a family, as far as the table of ops names them.

    unknown   operands or attributes whose possible classes the table does not name.
    """

    known: frozenset[str]
    unknown: int = 0


def possible_cells(ops: Mapping[str, OpSpec], limits: Limits) -> dict[str, Possible]:
    """The cells that programs of these ops can fill, for the families of which the table names them."""
    dtypes = {f"{name} {dtype}" for name, spec in ops.items() for dtype in possible_dtypes(spec, limits)}
    layouts, attributes = set[str](), set[str]()
    open_layouts = open_attributes = 0
    for name, spec in ops.items():
        for operand in spec.operands:
            lie = possible_layouts(operand)
            open_layouts += lie is None
            layouts |= {f"{name} {operand.name} {kind}" for kind in lie or ()}
        for attribute in spec.attributes:
            classes = possible_classes(attribute, spec)
            open_attributes += classes is None
            attributes |= {f"{name} {attribute.name}={kind}" for kind in classes or ()}
    return {
        "op": Possible(frozenset(ops)),
        "dtype": Possible(frozenset(dtypes)),
        "attribute": Possible(frozenset(attributes), open_attributes),
        "layout": Possible(frozenset(layouts), open_layouts),
    }
