"""torch.compile of the forward; torch.autograd.grad on all differentiated outputs at once."""

from __future__ import annotations

import torch

from fuzzer.language.program import Program, has_gradient
from fuzzer.language.routes.spec import Call, Results, RouteSpec, differentiated_outputs, gradient_leaves
from fuzzer.language.routes.writing import Script, compiled_f, input_names, runner, write_forward, write_results


def run(call: Call) -> Results:
    call.phase("forward")
    with call.ambient():
        outputs = call.compile(call.function)(*call.leaves.values())
    call.between(outputs)
    detached = tuple(out.detach() for out in outputs)
    names = gradient_leaves(call.program)
    if not has_gradient(call.program):
        return Results(detached, dict.fromkeys(names))
    call.phase("backward")
    leaves = [call.leaves[name] for name in names]
    gradients = torch.autograd.grad(
        differentiated_outputs(call.program, outputs), leaves, list(call.cotangents), allow_unused=True
    )
    return Results(detached, dict(zip(names, gradients, strict=True)))


def write(program: Program) -> list[str]:
    names = input_names(program)
    leaves = [leaf.name for leaf in program.leaves]
    wanted = [leaf.name for leaf in program.leaves if leaf.requires_grad]
    seeded = [output.value for output in program.outputs if output.cotangent is not None]
    text = [
        f"def {runner(program)}({', '.join(['f', *names])}):",
        *write_forward(program),
    ]
    if has_gradient(program):
        given = f"[{', '.join(seeded)}], [{', '.join(wanted)}], [{', '.join(names[len(leaves) :])}]"
        targets = ", ".join(f"g{i}" for i in range(len(wanted))) + ("," if len(wanted) == 1 else "")
        text.append(f"    {targets} = torch.autograd.grad({given}, allow_unused=True)")
    else:
        wanted = []
    return [*text, f"    return {write_results(program, wanted)}"]


ROUTE = RouteSpec(run, Script(write, compiled_f), weight=0.5, options={"dynamic": False}, draws=True)
