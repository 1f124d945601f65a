"""The pattern of a difference: which elements are wrong, and how their values relate to the right ones.

Pure functions of tensors that return one line of text each (`mask_text` several), for people and for the ledger.
"""

from __future__ import annotations

import itertools
import math

import torch

from fuzzer.judgement.fraction import fraction

# Wrong values are themselves rounded: ratios this close (relative) are one ratio.
_SAME_RATIO = 1e-3
_MOST_RATIOS = 3  # more different ratios are no pattern
_MOST_LISTED = 8  # indices of a dimension that are listed one by one
CANVAS = (16, 64)  # rows and columns of a drawing


def elements(mask: torch.Tensor) -> str:
    """Which elements a mask marks: whole, single element, tail, head, rows, stripes, block or scattered.

    A mask that is a product of choices of indices is described dimension by dimension, any other by its number of
    elements. In a dimension the choice is its tail or head (an interval that touches one end), a row (one index),
    stripes (indices at a constant step), a block (an interval inside) or a list.
    """
    marked, total = int(mask.sum()), mask.numel()
    if marked == 0:
        return "none"
    if marked == total:
        return f"whole: all {total}"
    if marked == 1:
        return f"single element: {tuple(mask.nonzero()[0].tolist())} of {list(mask.shape)}"
    chosen = [_touched(mask, dim) for dim in range(mask.dim())]
    if marked != math.prod(map(len, chosen)):
        where = tuple(mask.nonzero()[0].tolist())
        return f"scattered: {marked} of {total}, the first at {where}"
    told = [f"dim {d} {_choice(c, mask.shape[d])}" for d, c in enumerate(chosen) if len(c) < mask.shape[d]]
    kinds = {_kind(c, mask.shape[d]) for d, c in enumerate(chosen) if len(c) < mask.shape[d]}
    return f"{kinds.pop() if len(kinds) == 1 else 'block'}: {', '.join(told)}; {marked} of {total}"


def _touched(mask: torch.Tensor, dim: int) -> list[int]:
    """The indices of a dimension at which the mask marks anything."""
    others = [d for d in range(mask.dim()) if d != dim]
    return (mask.sum(others) if others else mask).nonzero().flatten().tolist()


def _kind(chosen: list[int], size: int) -> str:
    """The word for some, not all, of a dimension's indices; they ascend."""
    steps = {b - a for a, b in itertools.pairwise(chosen)}
    if len(chosen) == 1 and not (size > 2 and chosen[0] == size - 1):
        return "rows"
    if steps <= {1}:
        return "tail" if chosen[-1] == size - 1 else "head" if chosen[0] == 0 else "block"
    return "stripes" if len(steps) == 1 and len(chosen) > 2 else "rows"


def _choice(chosen: list[int], size: int) -> str:
    first, last = chosen[0], chosen[-1]
    if len(chosen) == 1:
        return f"at {first} of {size}"
    step = chosen[1] - first
    if any(b - a != step for a, b in itertools.pairwise(chosen)):
        more = ", ..." if len(chosen) > _MOST_LISTED else ""
        return f"at {', '.join(map(str, chosen[:_MOST_LISTED]))}{more} of {size}"
    return f"from {first} to {last} of {size}" + (f" in steps of {step}" if step > 1 else "")


def ratio(values: torch.Tensor, expected: torch.Tensor) -> str:
    """How wrong values relate to the expected ones: all zero, not finite, a factor or an offset shared by all of them.

    values, expected   float64, of one shape: the wrong elements alone, at least one.
    """
    odd = ~torch.isfinite(values)
    if bool(odd.any()):
        kinds = [name for name, found in (("NaN", values.isnan()), ("inf", values.isinf())) if bool(found.any())]
        return f"{' and '.join(kinds)} in {int(odd.sum())} of {values.numel()}"
    if not bool(torch.isfinite(expected).all()):
        return f"finite where {int((~torch.isfinite(expected)).sum())} of {values.numel()} should not be"
    if not bool(values.any()):
        return "all zero"
    if bool(expected.all()):
        found = _clusters(values / expected)
        if len(found) == 1:
            return f"constant factor {fraction(found[0])}"
        if len(found) <= _MOST_RATIOS < values.numel():
            return f"factors {', '.join(map(fraction, found))}"
    offsets = _clusters(values - expected)
    if len(offsets) == 1 and values.numel() > 1:
        return f"constant offset {fraction(offsets[0])}"
    return "no constant factor or offset"


def _clusters(numbers: torch.Tensor) -> list[float]:
    """The different numbers, ascending, at most one more than `_MOST_RATIOS`; numbers within SAME_RATIO count as
    one."""
    found: list[list[float]] = []
    for number in numbers.flatten().sort().values.tolist():
        if found and number - found[-1][0] <= _SAME_RATIO * max(abs(number), abs(found[-1][0])):
            found[-1].append(number)
        elif len(found) > _MOST_RATIOS:
            break
        else:
            found.append([number])
    return [group[len(group) // 2] for group in found]


def mask_text(mask: torch.Tensor) -> str:
    """The mask as rows of characters, # wrong and . right: its last dimension across, all others down.

    A mask larger than the canvas is shrunk; a character is then wrong where any of its elements is.
    """
    flat = mask.reshape(-1, mask.shape[-1] if mask.dim() else 1)
    for dim, most in enumerate(CANVAS):
        size = flat.shape[dim]
        if size > most:
            parts = [part.any(dim, keepdim=True) for part in flat.split(-(-size // most), dim)]
            flat = torch.cat(parts, dim)
    rows = "\n".join("".join("#" if wrong else "." for wrong in row) for row in flat.tolist())
    scale = f", drawn as {list(flat.shape)}" if flat.numel() < mask.numel() else ""
    return f"{list(mask.shape)}{scale}\n{rows}"
