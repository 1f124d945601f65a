"""A closer look at a program that differs, in a worker: the shape of the error, the code behind it, the bisector.

Entry points for the pool, as those of `trial.tasks`; what they find is in the Report's notes and files.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator

import torch

from fuzzer.diagnosis.listings import shared, tidy_code, tidy_graph
from fuzzer.diagnosis.side import side_of, who_raised
from fuzzer.judgement.comparison import TensorVerdict
from fuzzer.judgement.narrowing import unexplained
from fuzzer.judgement.pattern import elements, mask_text, ratio
from fuzzer.judgement.trial import RAN, Trial
from fuzzer.judgement.verdict import Signature, follows
from fuzzer.language.private import bisect, graph_in_work, inner_graphs, output_code, readable
from fuzzer.language.program import Attributes
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import in_force
from fuzzer.language.text import parse
from fuzzer.ledger.diagnosed import TRACEBACK
from fuzzer.trial.pipeline import Refused, report_program
from fuzzer.trial.tasks import run_trial
from fuzzer.workers.journal import journal
from fuzzer.workers.messages import Report, Task


def describe_and_decide(task: Task, text: str) -> Report:
    """`describe_difference` of a program that ran, with the wrong side in the note `side`."""
    return describe_difference(task, text, decides=True)


def describe_difference(task: Task, text: str, decides: bool = False) -> Report:
    """Run a program once more; notes name the wrong tensors and their errors, files hold drawings, graphs and code.

    notes   tensors, elements, ratio; none of them where no tensor lies outside its floor.  Where the program raised:
            outcome, and raised, the origin of the exception; its traceback.txt is among the files.
            shared forward_graph.py and so on: a node of inductor's input, no view, whose elements share memory.
    files   x0.grad.txt (a drawing), forward_graph.py, backward_code.py and so on: graphs with strides as inductor
            lowers them (or its input, where lowering raises) and the generated code. A graph that holds both directions
            is called joint, a second one of a kind is numbered.
    """
    program, files, graphs = parse(text), dict[str, str](), dict[str, str]()
    try:
        with _capture_code(program.route.name, files, received_as=graphs.__setitem__):
            trial = run_trial(task, program)
    except Refused as error:
        return Report(text, rejected=str(error))
    with torch.no_grad():
        found = unexplained(trial, list(trial.targets)) if trial.subject.outcome == RAN else []
    files |= {f"{j.name}.txt": mask_text(j.mask) for j in found}
    raised = trial.subject.raised
    outcome = dict[str, str]()
    if raised:
        outcome = {"outcome": f"the {trial.subject.phase} raised {raised.kind}", "raised": who_raised(raised)}
        files[TRACEBACK] = raised.traceback
    elif decides and trial.subject.outcome == RAN:
        outcome = {"side": side_of(trial)}
    suspects = {f"shared {name}": nodes[0] for name, graph in graphs.items() if (nodes := shared(graph))}
    return Report(text, notes=_difference(found) | outcome | suspects | {"shapes": _shapes(trial, found)}, files=files)


class _GraphsLowered(Exception):
    """Ends a run: both graphs were lowered."""


# Makes the backward compile with the forward, not when it runs.
_COMPILE_BACKWARD_TOO: Attributes = (("functorch.force_non_lazy_backward_lowering", True),)


def compile_only(task: Task, text: str) -> Report:
    """The graphs and code alone of a program that takes its process with it: ends before any of the code runs."""
    program, files = parse(text), dict[str, str]()

    def last(name: str) -> None:
        if not name.startswith("forward"):
            raise _GraphsLowered

    with (
        contextlib.suppress(Refused),
        in_force(_COMPILE_BACKWARD_TOO),
        _capture_code(program.route.name, files, last),
    ):
        run_trial(task, program)  # _GraphsLowered becomes its outcome
    return Report(text, files=files)


def _difference(found: list[TensorVerdict]) -> dict[str, str]:
    if not found:
        return {}
    label = (lambda j: f"{j.name}: ") if len(found) > 1 else (lambda j: "")
    return {
        "tensors": ", ".join(j.name for j in found),
        "elements": "; ".join(label(j) + elements(j.mask) for j in found),
        "ratio": "; ".join(label(j) + _ratio(j) for j in found),
    }


def _ratio(j: TensorVerdict) -> str:
    side = j.eager if j.verdict == "eager-suspect" else j.compiled
    return ratio(side[j.mask], j.reference[j.mask])


def _shapes(trial: Trial, found: list[TensorVerdict]) -> str:
    """The shapes of the wrong tensors, in the notation of a graph's text."""
    return " ".join(dict.fromkeys(str(list(j.mask.shape)).replace(" ", "") for j in found))


@contextlib.contextmanager
def _capture_code(
    route: str,
    files: dict[str, str],
    note: Callable[[str], None] = lambda name: None,
    received_as: Callable[[str, str], object] = lambda name, graph: None,
) -> Iterator[None]:
    """Keep inductor's input graphs, lowered graphs and code of the `with` block; note(name) is called with each file of
    code.

    received_as   is called with each graph's file and text before inductor's own passes, which take some nodes apart.
    """

    def free(kind: str, what: str) -> str:
        names = (f"{kind}_{what}{suffix}.py" for suffix in ("", *(f"_{i}" for i in range(2, 100))))
        return next(name for name in names if name not in files)

    def kind(backward: bool) -> str:
        return "joint" if ROUTES[route].joint else "backward" if backward else "forward"

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


class _OutOfTime(Exception):
    """The bisector's time is up."""


def run_bisector(task: Task, what: tuple[str, Signature, float]) -> Report:
    """Run PyTorch's bisector with our verdict as its test; what is (program text, signature, seconds).

    notes   bisector: its result, or why there is none;  backend, subsystem, info of its result;  runs.
    Must run in a process of its own: see `private.bisect`.
    """
    text, signature, seconds = what
    program = parse(text)
    until = time.monotonic() + seconds
    seen: list[str] = []

    def agrees() -> bool:
        if time.monotonic() > until:
            raise _OutOfTime
        found = report_program(program, task, journal())
        same = any(follows(signature, v.signature) for v in found.verdicts)
        seen.append("same" if same else found.verdict)
        return not same

    try:
        ended = bisect(agrees)
    except _OutOfTime:
        return Report(text, notes={"bisector": f"ran out of its {seconds:.0f} s after {len(seen)} runs"})
    except RuntimeError as error:  # raised where an answer contradicts an earlier one
        return Report(text, notes={"bisector": f"gave up after {len(seen)} runs: {error}"})
    if ended is None:
        return Report(text, notes={"bisector": "the difference was gone with every backend"})
    backend, subsystem, number, info = ended
    info = re.sub(r"<OpOverload\(op='([\w.]+)', overload='(\w+)'\)>", r"\1.\2", info)
    ended_on = f"{backend}: {subsystem}, number {number}, {info}" if subsystem else f"{backend}, no subsystem of it"
    others = sum(1 for s in seen if s not in ("same", "agree"))
    doubt = f"; {others} of {len(seen)} runs showed something else and counted as good" if others else ""
    return Report(text, notes={"bisector": ended_on + doubt, "backend": backend, "subsystem": subsystem, "info": info})
