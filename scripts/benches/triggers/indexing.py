"""Triggers in reads and accumulations by index, and in what is repeated."""

from __future__ import annotations

from benches.triggers.kinds import HALF, Trigger, numbers
from benches.triggers.sketch import RESHAPERS, TRANSPOSERS, Sketch

_ADDS = ("index_add", "scatter_add", "index_put")
_READS = ("index_select", "index", "gather", "take", "embedding", "take_along_dim")


def extremum_that_leaves_itself_out(s: Sketch) -> bool:
    """index_reduce by amax or amin in which the target's own elements do not count."""
    return any(
        s.attr(node, "reduce") in ("amax", "amin") and s.attr(node, "include_self", True) is False
        for node in s.of("index_reduce")
    )


def added_to_one_row_and_read_back(s: Sketch) -> bool:
    """Summands are added to a single row, and the same indices read the sum for use beside the summands."""
    for node in s.of("index_add"):
        target, index, source = node.uses[:3]
        if s.size(target, s.attr(node, "dim")) != 1:
            continue
        for read in s.readers.get(node.outs[0], ()):
            if read.op in _READS and index in read.uses:
                beside = [n for n in s.readers.get(read.outs[0], ()) if source in n.uses]
                if beside:
                    return True
    return False


def embedded_from_the_end(s: Sketch) -> bool:
    """An embedding is asked for a row by a negative index."""
    return any(
        any(n < 0 for n in numbers(recipe))
        for node in s.of("embedding", "embedding_bag", "embedding_bag_weighted")
        for recipe in [s.recipe(node.uses[1])]
        if recipe is not None and recipe.name == "data"
    )


def _under_threads(s: Sketch) -> bool:
    """Code is written for several threads: only then do its sums into memory have to be atomic."""
    return s.settings.get("inductor.cpp.threads", 1) >= 2


def gathered_in_bfloat16(s: Sketch) -> bool:
    """gather in bfloat16 under several threads, and its gradient is wanted."""
    read = [node.uses[0] for node in s.of("gather")]
    return _under_threads(s) and any(s.dtype(x) == "bf16" and s.tracked(x) for x in read)


def added_by_index_in_bfloat16(s: Sketch) -> bool:
    """index_add in bfloat16 under several threads."""
    return _under_threads(s) and any(s.dtype(node.uses[0]) == "bf16" for node in s.of("index_add", "index_add_"))


def read_by_index_and_transposed_under_threads(s: Sketch) -> bool:
    """Of each block the row that an index chose, transposed, and code is written for several threads: the gradient adds
    tile by tile, and where it adds depends on both sides of the tile."""
    if not _under_threads(s):
        return False
    for node in s.of(*TRANSPOSERS):
        read = s.made_by(node.uses[0], ("index_select",), through=RESHAPERS)
        shape = None if read is None else s.shape(read.uses[0])
        if read is None or shape is None or s.numel(read.uses[1]) != 1 or not s.tracked(read.uses[0]):
            continue
        if s.attr(read, "dim") % len(shape) != 0:
            return True
    return False


def repeated_and_reversed(s: Sketch) -> bool:
    """A flip of repeated values, with symbolic sizes."""
    flips = s.of("flip", "fliplr", "flipud", "rot90") if s.dynamic else ()
    return any(s.made_by(node.uses[0], ("repeat_interleave",), through=RESHAPERS) for node in flips)


def remainder_by_a_norm(s: Sketch) -> bool:
    """remainder by a norm, in float16."""
    return any(
        s.dtype(node.uses[0]) in HALF[:1] and s.made_by(node.uses[1], ("vector_norm", "norm"))
        for node in s.of("remainder", "remainder_", "fmod")
    )


TABLE: dict[int, Trigger] = {
    168358: extremum_that_leaves_itself_out,
    171493: added_to_one_row_and_read_back,
    96290: gathered_in_bfloat16,
    95189: added_by_index_in_bfloat16,
    191861: read_by_index_and_transposed_under_threads,
    187027: repeated_and_reversed,
    97758: remainder_by_a_norm,
    151918: embedded_from_the_end,
}
