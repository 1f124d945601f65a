"""Does a program, or a repro that PyTorch's minifier wrote, show a fault? By our oracles.

`python -m benches.kept FILE wrong|raises` runs a `.prog`, or the module of a `repro.py` on its own inputs, in
eager and compiled, and prints one JSON object: whether the oracles see a fault of this class, and which. A process of
its own, because a repro sets the compiler's configuration for good.

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

from fuzzer.judgement.oracles import verdicts
from fuzzer.judgement.trial import RAISED, RAN, Observation, Place, Raised, Subject, Trial
from fuzzer.judgement.verdict import Verdict
from fuzzer.language.private import preload, repro_inputs
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.rounding.record import Recorder
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

_NOTHING = Program((), (), ())


def _load(path: Path) -> tuple[torch.nn.Module, Callable[[], list[Any]], bool]:
    """A repro's module, what gives it fresh inputs, and whether it is a forward."""
    text = path.read_text()
    preload()  # the file may set the minifier's own switches, which torch reads while it is imported
    space = runpy.run_path(str(path))
    stored = re.search(r"save_dir='([^']*)'", text)
    folder = stored.group(1) if stored else None
    return space["mod"], lambda: repro_inputs(space["load_args"], folder), "repro.after_dynamo" in text


def _values(module: Callable[..., Any], inputs: list[Any], forward: bool) -> dict[str, torch.Tensor]:
    """What the module returns, by number; of a forward also the gradients of the outputs' sum."""
    with torch.set_grad_enabled(forward):
        found = module(*inputs)
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    sums = [t.sum() for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients = torch.autograd.grad(sums, wanted, allow_unused=True) if forward and sums and wanted else ()
    tensors = enumerate((*outputs, *gradients))
    return {f"t{i}": t.detach() for i, t in tensors if isinstance(t, torch.Tensor)}


def _of_repro(path: Path) -> list[Verdict]:
    """What the oracles say of a repro's module, its results taken for gradients."""
    module, inputs, forward = _load(path)
    try:
        compiled = Observation(RAN, gradients=_values(torch.compile(module, fullgraph=True), inputs(), forward))
    except Exception as error:
        compiled = Observation(RAISED, raised=Raised(type(error).__name__, str(error)))
    recorder, given = Recorder(), inputs()
    with recorder:
        eager = _values(module, given, forward)
    targets = {f"{name}.grad": recorder.ref(t) for name, t in eager.items()}
    trial = Trial(_NOTHING, Place(), Observation(RAN, gradients=eager), compiled, recorder.trace, targets)
    with torch.no_grad():
        return verdicts(trial)


def _of_program(path: Path, device: str) -> list[Verdict]:
    """What the oracles say of a program."""
    place = Place(Subject("eager", device), Subject("inductor", device))
    return list(report_program(parse(path.read_text()), Task(place, fresh=True), Journal(None)).verdicts)


def check_kept(path: Path, wanted: str, device: str = "cpu") -> dict[str, Any]:
    """{"kept": whether the worst verdict is of this class, "how": that verdict in words}."""
    found = _of_program(path, device) if path.suffix == ".prog" else _of_repro(path)
    if not found:
        return {"kept": False, "how": "agree"}
    return {"kept": found[0].signature.verdict == wanted, "how": f"{found[0].signature.verdict}: {found[0].detail}"}


if __name__ == "__main__":
    print(json.dumps(check_kept(Path(sys.argv[1]), *sys.argv[2:])))
