"""A script's tensors, compared by the usual functions: torch.testing.assert_close and torch._dynamo.utils.same
(private).

Run as `python -m fuzzer.diagnosis.look SCRIPT`. Its last line is JSON: for each tensor that both sides have, the worst
element and the messages of the two comparisons.
"""

import json
import sys
from functools import partial
from typing import Any

import torch

from fuzzer.language.private import passes_accuracy_check

_TOLERANCE = 1e-4  # the tolerance of `same`
_PLAIN = "plain"  # the variable of a script that holds torch's control flow against the same in plain Python
# What a script holds eager against, by the variable's name: there, and where no compiler runs.
_AGAINST = {
    _PLAIN: "plain Python",
    "contiguous": "contiguous inputs",
    "differences": "a central difference in float64",
    "exact": "float64",
}


def look(path: str) -> list[dict[str, Any]]:
    """A row for each tensor that the script at this path compared; none where it compared no tensors."""
    space: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    hook = sys.excepthook  # a script has its own
    try:
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), space)
    except SystemExit:
        pass
    finally:
        sys.excepthook = hook
    alone = "compiled" not in space
    against = next((name for name in _AGAINST if name in space and (alone or name == _PLAIN)), "")
    other = space.get(against or "compiled")
    sides: list[Any] = [other, space.get("eager"), space.get("exact", other)]
    compare = partial(_held_against, _AGAINST[against]) if against else _compared
    if all(isinstance(side, torch.Tensor) for side in sides):
        return [compare("", *sides)]
    if not all(isinstance(side, dict) for side in sides):
        return []
    other, eager, exact = sides
    names = [n for n in eager if all(side[n] is not None for side in sides)]
    return [compare(n, other[n], eager[n], exact[n]) for n in names]


def _held_against(
    against: str, name: str, other: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> dict[str, Any]:
    """The row of a tensor of eager's that is on trial."""
    other, eager = other.detach().cpu().to(eager.dtype), eager.detach().cpu()
    return _compared(name, other, eager, exact) | {"against": against, "close": _close(eager, other)}


def _compared(name: str, compiled: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> dict[str, Any]:
    compiled, eager, exact = (t.detach().cpu() for t in (compiled, eager, exact))
    row: dict[str, Any] = {"name": name, "index": None, "close": _close(compiled, eager)}
    row["same"] = passes_accuracy_check(eager, compiled, exact, _TOLERANCE)
    if compiled.shape == eager.shape == exact.shape and eager.numel() and not eager.is_complex():
        c, e, r = (t.double() for t in (compiled, eager, exact))
        off = torch.where(c.isnan() != e.isnan(), torch.inf, (c - e).abs().nan_to_num(0.0, torch.inf))
        place = torch.unravel_index(off.argmax(), off.shape)
        row |= {"index": [int(i) for i in place], "compiled": float(c[place]), "eager": float(e[place])}
        row |= {"exact": float(r[place]), "total": off.numel(), "off": int((off > 0).sum())}
    return row


def _close(actual: torch.Tensor, expected: torch.Tensor) -> str:
    """The message of assert_close at its defaults; "" where it passes. NaN on both sides is no difference."""
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
