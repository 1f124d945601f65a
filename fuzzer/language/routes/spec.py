"""RouteSpec: a way to compile a gradient, as one row; Call and Results: the argument and the result of its `run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from fuzzer.language.interpret import run_between
from fuzzer.language.program import Attributes, Program, has_gradient
from fuzzer.language.regions import REGIONS, ambient
from fuzzer.language.routes.writing import Script
from fuzzer.language.settings import INFERENCE, TRAINING, Setting

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
_T = TypeVar("_T")


def no_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The `compile` of an eager run."""
    return function


def no_phase(phase: str) -> None:
    """The `phase` of a run without a watcher."""


@dataclass(frozen=True)
class Call:
    """The argument of a route's `run`.

    function  the program as a Python function of its leaves.
    compile   torch.compile with its arguments bound, or `no_compile` for the eager run.
    phase     called with a name before each step, so that a death can be attributed to a step.
    """

    program: Program
    function: Callable[..., Any]
    leaves: dict[str, torch.Tensor]
    cotangents: Sequence[torch.Tensor]
    compile: Compile = no_compile
    phase: Callable[[str], None] = no_phase
    made: dict[Callable[[Call], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def ambient(self) -> contextlib.AbstractContextManager[object]:
        """The context for the call of the function, and for nothing else."""
        device = next((leaf.device.type for leaf in self.leaves.values()), "cpu")
        return ambient(self.program, device)

    def between(self, outputs: Sequence[torch.Tensor]) -> None:
        """Run the program's statements between the function's return of these outputs and the backward."""
        names = [output.value for output in self.program.outputs]
        run_between(self.program, self.leaves | dict(zip(names, outputs, strict=True)))

    def once(self, make: Callable[[Call], _T]) -> _T:
        """make(self) the first time, then the stored result: a second run gets the same function, already compiled."""
        if make not in self.made:
            self.made[make] = make(self)
        found: _T = self.made[make]
        return found


@dataclass(frozen=True)
class Results:
    """The results of one run: outputs in the program's order; the gradient, or None, by leaf that requires grad."""

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class RouteSpec:
    """A route: how it runs, its form as ordinary Python, its weight and options, and its needs.

    weight         how often it is used, relative to the other chosen routes.
    options        its options, with their defaults.
    settings       those that it needs in force.
    inert          settings of the table without effect in it, beside those that it sets itself.
    regions        kinds of regions allowed in its programs.
    backends       those that can run it; none given: any.
    torch_compile  whether it goes through torch.compile: PyTorch's bisector knows no other way.
    joint          whether one graph holds both directions, under no_grad; else a partitioner makes a forward and a
                   backward graph.
    module         whether a module holds the leaves that are parameters.
    writes_leaves  whether in-place ops may write leaves: torch.func refuses to mutate what it captured, and a second
                   forward would see other values than the first.
    draws          whether ops may draw random numbers: compiled code may draw again where it recomputes.
    recompiles     whether a second run of a program compiles again: then its kernels are not compiled together with
                   others'.
    times          how often the gradient is added up.
    """

    run: Callable[[Call], Results]
    script: Script
    weight: float
    options: dict[str, Any]
    settings: Attributes = ()
    inert: tuple[str, ...] = ()
    regions: tuple[str, ...] = tuple(REGIONS)
    backends: tuple[str, ...] = ()
    torch_compile: bool = True
    joint: bool = False
    module: bool = False
    writes_leaves: bool = True
    draws: bool = False
    recompiles: Callable[[Program], bool] = lambda program: False
    times: int = 1

    @property
    def shows_layouts(self) -> bool:
        """Whether the compiler sees cotangents in their declared layouts, as inputs of the joint graph. AOTAutograd
        copies those of a backward graph to the layout that it traced."""
        return self.joint

    def takes(self, setting: Setting) -> bool:
        """Whether a setting of the table is known to have an effect in this route."""
        own = INFERENCE if self.joint else TRAINING
        fixed = (*self.inert, *dict(self.settings))
        return setting.graphs in ("", own) and setting.name not in fixed


def gradient_leaves(program: Program) -> list[str]:
    """The leaves whose gradient is computed, in order."""
    return [leaf.name for leaf in program.leaves if leaf.requires_grad]


def differentiated_outputs(program: Program, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs that have a cotangent, in order."""
    return [out for out, declared in zip(outputs, program.outputs, strict=True) if declared.cotangent is not None]


def backward(call: Call, outputs: Sequence[torch.Tensor], retain_graph: bool = False) -> None:
    """Add the gradients to `.grad`; a program without a gradient has no backward."""
    if has_gradient(call.program):
        seeded = differentiated_outputs(call.program, outputs)
        torch.autograd.backward(seeded, list(call.cotangents), retain_graph=retain_graph)


def accumulated(call: Call, outputs: Sequence[torch.Tensor]) -> Results:
    """The outputs, and the gradients from `.grad`."""
    return Results(
        tuple(out.detach() for out in outputs), {name: call.leaves[name].grad for name in gradient_leaves(call.program)}
    )
