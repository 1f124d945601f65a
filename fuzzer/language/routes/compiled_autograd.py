"""Autograd's own graph is compiled too, with the accumulation into `.grad`, when the backward runs.

With `eager_forward` only that graph is compiled: the forward runs uncompiled.
"""

from __future__ import annotations

import contextlib

from fuzzer.language.private import compiled_backward, forget_graphs
from fuzzer.language.program import Program
from fuzzer.language.regions import CONTROL, REGIONS
from fuzzer.language.routes.spec import Call, Results, RouteSpec, accumulated, backward, no_compile
from fuzzer.language.routes.writing import Script, input_names, runner, write_into_grad
from fuzzer.language.settings import CUDA_GRAPHS


def run(call: Call) -> Results:
    symbolic, eager = _is_dynamic(call.program), _is_eager_forward(call.program)
    if eager:
        forget_graphs()
    with contextlib.nullcontext() if call.compile is no_compile else compiled_backward(call.compile, symbolic):
        call.phase("forward")
        with call.ambient():
            outputs = (call.function if eager else call.compile(call.function))(*call.leaves.values())
        call.between(outputs)
        call.phase("backward")
        backward(call, outputs)
    return accumulated(call, outputs)


def _is_dynamic(program: Program) -> bool:
    """Whether the program is compiled with symbolic sizes."""
    return bool(dict(program.route.options).get("dynamic"))


def _is_eager_forward(program: Program) -> bool:
    return bool(dict(program.route.options).get("eager_forward"))


def write(program: Program) -> list[str]:
    given = ", ".join(input_names(program))
    enabled = f"torch._dynamo.compiled_autograd._enable(compile, dynamic={_is_dynamic(program)})"
    return [
        *write_into_grad(program, "backward", lambda call, pull: [*call, pull]),
        "",
        "",
        f"def {runner(program)}(compile, {given}):",
        "    if compile is None:",
        f"        return backward(f, {given})",
        f"    with {enabled}:  # compiles what autograd runs",
        f"        return backward({'f' if _is_eager_forward(program) else 'compile(f)'}, {given})",
    ]


def _given(program: Program, options: str | None) -> str:
    return "None" if options is None else f"lambda g: torch.compile(g{options})"


ROUTE = RouteSpec(
    run,
    Script(write, _given, imports=("torch._dynamo.compiled_autograd",), into_grad=True),
    weight=0.07,
    options={"dynamic": False, "eager_forward": False},
    inert=("functorch.donated_buffer", CUDA_GRAPHS),
    recompiles=_is_eager_forward,  # the graphs are forgotten before a second run
    regions=tuple(kind for kind in REGIONS if kind not in CONTROL),  # dynamo cannot trace their backwards
)
