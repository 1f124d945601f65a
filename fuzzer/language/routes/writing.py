"""Lines for the scripts of all routes: a program and its gradient as ordinary Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from fuzzer.language.interpret import write_between, written
from fuzzer.language.program import Program, function_body, has_gradient, written_leaves
from fuzzer.language.regions import indented, write_call

WIDTH = 110
_CONTROL = "torch._higher_order_ops."
# (program, arguments of torch.compile as ", name=value" or None where nothing is compiled) -> an expression
Given = Callable[[Program, str | None], str]


@dataclass(frozen=True)
class Script:
    """A route as ordinary Python.

    write      the lines that define `gradients(given, *inputs)`, or `results` where there is no gradient (`runner`); it
               returns every output and gradient by name.
    given      the expression for its first argument, on the compiled side and on the other.
    imports    modules that it needs beside torch and the settings.
    tracked    whether autograd tracks the leaves; torch.func takes plain tensors.
    into_grad  whether gradients end in `.grad`, which only the leaves of autograd's graph have.
    """

    write: Callable[[Program], list[str]]
    given: Given
    imports: tuple[str, ...] = ()
    tracked: bool = True
    into_grad: bool = False


def runner(program: Program) -> str:
    """The name of the script's function that runs a side."""
    return "gradients" if has_gradient(program) else "results"


def input_names(program: Program) -> list[str]:
    """Leaves by name, then the cotangents c0, c1, ... of the outputs that have one."""
    seeded = sum(output.cotangent is not None for output in program.outputs)
    return [leaf.name for leaf in program.leaves] + [f"c{i}" for i in range(seeded)]


def write_function(program: Program, control: str = _CONTROL) -> list[str]:
    """The lines of `f`, a function of the leaves that returns the outputs; `control` goes before its control flow."""
    outputs = [output.value for output in program.outputs]
    found = written(function_body(program), outputs)
    body = [f"    {_as_written(line, control)}" for line in found.lines]
    last = f"    {outputs[0]} = "
    if len(outputs) == 1 and body and body[-1].startswith(last):
        body[-1] = body[-1].replace(last, "    return ", 1)
    else:
        body.append(f"    return {', '.join(outputs)}")
    above = [_as_written(line, control) for line in found.above]
    return [*above, f"def f({', '.join(leaf.name for leaf in program.leaves)}):", *body]


def _as_written(line: str, control: str = _CONTROL) -> str:
    """The same call in its usual short form."""
    line = re.sub(r"torch\.Tensor\.(\w+)\((\w+)(?:, )?", r"\2.\1(", line)
    return line.replace("torch.nn.functional.", "F.").replace("control.", control)


def write_results(program: Program, wanted: list[str]) -> str:
    """A dict of outputs, written leaves and the gradients g0, g1, ... of the wanted leaves, by name."""
    pairs = [f'"{output.value}": {output.value}' for output in program.outputs]
    pairs += [f'"{name}": {name}' for name in written_leaves(program)]
    pairs += [f'"{name}.grad": g{i}' for i, name in enumerate(wanted)]
    one = "{" + ", ".join(pairs) + "}"
    if len(one) <= WIDTH - 10:
        return one
    return "{\n" + "".join(f"        {pair},\n" for pair in pairs) + "    }"


def write_forward(program: Program) -> list[str]:
    """The lines of `gradients` that call the function, and the statements before the backward."""
    outputs, leaves = [o.value for o in program.outputs], [leaf.name for leaf in program.leaves]
    late = [_as_written(line) for line in write_between(program)]
    return indented([*write_call(program, f"{', '.join(outputs)} = f({', '.join(leaves)})"), *late])


def write_into_grad(program: Program, name: str, run: Callable[[list[str], str], list[str]]) -> list[str]:
    """A function of f and the inputs that leaves the gradients in `.grad`; run(lines of the forward, backward) returns
    its lines."""
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    call = write_forward(program)
    pull = f"    torch.autograd.backward([{', '.join(seeded)}], [{', '.join(names[len(leaves) :])}])"
    lines = run(call, pull) if has_gradient(program) else call
    if has_gradient(program):
        targets = ", ".join(f"g{i}" for i in range(len(wanted)))
        lines.append(f"    {targets} = {', '.join(f'{leaf}.grad' for leaf in wanted)}")
    return [
        f"def {name}({', '.join(['f', *names])}):",
        *lines,
        f"    return {write_results(program, wanted if has_gradient(program) else [])}",
    ]


def compiled_f(program: Program, options: str | None) -> str:
    """For routes whose `gradients` takes the function itself: f, or f compiled."""
    return "f" if options is None else f"torch.compile(f{options})"
