"""Forward and backward, both twice, as in training in small batches: the second backward adds to the first's
`.grad`."""

from __future__ import annotations

from fuzzer.language.program import BETWEEN, Program
from fuzzer.language.regions import REGIONS, indented
from fuzzer.language.routes.spec import Call, Results, RouteSpec, accumulated, backward
from fuzzer.language.routes.writing import Script, compiled_f, runner, write_into_grad
from fuzzer.language.settings import CUDA_GRAPHS


def run(call: Call) -> Results:
    compiled = call.compile(call.function)
    for _ in range(2):
        call.phase("forward")
        with call.ambient():
            outputs = compiled(*call.leaves.values())
        call.phase("backward")
        backward(call, outputs)
    return accumulated(call, outputs)


def write(program: Program) -> list[str]:
    loop = ["    for _ in range(2):  # the second gradient is added to the first"]
    return write_into_grad(program, runner(program), lambda call, pull: [*loop, *indented([*call, pull])])


ROUTE = RouteSpec(
    run,
    Script(write, compiled_f, into_grad=True),
    weight=0.08,
    options={"dynamic": False},
    inert=(CUDA_GRAPHS,),
    regions=tuple(kind for kind in REGIONS if kind != BETWEEN),  # a second forward would see other values
    writes_leaves=False,
    times=2,
)
