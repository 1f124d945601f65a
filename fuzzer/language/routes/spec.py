"""RouteSpec: a way in which a gradient gets compiled, as one row; Call and Results: what its `run` takes and gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from fuzzer.language.interpret import run_between
from fuzzer.language.program import Attributes, Program
from fuzzer.language.regions import REGIONS, ambient
from fuzzer.language.routes.writing import Script
from fuzzer.language.settings import INFERENCE, TRAINING, Setting

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
_T = TypeVar("_T")


def no_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The `compile` of an eager run."""
    return function


def no_phase(phase: str) -> None:
    """The `phase` of a run that nobody watches."""


@dataclass(frozen=True)
class Call:
    """What a route's `run` is given.

    function  the program as a Python function of its leaves.
    compile   torch.compile with its arguments bound, or `no_compile` for the eager run.
    phase     called with a name before each step, so that a death finds its owner.
    """

    program: Program
    function: Callable[..., Any]
    leaves: dict[str, torch.Tensor]
    cotangents: Sequence[torch.Tensor]
    compile: Compile = no_compile
    phase: Callable[[str], None] = no_phase
    made: dict[Callable[[Call], Any], Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def ambient(self) -> contextlib.AbstractContextManager[object]:
        """What is in force while the function is called, and nowhere else."""
        device = next((leaf.device.type for leaf in self.leaves.values()), "cpu")
        return ambient(self.program, device)

    def between(self, outputs: Sequence[torch.Tensor]) -> None:
        """What the program does once its function has returned these, before the backward."""
        names = [output.value for output in self.program.outputs]
        run_between(self.program, self.leaves | dict(zip(names, outputs, strict=True)))

    def once(self, make: Callable[[Call], _T]) -> _T:
        """make(self) the first time, then what it gave: a second run finds the same function, and that compiled."""
        if make not in self.made:
            self.made[make] = make(self)
        found: _T = self.made[make]
        return found


@dataclass(frozen=True)
class Results:
    """What one run computed: outputs in the program's order, and the gradient or None by leaf that requires grad."""

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class RouteSpec:
    """A route: how it runs, how a person would write it, how it is drawn, and what it needs.

    weight         how often it is drawn, relative to the others that are chosen.
    options        those it takes, with their defaults.
    settings       those that it needs in force.
    inert          settings of the table that do nothing in it, beside those that it sets itself.
    regions        kinds that a program may hold there.
    backends       those that can run it; none given: any.
    torch_compile  whether it goes through torch.compile: PyTorch's bisector knows no other way.
    joint          whether one graph holds both directions, under no_grad; else a partitioner makes two, a forward and
                   a backward one.
    module         whether a module holds the leaves that are parameters.
    writes_leaves  whether in-place ops may write leaves: torch.func refuses to mutate what it captured, and a second
                   forward would not find what the first one did.
    draws          whether ops may draw random numbers: compiled code may draw again where it recomputes.
    recompiles     whether a second run of a program compiles what the first did: it is run once, not built in turns.
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
        """Whether the compiler sees cotangents as they are declared: as inputs of the joint graph. AOTAutograd copies
        those of a backward graph to the layout that it traced."""
        return self.joint

    def takes(self, setting: Setting) -> bool:
        """Whether a setting of the table does something in this route, as far as is known."""
        own = INFERENCE if self.joint else TRAINING
        fixed = (*self.inert, *dict(self.settings))
        return setting.graphs in ("", own) and setting.name not in fixed


def gradient_leaves(program: Program) -> list[str]:
    """The leaves whose gradient is computed, in order."""
    return [leaf.name for leaf in program.leaves if leaf.requires_grad]


def differentiated_outputs(program: Program, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs that have a cotangent, in order."""
    return [out for out, declared in zip(outputs, program.outputs, strict=True) if declared.cotangent is not None]


def accumulated(call: Call, outputs: Sequence[torch.Tensor]) -> Results:
    """The outputs, and the gradients as they lie in `.grad`."""
    return Results(
        tuple(out.detach() for out in outputs), {name: call.leaves[name].grad for name in gradient_leaves(call.program)}
    )
