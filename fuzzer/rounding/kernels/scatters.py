"""Sums in which each term is added to memory, in the tensors' own dtype on some device or in some layout: scatters, and
backwards of embeddings, pooling and padding."""

from __future__ import annotations

from typing import Any

import torch

from fuzzer.rounding.kernels.row import ACCUMULATION, EXACT, Kernel, Kind, Noise, each
from fuzzer.rounding.precision import epsilon
from fuzzer.rounding.trace import Step, is_rounded


def _reduced(step: Step) -> Kind:
    return EXACT if any(a in ("amax", "amin") for a in step.args if isinstance(a, str)) else ACCUMULATION


def _met_along(step: Step) -> float:
    """An element's own value, and one for each index along the dimension."""
    index = step.args[2]
    return float((index.shape[step.args[1]] if len(index.shape) > 1 else index.numel) + 1)


def _met_by_indices(step: Step) -> float:
    """The most terms that one element may receive: one for each index."""
    return float(max((ref.numel for ref in step.inputs if not is_rounded(ref)), default=1) or 1)


def _scaled_by_frequency(step: Step, args: Any, kwargs: Any) -> Any:
    """embedding_bag's gradient, each row divided by the number of its index' occurrences. The CPU's kernel uses another
    index' count (pytorch #190063, up to 2.13 at least), CUDA's does not. args: as in the schema; autograd gives all of
    them."""
    rows, scaled, mode = args[6:9]
    if not scaled or mode == 2:  # for a maximum neither kernel scales
        return step.op(*args, **kwargs)
    counts = torch.bincount(args[1].flatten(), minlength=rows).clamp_min(1)
    return step.op(*args[:7], False, *args[8:], **kwargs) / counts[:, None]


def _sampled(step: Step, args: Any, noise: Noise, scale: float) -> Any:
    """A sample of fractional pooling for each window, and last the one that all of them subtract: (N, C, dimensions,
    windows + 1). Each has the error of (i + sample) alpha in the samples' dtype, for window i: half a unit each of the
    sum, of alpha and of the product (`generate_intervals`, ATen/native/FractionalMaxPooling.h)."""
    x, window, windows, samples = args
    if 0 in window:  # its result shows no sample
        return args
    number = torch.arange(max(windows) + 1, dtype=samples.dtype, device=samples.device)
    number[-1] = 0
    unit = 1.5 * scale * epsilon(step.args[3].dtype)
    return x, window, windows, samples[..., None] + noise(samples[..., None] + number) * unit * (number + 1)


def _pooled_by_samples(step: Step, args: Any, kwargs: Any) -> Any:
    """Fractional pooling; also with a sample for each window (`_sampled`), which the kernel cannot take. Returns the
    largest elements and their indices within a channel, the first of equals and the last NaN, as the kernel does."""
    x, window, windows, samples = args
    if samples.dim() == 3:
        return step.op(*args, **kwargs)
    dims = len(window)
    sizes, leading = x.shape[-dims:], x.shape[:-dims]
    planes = x.reshape(-1, leading[-1], sizes.numel())
    at = torch.zeros((), dtype=torch.int64, device=x.device)
    for dim, (size, length, count) in enumerate(zip(sizes, window, windows, strict=True)):
        sample = samples[: len(planes), :, 1 - dim if dims == 2 else dim]  # two dimensions have theirs in reverse
        inside = _starts(sample, size - length, count)[..., None] + torch.arange(length, device=x.device)
        before, behind = (1,) * dim, (1,) * (dims - 1 - dim)
        at = at * size + inside.view(*inside.shape[:2], *before, count, *behind, *before, length, *behind)
    at = at.flatten(2 + dims)
    values = planes.gather(2, at.flatten(2)).view(at.shape)
    largest, first = values.max(-1)
    numbered = values.isnan() * torch.arange(1, values.shape[-1] + 1, device=x.device)
    found = torch.where(largest.isnan(), numbered.argmax(-1), first)
    indices = at.gather(-1, found[..., None])
    return largest.view(*leading, *windows), indices.view(*leading, *windows)


def _starts(sample: torch.Tensor, room: int, count: int) -> torch.Tensor:
    """Where windows start, (N, C, count): window i at trunc((i + sample) alpha) - trunc(sample alpha), the last one at
    the end."""
    alpha = room / max(count - 1, 1)
    numbers = torch.arange(count, device=sample.device)
    starts = ((numbers + sample[..., :count]) * alpha).trunc() - (sample[..., -1:] * alpha).trunc()
    return torch.where(numbers < count - 1, starts, float(room)).clamp(0, room).long()


def _times_put(
    x: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False, *_: Any
) -> torch.Tensor | None:
    if accumulate:
        return None
    counts, ones = (torch.zeros_like(x, dtype=torch.float64), torch.ones_like(values, dtype=torch.float64))
    put = counts.put if isinstance(indices, torch.Tensor) else counts.index_put
    return put(indices, ones, accumulate=True)


TABLE = (
    *each("fractional_max_pool2d fractional_max_pool3d", rounds_first=_sampled, mended=_pooled_by_samples),
    *each("scatter_add index_add", ACCUMULATION, terms=_met_by_indices, narrow=True),
    *each("index_put _index_put_impl put", ACCUMULATION, terms=_met_by_indices, narrow=True, times_written=_times_put),
    *each(
        "scatter_reduce index_reduce",
        ACCUMULATION,
        kind_of=_reduced,
        terms=_met_along,
        narrow=True,
        divides=True,
    ),
    Kernel("_unsafe_masked_index_put_accumulate", narrow=True),
    Kernel(
        "embedding_dense_backward",
        ACCUMULATION,
        terms=_met_by_indices,
        narrow=True,
        divides=True,
        frequency_at=4,
    ),
    Kernel("_embedding_bag", narrow=True),
    *each(
        "_embedding_bag_forward_only _embedding_bag_per_sample_weights_backward",
        unstated="sums of products, in an order and a dtype that differ by device",
    ),
    Kernel("_embedding_bag_backward", narrow=True, frequency_at=7, mended=_scaled_by_frequency),
    Kernel("_embedding_bag_dense_backward", ACCUMULATION, narrow=True, divides=True),
    *each("col2im unfold_backward", ACCUMULATION, narrow=True),
    *each("avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d", ACCUMULATION, divides=True),
    # they divide before they sum
    *each(
        """
        avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
        fractional_max_pool2d_backward fractional_max_pool3d_backward
        """,
        narrow=True,
    ),
    *each(
        """
        max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward
        adaptive_max_pool3d_backward reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
        replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
        """,
        ACCUMULATION,
        narrow=True,
    ),
)
