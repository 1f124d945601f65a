"""The stage `graph`: inductor's graphs after all of its passes, run by eager kernels instead of being lowered.

Private API, tried on torch 2.11.0, 2.13.0 and 2.15.0: torch._inductor.compile_fx.{fx_codegen_and_compile,
view_to_reshape, fake_tensor_prop, _recursive_post_grad_passes}, torch._inductor.output_code.OutputCode,
torch._inductor.virtualized.V.set_fake_mode.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor import compile_fx
from torch._inductor.output_code import OutputCode
from torch._inductor.virtualized import V

from fuzzer.stages.cannot import own_work


@dataclasses.dataclass
class GraphCode(OutputCode):
    """The replacement for inductor's compiled code: a graph that eager runs, operation by operation."""

    run: Callable[..., Any] | None = None
    reasons: list[str] = dataclasses.field(default_factory=list)
    _boxed_call: bool = True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        given = list(inputs)
        if isinstance(inputs, list):
            inputs.clear()  # the caller of a boxed function relies on this
        assert self.run is not None
        with own_work(self.reasons), torch.no_grad():
            return self.run(*given)

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        pass

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


@contextlib.contextmanager
def graphs(reasons: list[str]) -> Iterator[None]:
    """Make inductor stop before it lowers."""

    def run_graph(gm: Any, example_inputs: Any, inputs_to_check: Any, *_: Any, **options: Any) -> GraphCode:
        compile_fx.view_to_reshape(gm)
        with torch.no_grad():
            fake_mode = compile_fx.fake_tensor_prop(gm, example_inputs)
        with V.set_fake_mode(fake_mode):
            compile_fx._recursive_post_grad_passes(gm, is_inference=options.get("is_inference", False))
        return GraphCode(run=torch.fx.Interpreter(gm).run, reasons=reasons)

    with patch.object(compile_fx, "fx_codegen_and_compile", run_graph):
        yield
