"""One forward and two backwards over its graph into `.grad`: each gradient is the sum of two equal ones.

The second backward needs the values that the first one read, and adds in place to the first one's result.
"""

from __future__ import annotations

from fuzzer.language.program import Attributes, Program
from fuzzer.language.routes.spec import Call, Results, RouteSpec, accumulated, backward
from fuzzer.language.routes.writing import Script, compiled_f, runner, write_into_grad
from fuzzer.language.settings import CUDA_GRAPHS, in_force

# torch refuses retain_graph where the backward may overwrite what the forward saved.
_NOT_DONATED: Attributes = (("functorch.donated_buffer", False),)


def run(call: Call) -> Results:
    with in_force(_NOT_DONATED):
        call.phase("forward")
        with call.ambient():
            outputs = call.compile(call.function)(*call.leaves.values())
        call.between(outputs)
        call.phase("backward")
        for _ in range(2):
            backward(call, outputs, retain_graph=True)
    return accumulated(call, outputs)


def write(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return write_into_grad(
        program, runner(program), lambda call, pull: [*call, *loop, f"    {pull[:-1]}, retain_graph=True)"]
    )


ROUTE = RouteSpec(
    run,
    Script(write, compiled_f, into_grad=True),
    weight=0.05,
    options={"dynamic": False},
    settings=_NOT_DONATED,
    inert=(CUDA_GRAPHS,),
    times=2,
)
