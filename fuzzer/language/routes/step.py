"""Outputs and gradients in one function, `step`, by torch.func.vjp: the function that routes with one graph compile."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from fuzzer.language.program import BETWEEN, Program, has_gradient
from fuzzer.language.regions import CONTROL, REGIONS
from fuzzer.language.routes.spec import Call, gradient_leaves
from fuzzer.language.routes.writing import input_names, runner, write_results

# torch.func lacks saved-tensor hooks, on which checkpoint is built, and dynamo the vjp of control flow. A context
# around `step` would hold for both directions, and no statements can come between them.
REGIONS_HELD = tuple(kind for kind in REGIONS if kind not in ("checkpoint", "ambient_autocast", BETWEEN, *CONTROL))
_F = TypeVar("_F", bound=Callable[..., Any])


def _with_own_code(function: _F) -> _F:
    """The function with its own code object. By code objects dynamo stores its results, for at most eight different
    calls: programs that are compiled in one process may share none."""
    given = cast(types.FunctionType, function)
    own = types.FunctionType(given.__code__.replace(), given.__globals__, closure=given.__closure__)
    return cast(_F, own)


def vjp_step(call: Call) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """(step, the leaves to pass); step(leaves by name, cotangents) returns outputs and gradients; these are
    None where the program has no gradient.

    Leaves that are parameters are not passed: the step is then a module that holds them.
    """
    names, order = gradient_leaves(call.program), list(call.leaves)
    positions = [i for i, o in enumerate(call.program.outputs) if o.cotangent is not None]

    def forward(given: dict[str, torch.Tensor], seeds: tuple[torch.Tensor, ...]) -> Any:
        return call.function(*[given[name] for name in order]), (None,) * len(names)

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
    own = _with_own_code(step if has_gradient(call.program) else forward)
    return (_module(own, held) if held else own), handed


def _module(step: Callable[..., Any], parameters: dict[str, torch.nn.Parameter]) -> torch.nn.Module:
    """A step that takes some of its leaves from a module's parameters; the module has a class of its own."""
    made: Callable[..., torch.nn.Module] = type("Module", (_Module,), {"forward": _with_own_code(_Module.forward)})
    return made(step, parameters)


class _Module(torch.nn.Module):
    """A step that takes some of its leaves from this module's parameters."""

    def __init__(self, step: Callable[..., Any], parameters: dict[str, torch.nn.Parameter]):
        super().__init__()
        self.step = step
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)

    def forward(self, given: dict[str, torch.Tensor], seeds: tuple[torch.Tensor, ...]) -> Any:
        return self.step({**given, **dict(self.named_parameters())}, seeds)


# ---------------------------------------------------------------- as ordinary Python


def held_leaves(program: Program) -> list[str]:
    """The leaves that a module holds."""
    return [leaf.name for leaf in program.leaves if leaf.parameter]


def write_step(program: Program, compiler: bool) -> list[str]:
    """The lines of `step` and its `gradients`. compiler: whether the argument of `gradients` compiles a step; else it
    is the step."""
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    outputs = [output.value for output in program.outputs]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    closed = [*outputs[:1], ""] if len(outputs) == 1 else outputs
    held = held_leaves(program)
    step = f"Step({', '.join(held)})" if held else "step"
    call, given = f"f({', '.join(leaves)})", ", ".join(name for name in names if name not in held)
    returned = f"({', '.join(closed).rstrip()})"
    if has_gradient(program):
        body = [
            f"    def primal({', '.join(wanted)}):",
            f"        {', '.join(outputs)} = {call}",
            f"        return ({', '.join(seeded)},), {returned}",
            "",
            f"    _, pull, outs = torch.func.vjp(primal, {', '.join(wanted)}, has_aux=True)",
            f"    return outs, pull(({', '.join(names[len(leaves) :])},))",
        ]
        returned += f", ({', '.join(f'g{i}' for i in range(len(wanted)))},)"
    else:
        body, wanted = [f"    return {call}"], []
        returned = ", ".join(outputs)
    return [
        f"def step({', '.join(names)}):",
        *body,
        "",
        "",
        *(_write_module(program, held) if held else []),
        f"def {runner(program)}({'compile' if compiler else 'step'}, {', '.join(names)}):",
        "    with torch.no_grad():",
        f"        {returned} = {f'compile({step})' if compiler else 'step'}({given})",
        f"    return {write_results(program, wanted)}",
    ]


def _write_module(program: Program, held: list[str]) -> list[str]:
    """The lines of a module with these leaves as parameters."""
    fixed = {leaf.name: "" if leaf.requires_grad else ", requires_grad=False" for leaf in program.leaves}
    names = input_names(program)
    return [
        "class Step(torch.nn.Module):",
        f"    def __init__(self, {', '.join(held)}):",
        "        super().__init__()",
        *(f"        self.{name} = torch.nn.Parameter({name}{fixed[name]})" for name in held),
        "",
        f"    def forward(self, {', '.join(name for name in names if name not in held)}):",
        f"        return step({', '.join(f'self.{name}' if name in held else name for name in names)})",
        "",
        "",
    ]
