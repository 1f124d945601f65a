"""Triggers in how values share memory: views, writes in place, scatters into inputs, overlapping elements."""

from __future__ import annotations

from collections.abc import Iterator

from benches.triggers.kinds import Trigger
from benches.triggers.sketch import EXPANDERS, RESHAPERS, Sketch
from fuzzer.language.program import BETWEEN, Node

READS = frozenset("index index_select getitem take take_along_dim gather".split())
SCATTERS = frozenset(
    """slice_scatter select_scatter diagonal_scatter as_strided_scatter scatter scatter_add scatter_reduce index_add
    index_copy index_fill index_put masked_scatter""".split()
)
_PARTS = frozenset("narrow slice select diagonal".split())
_PRODUCTS = ("mm", "matmul", "bmm", "linear", "addmm", "einsum")  # that save a view of an operand


def _later_writes(s: Sketch, after: Node, storage: str) -> Iterator[Node]:
    """The nodes after this one that write into this memory."""
    for node, target in s.written():
        if s.order[node.outs[0]] > s.order[after.outs[0]] and s.storage(target) == storage:
            yield node


def _indices(node: Node) -> tuple[str | None, ...]:
    """The index operands of an index, index_put or index_select."""
    second = node.args[1] if len(node.args) > 1 else None
    return second if isinstance(second, tuple) else (second,)


def _may_repeat(s: Sketch, name: str | None) -> bool:
    """Whether a leaf of indices may name one twice."""
    leaf = s.leaves.get(name or "")
    if leaf is None or leaf.type.numel < 2 or leaf.values.name == "permutation":
        return False
    return leaf.values.name != "data" or len(set(leaf.values.args)) < len(leaf.values.args)


def _reads_of(s: Sketch, name: str, storage: str) -> Iterator[Node]:
    """The indexed reads of this memory on which a value depends."""
    return (n for n in s.ancestors(name) if n.op in READS and n.uses and s.storage(n.uses[0]) == storage)


def written_back_through_repeated_indices(s: Sketch) -> bool:
    """What was read from a tensor by indices is put back into it by the same ones, among which some are equal."""
    for node in s.of("index_put_", "index_copy_"):
        if s.attr(node, "accumulate") is True:
            continue
        for read in _reads_of(s, node.uses[-1], s.storage(node.uses[0])):
            if _indices(read) == _indices(node) and any(_may_repeat(s, name) for name in _indices(node)):
                return True
    return False


def exchanged_within_a_reshaped_clone(s: Sketch) -> bool:
    """Elements of a reshaped clone are put where others of it were read."""
    for node in s.of("index_put_", "index_copy_"):
        storage = s.storage(node.uses[0])
        cloned = s.made_by(storage, ("clone",)) is not None
        if cloned and s.made_by(node.uses[0], RESHAPERS) and any(_reads_of(s, node.uses[-1], storage)):
            return True
    return False


def written_through_two_strided_views(s: Sketch) -> bool:
    """Two writes into a computed value, each through a slice that skips elements."""
    seen: set[tuple[str, str]] = set()
    for _, target in s.written():
        view = s.made_by(target, ("slice",))
        if view is not None and s.attr(view, "step", 1) > 1 and (storage := s.storage(target)) not in s.leaves:
            seen.add((storage, view.outs[0]))
    storages = [storage for storage, _ in seen]
    return len(storages) > len(set(storages))


def copied_before_its_source_changes(s: Sketch) -> bool:
    """One input is copied into another, and then written."""
    for node in s.of("copy_"):
        target, source = (s.storage(name) for name in node.uses[:2])
        if {target, source} <= set(s.leaves) and target != source and any(_later_writes(s, node, source)):
            return True
    return False


def written_through_a_part_of_an_expansion(s: Sketch) -> bool:
    """A write through a part of an expanded value: other elements share the memory."""
    for _, target in s.written():
        part = s.made_by(target, _PARTS)
        expansion = part and s.made_by(part.uses[0], EXPANDERS, through=_PARTS | RESHAPERS)
        if expansion and s.expands(expansion):
            return True
    return False


def scattered_from_an_input_that_is_then_written(s: Sketch) -> bool:
    """A scatter makes a new tensor from an input, which is then overwritten."""
    scatters = [node for node in s.nodes if node.op in SCATTERS and s.storage(node.uses[0]) in s.leaves]
    return any(write.op != "copy_" for node in scatters for write in _later_writes(s, node, s.storage(node.uses[0])))


def shifted_within_its_own_memory(s: Sketch) -> bool:
    """A part of a tensor is cloned and copied onto another part of it."""
    for node in s.of("copy_"):
        target, source = node.uses[:2]
        origin = s.source(source)
        onto_part = s.made_by(target, _PARTS) is not None
        from_part = s.made_by(source, _PARTS, through=("clone", "contiguous")) is not None
        if onto_part and from_part and s.storage(target) == s.storage(origin):
            return True
    return False


def written_input_with_gaps(s: Sketch) -> bool:
    """An input whose elements do not lie next to each other is written in place."""
    return any(
        (storage := s.storage(target)) in s.leaves and s.order_in_memory(storage) == "gaps" for _, target in s.written()
    )


def added_into_an_expansion(s: Sketch) -> bool:
    """An accumulating scatter whose target is an expanded computed value."""
    for node in s.of("index_put", "index_add", "scatter_add"):
        accumulates = node.op != "index_put" or s.attr(node, "accumulate") is True
        expansion = s.made_by(node.uses[0], EXPANDERS)
        if accumulates and expansion and s.expands(expansion) and s.storage(node.uses[0]) not in s.leaves:
            return True
    return False


def as_strided_of_a_permuted_value(s: Sketch) -> bool:
    """as_strided reads the memory of a computed value whose order in memory is not that of its dimensions."""
    return any(
        s.storage(node.uses[0]) not in s.leaves and s.order_in_memory(node.uses[0]) == "permuted"
        for node in s.of("as_strided")
    )


def scattered_and_copied_back(s: Sketch) -> bool:
    """A scatter's result is copied back into the input that it was made from, and is an output besides."""
    outputs = {output.value for output in s.program.outputs}
    for node in s.of("copy_"):
        target, source = node.uses[:2]
        scatter = s.made_by(source, SCATTERS)
        same = scatter is not None and s.storage(scatter.uses[0]) == s.storage(target)
        if same and s.storage(target) in s.leaves and source in outputs:
            return True
    return False


def put_into_an_expansion_of_an_input(s: Sketch) -> bool:
    """An input is read, and then written by index through an expansion of itself, fewer indices than dimensions."""
    for node in s.of("index_put_"):
        expansion = s.made_by(node.uses[0], EXPANDERS)
        storage = s.storage(node.uses[0])
        shape = s.shape(node.uses[0])
        if expansion is None or storage not in s.leaves or shape is None or len(_indices(node)) >= len(shape):
            continue
        readers = s.readers.get(storage, ())
        if any(s.order[r.outs[0]] < s.order[node.outs[0]] and r.op not in EXPANDERS for r in readers):
            return True
    return False


def expanded_output(s: Sketch) -> bool:
    """An output is the expansion of a computed value."""
    outputs = (output.value for output in s.program.outputs if output.cotangent is not None)
    made = (s.made_by(name, EXPANDERS) for name in outputs)
    return any(node is not None and s.expands(node) and s.storage(node.uses[0]) not in s.leaves for node in made)


def part_of_an_input_written(s: Sketch) -> bool:
    """An input of several dimensions, one of them of size 1, is written in place through a select of that one."""
    for _, target in s.written():
        part = s.made_by(target, ("select",))
        shape = s.shape(part.uses[0]) if part is not None and s.storage(target) in s.leaves else None
        if part is not None and shape and len(shape) > 3 and shape[s.attr(part, "dim")] == 1:
            return True
    return False


def written_before_the_backward(s: Sketch) -> bool:
    """What a product reads, whose gradient needs it, is written between forward and backward."""
    late = s.inside(BETWEEN)
    written = {s.storage(target) for node, target in s.written() if node.outs[0] in late}
    return any(s.storage(name) in written for node in s.of(*_PRODUCTS) for name in node.uses)


TABLE: dict[int, Trigger] = {
    174074: written_back_through_repeated_indices,
    114464: exchanged_within_a_reshaped_clone,
    113641: written_through_two_strided_views,
    198131: copied_before_its_source_changes,
    152425: written_through_a_part_of_an_expansion,
    198094: scattered_from_an_input_that_is_then_written,
    198010: shifted_within_its_own_memory,
    93363: written_input_with_gaps,
    188084: added_into_an_expansion,
    174963: as_strided_of_a_permuted_value,
    195451: scattered_and_copied_back,
    175791: put_into_an_expansion_of_an_input,
    184088: expanded_output,
    94960: part_of_an_input_written,
    197887: written_before_the_backward,
}
