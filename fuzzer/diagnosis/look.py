"""A script's tensors, compared by the usual functions: torch.testing.assert_close and torch._dynamo.utils.same
(private).

Run as `python -m fuzzer.diagnosis.look SCRIPT`. Its last line is JSON: for each tensor that both sides have, the worst
element and the messages of the two comparisons.
"""

import json
import sys
from typing import Any

import torch

from fuzzer.language.private import passes_accuracy_check

_TOLERANCE = 1e-4  # the tolerance of `same`
# What a script without a compiler holds eager against, by the variable's name.
_AGAINST = {"contiguous": "contiguous inputs", "exact": "float64"}


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
    against = next((name for name in _AGAINST if "compiled" not in space and name in space), "")
    sides: list[Any] = [space.get(name) for name in (against or "compiled", "eager", "exact")]
    if against and all(isinstance(side, torch.Tensor) for side in sides):
        other, eager, exact = sides
        other = other.detach().cpu().to(eager.dtype)
        told = {"against": _AGAINST[against], "close": _close(eager.detach().cpu(), other)}
        return [_compared("", other, eager, exact) | told]
    if all(isinstance(side, torch.Tensor) for side in sides):
        return [_compared("", *sides)]  # type: ignore[arg-type]
    if not all(isinstance(side, dict) for side in sides):
        return []
    compiled, eager, exact = sides
    names = [n for n in eager if all(side[n] is not None for side in sides)]  # type: ignore[index, union-attr]
    return [_compared(n, compiled[n], eager[n], exact[n]) for n in names]  # type: ignore[index]


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
