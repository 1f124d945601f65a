"""Does a repro that PyTorch's minifier wrote show a fault, by a measure that is not its own?

`python -m fuzzer.bench.kept repro.py wrong|raises` runs the module of that file in eager and compiled, on its own
inputs, and prints one JSON object: whether they differ, and how. A process of its own, because the file sets the
compiler's configuration for good.

A graph that was cut out after AOTAutograd computes gradients itself, and is called. One that was cut out after dynamo
is a forward: its gradients are those of the sum of its outputs, as a person who gets the file would take them.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fuzzer.private import preload, repro_inputs

Load = Callable[[], list[Any]]


def load(path: Path) -> tuple[torch.nn.Module, Load, bool]:
    """The file's module, a function that gives fresh inputs, and whether the module is a forward to differentiate."""
    text = path.read_text()
    preload()  # the file may set the minifier's own switches, which torch reads while it is imported
    space = runpy.run_path(str(path))
    stored = re.search(r"save_dir='([^']*)'", text)
    folder = stored.group(1) if stored else None
    return space["mod"], lambda: repro_inputs(space["load_args"], folder), "repro.after_dynamo" in text


def values(module: Callable[..., Any], inputs: list[Any], forward: bool) -> list[torch.Tensor | None]:
    """What the module returns; of a forward also the gradients of the outputs' sum."""
    with torch.set_grad_enabled(forward):
        found = module(*inputs)
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    sums = [t.sum() for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients = torch.autograd.grad(sums, wanted, allow_unused=True) if forward and sums and wanted else ()
    return [t.detach() if isinstance(t, torch.Tensor) else None for t in (*outputs, *gradients)]


def differs(eager: torch.Tensor | None, compiled: torch.Tensor | None, exact: torch.Tensor | None) -> bool:
    """Whether an element lies 16 times as far from eager as eager from float64, and 64 units: what `export` writes."""
    if eager is None or compiled is None or exact is None:
        return (eager is None) != (compiled is None)
    if (eager.dtype, eager.shape) != (compiled.dtype, compiled.shape):
        return True
    unit = torch.finfo(eager.dtype).eps if eager.is_floating_point() else 0.0
    e, c, r = (t.double() for t in (eager, compiled, exact))
    scale = e.nan_to_num(0, 0, 0).abs().amax() if e.numel() else 0.0
    limit = (16 * (e - r)).abs().nan_to_num(0).clamp(min=64 * unit * scale)
    beyond = (c - e).abs().nan_to_num(float("inf")) > limit
    return bool((beyond & (c != e) & ~(c.isnan() & e.isnan())).any())


def double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def in_float64(module: torch.nn.Module, inputs: list[Any], forward: bool) -> list[torch.Tensor | None] | None:
    """The same in float64; None where the module does not run in it."""
    try:
        return values(module.double(), [double(x) for x in inputs], forward)
    except RuntimeError:  # a dtype that the module names does not go with float64
        return None


def check(path: Path, verdict: str) -> dict[str, Any]:
    """{"kept": whether the repro shows a fault of this class, "how": in words}."""
    module, inputs, forward = load(path)
    try:
        compiled = values(torch.compile(module, fullgraph=True), inputs(), forward)
    except Exception as error:
        values(module, inputs(), forward)
        how = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"kept": verdict == "raises", "how": how}
    eager = values(module, inputs(), forward)
    exact = in_float64(module, inputs(), forward) or eager
    wrong = [i for i, three in enumerate(zip(eager, compiled, exact, strict=True)) if differs(*three)]
    return {"kept": verdict == "wrong" and bool(wrong), "how": f"{len(wrong)} of {len(eager)} tensors differ"}


if __name__ == "__main__":
    print(json.dumps(check(Path(sys.argv[1]), sys.argv[2])))
