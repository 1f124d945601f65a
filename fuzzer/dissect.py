"""A closer look at a program that differs, in a worker: the shape of the error, the code behind it, the bisector.

Entry points for the pool, as those of `execution.worker`; what they find is in the Report's notes and files.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator

import torch

from fuzzer.execution.messages import RAN, Report, Trial
from fuzzer.execution.worker import Refused, Task, examine, observed
from fuzzer.generated import shared, tidy_code, tidy_graph
from fuzzer.oracles import Judged, judge
from fuzzer.picture import drawing, elements, ratio
from fuzzer.private import bisect, graph_in_work, inner_graphs, output_code, readable
from fuzzer.program import Attributes
from fuzzer.settings import INFERENCE, in_force
from fuzzer.text import parse
from fuzzer.verdict import Signature
from minimizer.same import follows


def dissect(task: Task, text: str) -> Report:
    """Run a program once more; notes say which tensors are wrong, where and how, files hold drawings, graphs and code.

    notes   tensors, elements, ratio; none of them where no tensor lies outside its floor.  outcome, where it raised.
            shared forward_graph.py and so on: a node that inductor got, no view, whose elements share memory.
    files   x0.grad.txt (a drawing), forward_graph.py, backward_code.py and so on: graphs with strides as inductor
            lowers them (as it gets them, where lowering raises) and the code that it writes. A graph that holds both
            directions is called joint, a second one of a kind is numbered.
    """
    files, laid_out = dict[str, str](), dict[str, str]()
    try:
        with captured(parse(text).route.name, files, received_as=laid_out.__setitem__):
            trial = observed(task, text)
    except Refused as error:
        return Report(text, rejected=str(error))
    with torch.no_grad():
        found = list(judge(trial, list(trial.targets))) if trial.subject.outcome == RAN else []
    files |= {f"{j.name}.txt": drawing(j.mask) for j in found}
    raised = trial.subject.raised
    outcome = {"outcome": f"the {trial.subject.phase} raised {raised.kind}"} if raised else {}
    suspects = {f"shared {name}": nodes[0] for name, graph in laid_out.items() if (nodes := shared(graph))}
    return Report(text, notes=_picture(found) | outcome | suspects | {"shapes": _shapes(trial, found)}, files=files)


class Seen(Exception):
    """Both graphs were lowered."""


# The backward is compiled with the forward, not when it runs.
AT_ONCE: Attributes = (("functorch.force_non_lazy_backward_lowering", True),)


def glance(task: Task, text: str) -> Report:
    """The graphs and code alone of a program that takes its process with it: ends before any of the code runs."""
    files: dict[str, str] = {}

    def last(name: str) -> None:
        if not name.startswith("forward"):
            raise Seen

    with contextlib.suppress(Refused), in_force(AT_ONCE), captured(parse(text).route.name, files, last):
        observed(task, text)  # Seen becomes its outcome
    return Report(text, files=files)


def _picture(found: list[Judged]) -> dict[str, str]:
    if not found:
        return {}
    label = (lambda j: f"{j.name}: ") if len(found) > 1 else (lambda j: "")
    return {
        "tensors": ", ".join(j.name for j in found),
        "elements": "; ".join(label(j) + elements(j.mask) for j in found),
        "ratio": "; ".join(label(j) + _ratio(j) for j in found),
    }


def _ratio(j: Judged) -> str:
    side = j.eager if j.verdict == "eager-suspect" else j.compiled
    return ratio(side[j.mask], j.reference[j.mask])


def _shapes(trial: Trial, found: list[Judged]) -> str:
    """The shapes of the wrong tensors, as a graph's text writes them."""
    return " ".join(dict.fromkeys(str(list(j.mask.shape)).replace(" ", "") for j in found))


@contextlib.contextmanager
def captured(
    route: str,
    files: dict[str, str],
    note: Callable[[str], None] = lambda name: None,
    received_as: Callable[[str, str], object] = lambda name, graph: None,
) -> Iterator[None]:
    """Keep what inductor gets, lowers and writes meanwhile; note(name) is called with each file of code.

    received_as   is called with each graph's file and text before inductor's own passes, which take some nodes apart.
    """

    def free(kind: str, what: str) -> str:
        names = (f"{kind}_{what}{suffix}.py" for suffix in ("", *(f"_{i}" for i in range(2, 100))))
        return next(name for name in names if name not in files)

    def kind(backward: bool) -> str:
        return "joint" if route in INFERENCE else "backward" if backward else "forward"

    current: list[str] = []

    def received(module: object, backward: bool) -> bool:
        current[:] = [free(kind(backward), "graph")]
        files[current[0]] = tidy_graph(readable(module))
        received_as(current[0], files[current[0]])
        return True

    def written(code: str) -> None:
        if current:
            files[current[0]] = tidy_graph(graph_in_work()[1])
        name = free(kind(graph_in_work()[0]), "code")
        files[name] = tidy_code(code)
        note(name)

    with inner_graphs(received), output_code(written):
        yield


class OutOfTime(Exception):
    """The bisector's time is up."""


def bisected(task: Task, what: tuple[str, Signature, float]) -> Report:
    """Drive PyTorch's bisector with our verdict as its test; what is (program text, signature, seconds).

    notes   bisector: what it ended on, or why it did not;  backend, subsystem, info of its result;  runs.
    Must run in a process of its own: see `private.bisect`.
    """
    text, signature, seconds = what
    until = time.monotonic() + seconds
    seen: list[str] = []

    def agrees() -> bool:
        if time.monotonic() > until:
            raise OutOfTime
        found = examine(task, text)
        same = any(follows(signature, v.signature) for v in found.verdicts)
        seen.append("same" if same else found.verdict)
        return not same

    try:
        ended = bisect(agrees)
    except OutOfTime:
        return Report(text, notes={"bisector": f"ran out of its {seconds:.0f} s after {len(seen)} runs"})
    except RuntimeError as error:  # what it raises where an answer contradicts an earlier one
        return Report(text, notes={"bisector": f"gave up after {len(seen)} runs: {error}"})
    if ended is None:
        return Report(text, notes={"bisector": "the difference was gone with every backend"})
    backend, subsystem, number, info = ended
    info = re.sub(r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>", r"\1.\2", info)
    told = f"{backend}: {subsystem}, number {number}, {info}" if subsystem else f"{backend}, no subsystem of it"
    others = sum(1 for s in seen if s not in ("same", "agree"))
    doubt = f"; {others} of {len(seen)} runs showed something else and counted as good" if others else ""
    return Report(text, notes={"bisector": told + doubt, "backend": backend, "subsystem": subsystem, "info": info})
