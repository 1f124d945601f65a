"""A program and its gradient in longhand: the Python that a person would write for each route, as lines."""

from __future__ import annotations

import re
from collections.abc import Callable

from fuzzer.interpret import lines
from fuzzer.program import Program, written_leaves

WIDTH = 110
# Modules that a route's script needs beside torch and the settings.
IMPORTS = {
    "compiled_autograd": {"torch._dynamo.compiled_autograd"},
    "aoti": {"torch._inductor", "torch.fx.experimental.proxy_tensor"},
}


def input_names(program: Program) -> list[str]:
    """Leaves by name, then the cotangents c0, c1, ... of the outputs that have one."""
    seeded = sum(output.cotangent is not None for output in program.outputs)
    return [leaf.name for leaf in program.leaves] + [f"c{i}" for i in range(seeded)]


def function(program: Program) -> list[str]:
    """`f`, of the leaves; it returns the outputs."""
    outputs = [output.value for output in program.outputs]
    body = [f"    {_as_written(line)}" for line in lines(program.body, outputs)]
    last = f"    {outputs[0]} = "
    if len(outputs) == 1 and body and body[-1].startswith(last):
        body[-1] = body[-1].replace(last, "    return ", 1)
    else:
        body.append(f"    return {', '.join(outputs)}")
    return [f"def f({', '.join(leaf.name for leaf in program.leaves)}):", *body]


def _as_written(line: str) -> str:
    """The same call in the short form that people use."""
    line = re.sub(r"torch\.Tensor\.(\w+)\((\w+)(?:, )?", r"\2.\1(", line)
    return line.replace("torch.nn.functional.", "F.")


def _results(program: Program, wanted: list[str]) -> str:
    pairs = [f'"{output.value}": {output.value}' for output in program.outputs]
    pairs += [f'"{name}": {name}' for name in written_leaves(program)]
    pairs += [f'"{name}.grad": g{i}' for i, name in enumerate(wanted)]
    one = "{" + ", ".join(pairs) + "}"
    if len(one) <= WIDTH - 10:
        return one
    return "{\n" + "".join(f"        {pair},\n" for pair in pairs) + "    }"


def _autograd(program: Program) -> list[str]:
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    text = [
        f"def gradients({', '.join(['f', *names])}):",
        f"    {', '.join(o.value for o in program.outputs)} = f({', '.join(leaves)})",
    ]
    if wanted and seeded:
        given = f"[{', '.join(seeded)}], [{', '.join(wanted)}], [{', '.join(names[len(leaves) :])}]"
        targets = ", ".join(f"g{i}" for i in range(len(wanted))) + ("," if len(wanted) == 1 else "")
        text.append(f"    {targets} = torch.autograd.grad({given}, allow_unused=True)")
    else:
        wanted = []
    return [*text, f"    return {_results(program, wanted)}"]


def _backward_twice(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return _into_grad(program, "gradients", lambda call, pull: [call, *loop, f"    {pull[:-1]}, retain_graph=True)"])


def _accumulate(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return _into_grad(program, "gradients", lambda call, pull: [*loop, f"    {call}", f"    {pull}"])


def _compiled_autograd(program: Program) -> list[str]:
    given = ", ".join(input_names(program))
    dynamic = bool(dict(program.route.options).get("dynamic"))
    return [
        *_into_grad(program, "backward", lambda call, pull: [call, pull]),
        "",
        "",
        f"def gradients(compile, {given}):",
        "    if compile is None:",
        f"        return backward(f, {given})",
        f"    with torch._dynamo.compiled_autograd._enable(compile, dynamic={dynamic}):  # compiles what autograd runs",
        f"        return backward(compile(f), {given})",
    ]


def _into_grad(program: Program, name: str, run: Callable[[str, str], list[str]]) -> list[str]:
    """A function of f and the inputs that leaves the gradients in `.grad`; run(forward, backward) gives its lines."""
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    call = f"    {', '.join(o.value for o in program.outputs)} = f({', '.join(leaves)})"
    pull = f"    torch.autograd.backward([{', '.join(seeded)}], [{', '.join(names[len(leaves) :])}])"
    lines = run(call, pull) if wanted and seeded else [call]
    if wanted and seeded:
        targets = ", ".join(f"g{i}" for i in range(len(wanted)))
        lines.append(f"    {targets} = {', '.join(f'{leaf}.grad' for leaf in wanted)}")
    return [
        f"def {name}({', '.join(['f', *names])}):",
        *lines,
        f"    return {_results(program, wanted if seeded else [])}",
    ]


def _vjp(program: Program) -> list[str]:
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    outputs = [output.value for output in program.outputs]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    closed = [*outputs[:1], ""] if len(outputs) == 1 else outputs
    held = [leaf.name for leaf in program.leaves if leaf.parameter]
    step = f"Step({', '.join(held)})" if held else "step"
    first = f"compile({step})" if held or program.route.name == "aoti" else ""
    return [
        f"def step({', '.join(names)}):",
        f"    def primal({', '.join(wanted)}):",
        f"        {', '.join(outputs)} = f({', '.join(leaves)})",
        f"        return ({', '.join(seeded)},), ({', '.join(closed).rstrip()})",
        "",
        f"    _, pull, outs = torch.func.vjp(primal, {', '.join(wanted)}, has_aux=True)",
        f"    return outs, pull(({', '.join(names[len(leaves) :])},))",
        "",
        "",
        *(_module(program, held) if held else []),
        f"def gradients({'compile' if first else 'step'}, {', '.join(names)}):",
        "    with torch.no_grad():",
        f"        ({', '.join(closed).rstrip()}), ({', '.join(f'g{i}' for i in range(len(wanted)))},) = "
        f"{first or 'step'}({', '.join(name for name in names if name not in held)})",
        f"    return {_results(program, wanted)}",
    ]


def _module(program: Program, held: list[str]) -> list[str]:
    """A module of which these leaves are parameters."""
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


def _aoti(program: Program) -> list[str]:
    return [
        "def packaged(step):",
        "    def run(*given):",
        "        graph = torch.fx.experimental.proxy_tensor.make_fx(step)(*given)",
        "        package = torch._inductor.aoti_compile_and_package(torch.export.export(graph, given))",
        "        return torch._inductor.aoti_load_package(package)(*given)",
        "",
        "    return run",
        "",
        "",
        *_vjp(program),
    ]


WRITERS: dict[str, Callable[[Program], list[str]]] = {
    "autograd": _autograd,
    "vjp": _vjp,
    "backward_twice": _backward_twice,
    "accumulate": _accumulate,
    "compiled_autograd": _compiled_autograd,
    "aoti": _aoti,
}
"""By route: `gradients(f, *inputs)`, every output and gradient by name."""
