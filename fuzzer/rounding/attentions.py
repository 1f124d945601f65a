"""Attention that is written out: a product, a softmax of its scores, and a product that reads the probabilities.

A compiler may put one fused kernel in its place, as inductor's fx_passes/fuse_attention.py does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fuzzer.rounding.kernels import kernel
from fuzzer.rounding.kernels.row import COPY, EXACT
from fuzzer.rounding.trace import Step


def attentions(steps: Sequence[Step]) -> frozenset[int]:
    """The numbers of the steps that are the softmax of an attention. Scores may be scaled, masked or copied before,
    probabilities dropped out after."""
    scores: set[int] = set()  # storages of values that come from a product
    softmaxes: dict[int, int] = {}  # by the storage of a value that comes from the softmax
    found = set()
    for number, step in enumerate(steps):
        row = kernel(step)
        read, made = {ref.storage for ref in step.inputs}, {ref.storage for ref in step.results}
        if row.is_product:
            found |= {softmaxes[storage] for storage in read & softmaxes.keys()}
            scores |= made
        elif row.attended is not None and read & scores:
            softmaxes |= dict.fromkeys(made, number)
        elif not _keeps_places(step):
            continue
        elif read & scores:
            scores |= made
        elif read & softmaxes.keys():
            softmaxes |= dict.fromkeys(made, softmaxes[min(read & softmaxes.keys())])
    return frozenset(found)


def _keeps_places(step: Step) -> bool:
    """Whether each of its results comes from one element: it is scaled, masked, cast or copied."""
    return torch.Tag.pointwise in step.op.tags or kernel(step).kind in (COPY, EXACT)
