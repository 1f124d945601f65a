"""Loop bodies as inductor traces them, without a compile; and programs run at a stage."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import sympy
import torch

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.stages.cannot import Faulty
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task

if TYPE_CHECKING:  # those who only collect the tests need not wait for the compiler
    from torch._inductor.loop_body import LoopBody

    from fuzzer.stages.kernels import Kernel, Node

GRAPH, IR = (Task(Place(Subject("eager"), Subject(f"inductor:{name}")), fresh=True) for name in ("graph", "ir"))


def examined(task: Task, program: Program | str) -> Report:
    """What the oracles say of a program at a stage, in this process."""
    return report_program(parse(program) if isinstance(program, str) else program, task, Journal(None))


def agrees(report: Report) -> None:
    """Assert that a stage ran the program itself, and that all agree."""
    assert (report.verdict, report.rejected, report.built) == ("agree", "", ""), report


def found_faulty(report: Report) -> None:
    """Assert that the loops are at fault by themselves."""
    assert report.verdict == "raises", report
    assert report.verdicts[0].signature.pattern.startswith(Faulty.__name__), report


# ---------------------------------------------------------------- kernels by hand


class _Operations:
    """`V.ops` of inductor, which is imported with the first operation."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks every object of a module
            raise AttributeError(name)
        from torch._inductor.virtualized import V

        return getattr(V.ops, name)


ops: Any = _Operations()


@contextlib.contextmanager
def graph() -> Iterator[None]:
    """A graph for inductor to trace bodies in, which knows the dtypes of no buffer."""
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    with V.set_graph_handler(GraphLowering(torch.fx.symbolic_trace(lambda: 0))):
        yield


@dataclass(frozen=True, eq=False)
class Body:
    """The loop body of function(outer variables, inner variables), which calls `ops`."""

    function: Callable[..., Any]
    outer: Sequence[int]
    inner: Sequence[int]

    @functools.cached_property
    def traced(self) -> LoopBody:
        from torch._inductor import dependencies
        from torch._inductor.loop_body import LoopBody

        given: Any = ([sympy.Integer(n) for n in self.outer], [sympy.Integer(n) for n in self.inner])
        (variables, reduced), ranges = dependencies.index_vars_no_squeeze(*given, prefix="p")
        with graph():
            return LoopBody(self.function, (variables, reduced), ranges, variables, reduced)


def body(function: Callable[..., Any], outer: Sequence[int], inner: Sequence[int] = ()) -> Body:
    return Body(function, outer, inner)


def kernel(
    *made: Body, nests: Sequence[int] = (), outer: Sequence[int] = (), late: bool = True, local: Any = None
) -> Kernel:
    """A kernel of these bodies, in one nest unless it is said in which."""
    from fuzzer.stages.kernels import Kernel

    bodies = [one.traced for one in made]
    numbers = list(nests) or [0] * len(bodies)
    nodes = [_node(one, nest) for one, nest in zip(bodies, numbers, strict=True)]
    results = [
        next((b.sizes[0] for b, n in zip(bodies, numbers, strict=True) if n == nest and b.sizes[1]), None)
        or next(b.sizes[0] for b, n in zip(bodies, numbers, strict=True) if n == nest)
        for nest in sorted(set(numbers))
    ]
    return Kernel(nodes, results, outer, late, local or {}, [])


def _node(one: LoopBody, nest: int) -> Node:
    from fuzzer.stages.kernels import Node

    used = [(kind.name, e.buffer_name) for kind, found in one.memory_usage.items() for e in found if e.buffer_name]
    loads = frozenset(name for kind, name in used if not kind.startswith("STORE"))
    stores = frozenset(name for kind, name in used if kind.startswith("STORE"))
    return Node(one, nest, {name: name for name in loads | stores}, loads, stores)


def run(made: Kernel, tensors: Mapping[str, torch.Tensor]) -> None:
    made.run(tensors, {})


def faulty(made: Kernel, tensors: Mapping[str, torch.Tensor], message: str) -> None:
    """Assert that a kernel is found faulty, and that this is no reason to build it."""
    with pytest.raises(Faulty, match=message):
        run(made, tensors)
    assert made.reasons == []
