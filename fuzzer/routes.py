"""The ways a gradient gets compiled, one function each.

A route takes a `Call` and returns the outputs and, for every leaf that requires grad, the gradient or None.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fuzzer.private import compile_ahead, compiled_backward
from fuzzer.program import Attributes, Program, Region, Route, holders
from fuzzer.regions import REGIONS
from fuzzer.settings import in_force

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The `compile` of an eager run."""
    return function


def unnoted(phase: str) -> None:
    """The `phase` of a run that nobody watches."""


@dataclass(frozen=True)
class Call:
    """What a route is given.

    function  the program as a Python function of its leaves.
    compile   torch.compile with its arguments bound, or `uncompiled` for the eager run.
    phase     called with a name before each step, so that a death finds its owner.
    """

    program: Program
    function: Callable[..., Any]
    leaves: dict[str, torch.Tensor]
    cotangents: Sequence[torch.Tensor]
    compile: Compile = uncompiled
    phase: Callable[[str], None] = unnoted

    @functools.cached_property
    def pulled(self) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
        """Made once, so that a second run finds it compiled."""
        return pulled(self)


@dataclass(frozen=True)
class Results:
    """What one run computed: outputs in the program's order, gradients by leaf name."""

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor | None]


class UnknownRoute(ValueError):
    """A program names a route that does not exist, or an option that the route does not have."""


def wanted(program: Program) -> list[str]:
    """The leaves whose gradient is computed, in order."""
    return [leaf.name for leaf in program.leaves if leaf.requires_grad]


def differentiated(program: Program, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs that have a cotangent, in order."""
    return [out for out, declared in zip(outputs, program.outputs, strict=True) if declared.cotangent is not None]


def autograd(call: Call) -> Results:
    """torch.compile of the forward; torch.autograd.grad on all differentiated outputs at once."""
    call.phase("forward")
    outputs = call.compile(call.function)(*call.leaves.values())
    call.phase("backward")
    names = wanted(call.program)
    leaves = [call.leaves[name] for name in names]
    gradients = torch.autograd.grad(
        differentiated(call.program, outputs), leaves, list(call.cotangents), allow_unused=True
    )
    return Results(tuple(out.detach() for out in outputs), dict(zip(names, gradients, strict=True)))


def vjp(call: Call) -> Results:
    """torch.compile of a function that calls torch.func.vjp, under no_grad: one graph, no partitioner."""
    step, given = call.pulled
    call.phase("backward")
    with torch.no_grad():
        outputs, gradients = call.compile(step)(given, tuple(call.cotangents))
    return Results(tuple(outputs), dict(zip(wanted(call.program), gradients, strict=True)))


# Compiling torch's headers ahead pays after several packages; here most workers are gone by then.
NO_HEADERS: Attributes = (("inductor.aot_inductor.precompile_headers", False),)


def aoti(call: Call) -> Results:
    """The function of `vjp`, ahead of time: traced with make_fx, exported, packaged by AOTInductor, loaded and run."""
    step, given = call.pulled
    call.phase("backward")
    with torch.no_grad(), in_force(NO_HEADERS):
        both = (given, tuple(call.cotangents))
        outputs, gradients = step(*both) if call.compile is uncompiled else compile_ahead(step, both)
    return Results(tuple(outputs), dict(zip(wanted(call.program), gradients, strict=True)))


def pulled(call: Call) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """(step, the leaves to hand to it); step(leaves by name, cotangents) gives outputs and gradients.

    Leaves that are parameters are not handed in: the step is then a module that holds them.
    """
    names, order = wanted(call.program), list(call.leaves)
    positions = [i for i, o in enumerate(call.program.outputs) if o.cotangent is not None]

    def step(given: dict[str, torch.Tensor], seeds: tuple[torch.Tensor, ...]) -> Any:
        def primal(*chosen: torch.Tensor) -> Any:
            bound = {**given, **dict(zip(names, chosen, strict=True))}
            outputs = call.function(*[bound[name] for name in order])
            return tuple(outputs[i] for i in positions), outputs

        _, pull, outputs = torch.func.vjp(primal, *[given[name] for name in names], has_aux=True)
        return outputs, pull(seeds)

    held = {
        leaf.name: torch.nn.Parameter(call.leaves[leaf.name].detach(), leaf.requires_grad)
        for leaf in call.program.leaves
        if leaf.parameter
    }
    handed = {name: leaf.detach() for name, leaf in call.leaves.items() if name not in held}
    return (Step(step, held) if held else step), handed


class Step(torch.nn.Module):
    """A step that finds some of its leaves in this module's parameters."""

    def __init__(self, step: Callable[..., Any], parameters: dict[str, torch.nn.Parameter]):
        super().__init__()
        self.step = step
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)

    def forward(self, given: dict[str, torch.Tensor], seeds: tuple[torch.Tensor, ...]) -> Any:
        return self.step({**given, **dict(self.named_parameters())}, seeds)


NOT_DONATED: Attributes = (("functorch.donated_buffer", False),)


def backward_twice(call: Call) -> Results:
    """One forward, its graph backwards twice into `.grad`: the gradients are the sums of two equal ones.

    The second must find what the first one read, and is added in place to what the first one left. torch refuses
    retain_graph where the backward may overwrite what the forward saved, so buffers are not donated.
    """
    with in_force(NOT_DONATED):
        call.phase("forward")
        outputs = call.compile(call.function)(*call.leaves.values())
        call.phase("backward")
        for _ in range(2):
            torch.autograd.backward(differentiated(call.program, outputs), list(call.cotangents), retain_graph=True)
    return accumulated(call, outputs)


def accumulate(call: Call) -> Results:
    """Forward and backward, both twice, as in training in small batches: the second adds to the first's `.grad`."""
    compiled = call.compile(call.function)
    for _ in range(2):
        call.phase("forward")
        outputs = compiled(*call.leaves.values())
        call.phase("backward")
        torch.autograd.backward(differentiated(call.program, outputs), list(call.cotangents))
    return accumulated(call, outputs)


def accumulated(call: Call, outputs: Sequence[torch.Tensor]) -> Results:
    """The outputs, and the gradients as they lie in `.grad`."""
    return Results(
        tuple(out.detach() for out in outputs), {name: call.leaves[name].grad for name in wanted(call.program)}
    )


def compiled_autograd(call: Call) -> Results:
    """autograd's own graph is compiled too, with the accumulation into `.grad`, when the backward runs."""
    dynamic = bool(find(call.program)[1]["dynamic"])
    with contextlib.nullcontext() if call.compile is uncompiled else compiled_backward(call.compile, dynamic):
        call.phase("forward")
        outputs = call.compile(call.function)(*call.leaves.values())
        call.phase("backward")
        torch.autograd.backward(differentiated(call.program, outputs), list(call.cotangents))
    return accumulated(call, outputs)


DYNAMIC = 0.1  # the share of programs that are compiled with symbolic sizes, where the route has the choice


@dataclass(frozen=True)
class RouteSpec:
    """A route: its function, how it is drawn, and what it needs.

    weight         how often it is drawn, relative to the others that are chosen.
    options        those it takes, with their defaults.
    settings       those that it needs in force.
    regions        kinds that a program may hold there.
    backends       those that can run it; none given: any.
    module         whether a module holds the leaves that are parameters.
    writes_leaves  whether in-place ops may write leaves: torch.func refuses to mutate what it captured, and a second
                   forward would not find what the first one did.
    draws          whether ops may draw random numbers: compiled code may draw again where it recomputes.
    repeats        whether a second run of the same call compiles nothing.
    times          how often the gradient is added up.
    """

    run: Callable[[Call], Results]
    weight: float
    options: dict[str, Any]
    settings: Attributes = ()
    regions: tuple[str, ...] = tuple(REGIONS)
    backends: tuple[str, ...] = ()
    module: bool = False
    writes_leaves: bool = True
    draws: bool = False
    repeats: bool = True
    times: int = 1


# torch.func has no saved-tensor hooks, which checkpoint is made of. aoti holds no region at all: with autocast it kills
# the process on CUDA (torch 2.11), and a program does not say where it runs.
DURING_VJP = tuple(kind for kind in REGIONS if kind != "checkpoint")

# Most programs take the two routes that differ most: with a partitioner between forward and backward, and without.
ROUTES: dict[str, RouteSpec] = {
    "autograd": RouteSpec(autograd, 0.5, {"dynamic": False}, draws=True),
    "vjp": RouteSpec(vjp, 0.3, {"dynamic": False}, regions=DURING_VJP, module=True, writes_leaves=False, draws=True),
    "backward_twice": RouteSpec(backward_twice, 0.05, {"dynamic": False}, NOT_DONATED, times=2),
    "accumulate": RouteSpec(accumulate, 0.08, {"dynamic": False}, writes_leaves=False, times=2),
    "compiled_autograd": RouteSpec(compiled_autograd, 0.07, {"dynamic": False}),
    "aoti": RouteSpec(aoti, 0.05, {}, NO_HEADERS, (), ("inductor",), module=True, writes_leaves=False, repeats=False),
}
# What a campaign draws from unless it is told otherwise.
ANY_BACKEND = tuple(name for name, spec in ROUTES.items() if not spec.backends)


def draw(rng: random.Random, names: Sequence[str]) -> Route:
    """One of the named routes by its weight, its options drawn."""
    (name,) = rng.choices(names, [ROUTES[name].weight for name in names])
    dynamic = "dynamic" in ROUTES[name].options and rng.random() < DYNAMIC
    return Route(name, (("dynamic", True),) if dynamic else ())


def find(program: Program) -> tuple[RouteSpec, dict[str, Any]]:
    """The program's route and its options, defaults filled in. Raises UnknownRoute."""
    spec = ROUTES.get(program.route.name)
    if spec is None:
        raise UnknownRoute(f"no route {program.route.name!r}; known are {', '.join(ROUTES)}")
    options = dict(program.route.options)
    for name in options:
        if name not in spec.options:
            known = ", ".join(spec.options) or "none"
            raise UnknownRoute(f"route {program.route.name} has no option {name!r}; it has {known}")
    held = [leaf.name for leaf in program.leaves if leaf.parameter]
    if held and not spec.module:
        raise UnknownRoute(f"route {program.route.name} has no module that {', '.join(held)} could be a parameter of")
    for region in holders(program.body):
        if isinstance(region, Region) and region.kind in REGIONS and region.kind not in spec.regions:
            raise UnknownRoute(f"route {program.route.name} cannot hold a region {region.kind}")
    return spec, {**spec.options, **options}


def check(route: str, backend: str) -> None:
    """Raise UnknownRoute where the backend cannot run the route."""
    backends = ROUTES[route].backends
    if backends and backend not in backends:
        raise UnknownRoute(f"route {route} is for the backend {' or '.join(backends)} alone, not {backend}")
