"""The kernel behind an operator's names: an overload of ATen, a node of a graph, an op of a program."""

from __future__ import annotations

import functools
import re

# Names in torch of operators that one ATen kernel computes.
_ONE = (
    (r"\w*fft(_[cr]2[cr])?", "fft"),
    (r"conv|conv_transpose", "convolution"),
    (r"(slice|select|diagonal|as_strided)_scatter", "view_scatter"),
    (r"interpolate_(\w+)", r"upsample_\1"),
    (r"eigvals", "eig"),
)
_OVERLOAD = r"^(aten|prims)\.(\w+)(\.\w+)?$"
_BEFORE = r"^_+|^(native|unsafe|low_memory)_"
_BEHIND = (
    r"_+$|(?<=fft)[2n]$|\dd$|_(backward|backward_data|forward|functional|training|parts|abs|aa|put_accumulate)$"
    r"|_with_(indices|noise|offsets)$"
)


@functools.cache
def kernel(op: str) -> str:
    """The kernel that an operator computes, in one word, whatever the operator's name.

    An operator has one word with its derivative, its in-place form, its internal form and its form for other ranks:
    `aten.avg_pool2d_backward.default` and `avg_pool3d` both give avg_pool.
    """
    name, before = re.sub(_OVERLOAD, r"\2", op), ""
    while name != before:
        before, name = name, re.sub(_BEHIND, "", re.sub(_BEFORE, "", name)) or name
        for names, one in _ONE:
            name = re.sub(rf"^(?:{names})$", one, name)
    return name


def is_composite(op: str) -> bool:
    """Whether torch composes an op of others and differentiates those: a kernel in place of the whole op has no
    derivative."""
    from fuzzer.language.ops import OPS  # needs torch, which reading a ledger does not
    from fuzzer.language.private import is_composite as composite

    return op in OPS and composite(OPS[op].source)
