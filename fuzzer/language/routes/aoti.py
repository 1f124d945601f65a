"""The step of `vjp`, ahead of time: traced with make_fx, exported, packaged by AOTInductor, loaded and run."""

from __future__ import annotations

import torch

from fuzzer.language.private import compile_ahead
from fuzzer.language.program import Attributes, Program
from fuzzer.language.routes.spec import Call, Results, RouteSpec, gradient_leaves, no_compile
from fuzzer.language.routes.step import vjp_step, write_step
from fuzzer.language.routes.writing import Script
from fuzzer.language.settings import CUDA_GRAPHS, in_force

# Precompiling torch's headers pays only after several packages; most workers do not live that long here.
_NO_HEADERS: Attributes = (("inductor.aot_inductor.precompile_headers", False),)


def run(call: Call) -> Results:
    step, given = call.once(vjp_step)
    call.phase("backward")
    with torch.no_grad(), in_force(_NO_HEADERS):
        both = (given, tuple(call.cotangents))
        outputs, gradients = step(*both) if call.compile is no_compile else compile_ahead(step, both)
    return Results(tuple(outputs), dict(zip(gradient_leaves(call.program), gradients, strict=True)))


def write(program: Program) -> list[str]:
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
        *write_step(program, compiler=True),
    ]


def _given(program: Program, options: str | None) -> str:
    return "lambda s: s" if options is None else "packaged"


ROUTE = RouteSpec(
    run,
    Script(write, _given, imports=("torch._inductor", "torch.fx.experimental.proxy_tensor"), tracked=False),
    weight=0.05,
    options={},
    settings=_NO_HEADERS,
    inert=(CUDA_GRAPHS,),
    regions=(),  # with autocast it kills the process on CUDA (torch 2.11), and a program does not say where it runs
    backends=("inductor",),
    torch_compile=False,
    joint=True,
    module=True,
    writes_leaves=False,
    recompiles=lambda program: True,
)
