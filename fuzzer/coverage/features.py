"""Features of a program, in words: the same in every process and run, and read before anything is compiled.

A feature is a family and a few words, as `("operand", "backward slice_scatter 0: f32 rank 3 broadcast")`; a campaign
counts it as a number (`feature_ids`). The families:

operand   an ATen operation of the trace, forward or backward, and the dtype, rank and layout of one of its tensors,
          given by its place among the operands, or `gives` for a result.
edge      an operation, the operation that made one of its operands, and that operand's memory layout. `saved`: made in
          the forward and read in the backward. `leaf`, `cotangent`: not made by an operation. Views make nothing.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fuzzer.language.program import TensorType, contiguous, extent, writable

if TYPE_CHECKING:  # they need torch
    from fuzzer.rounding.trace import Ref, Step, Trace

Words = Mapping[str, frozenset[str]]  # by family
Features = Mapping[str, frozenset[int]]

# The family of the compiler's own lines (`coverage.lines`). A process reports a line once, for the first program that
# reaches it there; features of all other families are reported for every program.
LINES = ("source",)
MOST_PLACES = 3  # operands from this position on count as one: a list of tensors has no positions of its own


def trace_words(trace: Trace) -> dict[str, frozenset[str]]:
    """The words of a trace, by family of TRACE_FAMILIES."""
    return {family: frozenset(words(trace)) for family, words in TRACE_WORDS.items()}


def _direction(step: Step) -> str:
    return "backward" if step.backward else "forward"


def _operands(trace: Trace) -> Iterator[str]:
    for step in trace.steps:
        for i, ref in enumerate(step.inputs):
            yield f"{_direction(step)} {step.name} {min(i, MOST_PLACES)}: {_kind(ref)}"
        for ref in step.results:
            yield f"{_direction(step)} {step.name} gives {_kind(ref)}"


def _edges(trace: Trace) -> Iterator[str]:
    made: dict[int, Step] = {}
    for step in trace.steps:
        for i, ref in enumerate(step.inputs):
            maker = made.get(ref.storage)
            source = maker.name if maker else trace.roles.get(ref.storage, "constant")
            way = "saved" if maker and maker.backward != step.backward else _direction(step)
            yield f"{way} {source} > {step.name} {min(i, MOST_PLACES)}: {_layout_of(ref)}"
        made |= {ref.storage: step for ref in step.results}


TRACE_WORDS: Mapping[str, Callable[[Trace], Iterator[str]]] = {"operand": _operands, "edge": _edges}
TRACE_FAMILIES = tuple(TRACE_WORDS)


def _kind(ref: Ref) -> str:
    from fuzzer.language.values import DTYPE_NAMES  # it needs torch

    return tensor_words(DTYPE_NAMES.get(ref.dtype, str(ref.dtype)), len(ref.shape), _layout_of(ref))


def _layout_of(ref: Ref) -> str:
    lazy = " conjugate" * ref.conj + " negative" * ref.neg
    return layout_words(ref.shape, ref.stride, ref.offset) + lazy


def tensor_words(dtype: str, rank: int, layout: str) -> str:
    """A tensor's dtype, rank and layout (`layout_words`) as one text."""
    return f"{dtype} rank {rank} {layout}"


@functools.lru_cache(maxsize=1 << 14)
def layout_words(shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> str:
    """A tensor's layout: contiguous, permuted, gaps, broadcast (stride 0), overlapping or empty.

    Followed by `at offset` where the storage offset is not 0, and `size 1` where a dimension has one element.
    """
    remarks = " at offset" * bool(offset) + " size 1" * (1 in shape)
    return _order(shape, stride) + remarks


def _order(shape: tuple[int, ...], stride: tuple[int, ...]) -> str:
    if 0 in shape:
        return "empty"
    real = [(size, step) for size, step in zip(shape, stride, strict=True) if size > 1]
    if any(step == 0 for _, step in real):
        return "broadcast"
    sizes, steps = tuple(size for size, _ in real), tuple(step for _, step in real)
    if steps == contiguous(sizes):
        return "contiguous"
    if not writable(TensorType("f32", sizes, steps)):
        return "overlapping"
    return "permuted" if extent(sizes, steps) == math.prod(sizes) else "gaps"


@functools.lru_cache(maxsize=1 << 17)
def feature_id(family: str, word: str) -> int:
    """A feature as an unsigned 64-bit integer, the same in every process."""
    return int.from_bytes(hashlib.blake2b(f"{family} {word}".encode(), digest_size=8).digest(), "little")


def feature_ids(words: Words) -> dict[str, frozenset[int]]:
    """The ids of words, by family."""
    return {family: frozenset(feature_id(family, word) for word in found) for family, found in words.items()}
