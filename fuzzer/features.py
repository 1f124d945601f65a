"""What a program exercises, in words: the same in every process and run, and read before anything is compiled.

A feature is a family and a few words, as `("operand", "backward slice_scatter 0: f32 rank 3 broadcast")`; a campaign
counts it as a number (`hashed`). What is found, by family:

operand   an ATen operation of the trace, forward or backward, and one of its tensors (by place, or `gives` for a
          result): dtype, rank, layout.
edge      which operation made what an operation reads, and how it lies there. `saved` goes from the forward to the
          backward; `leaf` and `cotangent` were there before. Views make nothing: they are seen as layouts.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

from fuzzer.ops.spec import writable
from fuzzer.program import TensorType, contiguous, extent
from fuzzer.trace import Ref, Step, Trace
from fuzzer.values import NAMES

Words = Mapping[str, frozenset[str]]  # by family
Features = Mapping[str, frozenset[int]]

# Of the compiler's source (`execution.lines`): a process tells each for the first program that reaches it there.
LINES = ("source",)
MOST_PLACES = 3  # operands beyond are alike: a list of tensors has no places of its own


def of_trace(trace: Trace) -> dict[str, frozenset[str]]:
    """The words of FAMILIES."""
    return {family: frozenset(words(trace)) for family, words in OF_TRACE.items()}


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


OF_TRACE: Mapping[str, Callable[[Trace], Iterator[str]]] = {"operand": _operands, "edge": _edges}
FAMILIES = tuple(OF_TRACE)


def _kind(ref: Ref) -> str:
    return described(NAMES.get(ref.dtype, str(ref.dtype)), len(ref.shape), _layout_of(ref))


def _layout_of(ref: Ref) -> str:
    lazy = " conjugate" * ref.conj + " negative" * ref.neg
    return layout(ref.shape, ref.stride, ref.offset) + lazy


def described(dtype: str, rank: int, lies: str) -> str:
    """A tensor's dtype, rank and layout in words."""
    return f"{dtype} rank {rank} {lies}"


@functools.lru_cache(maxsize=1 << 14)
def layout(shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> str:
    """How a tensor lies in its storage: contiguous, permuted, gaps, broadcast (stride 0), overlapping or empty.

    `at offset` where it starts inside, `size 1` where a dimension holds one element.
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
    return "permuted" if extent(sizes, steps) == torch.Size(sizes).numel() else "gaps"


@functools.lru_cache(maxsize=1 << 17)
def number(family: str, word: str) -> int:
    """A feature as 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(f"{family} {word}".encode(), digest_size=8).digest(), "little")


def hashed(words: Words) -> dict[str, frozenset[int]]:
    """The numbers of words, by family."""
    return {family: frozenset(number(family, word) for word in found) for family, found in words.items()}


def joined(features: Iterable[Features]) -> dict[str, frozenset[int]]:
    """All of these together, by family."""
    found: dict[str, frozenset[int]] = {}
    for one in features:
        found |= {family: found.get(family, frozenset()) | numbers for family, numbers in one.items()}
    return found
