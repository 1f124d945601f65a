"""Functions and programs put to the test from Python."""

from __future__ import annotations

import ctypes
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch

import backfuzz
from fuzzer.language.errors import UsageError
from fuzzer.language.interpret import materialise
from fuzzer.language.text import parse
from fuzzer.trial import home
from tests.commands.calls import PLANTED, RELU

BACKEND = "aot_eager"


def test_a_function_agrees_and_the_verdict_counts_what_would_show() -> None:
    told = backfuzz.check(torch.exp, torch.ones(3), backend=BACKEND)
    assert told.agrees
    assert str(told) == (
        "agree: outputs and 1 gradient(s); an error would show in 3 of 3 elements of gradients "
        "(no input requires a gradient; here x0 did)"
    )


def test_a_module_and_its_parameters_are_checked() -> None:
    told = backfuzz.check(torch.nn.Linear(3, 2), torch.randn(5, 3, requires_grad=True), backend=BACKEND)
    assert "3 gradient(s)" in told.detail


def test_the_program_of_a_function_has_the_values_of_its_inputs() -> None:
    numbers = torch.arange(100.0).reshape(10, 10).t()
    (leaf,) = backfuzz.program_of(torch.exp, (numbers,)).leaves
    assert torch.equal(materialise([leaf])[leaf.name], numbers)


def test_of_many_values_the_program_says_that_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_MOST_VALUES", 64)
    assert backfuzz.program_of(torch.exp, (torch.rand(65),)).comment == ("x0: drawn values, not yours",)


def test_a_program_that_differs_is_told_with_its_signature() -> None:
    torch._dynamo.register_backend(lambda graph, inputs: lambda *args: [2 * t for t in graph(*args)], name="doubled")
    told = backfuzz.run(RELU, backend="doubled")
    assert not told.agrees
    assert str(told).startswith("wrong: ")
    assert str(told).endswith("]")


def test_threads_are_those_of_the_process_again() -> None:
    torch.set_num_threads(2)
    backfuzz.run(parse(RELU), backend=BACKEND)
    assert torch.get_num_threads() == 2


def test_what_eager_refuses_is_told_as_rejected() -> None:
    told = backfuzz.run(RELU.replace("relu(x0)", "matmul(x0, x0, x0)"), backend=BACKEND)
    assert str(told).startswith("rejected: ")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backend": "no_such"}, "no backend 'no_such'"),
        ({"settings": {"inductor.no_such": 1}}, "no setting 'inductor.no_such'"),
        ({"settings": {"inductor.max_fusion_size": "a"}}, "cannot be 'a'"),
        ({"device": "moon"}, "'moon'"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(options: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        backfuzz.run(RELU, **options)  # type: ignore[arg-type]


def test_a_function_that_no_program_says_is_judged() -> None:
    assert backfuzz.check(torch.special.bessel_j0, torch.ones(3), backend=BACKEND).agrees


@pytest.mark.slow
def test_settings_reach_the_compiler_in_this_process_and_in_one_of_its_own() -> None:
    planted = {"inductor.cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
    here = backfuzz.run(RELU, settings=planted)
    assert here.signature.verdict == "wrong"
    assert backfuzz.run(PLANTED, isolated=True) == here


@torch.library.custom_op("tests_of_check::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    """Refuses float64, as kernels of libraries do."""
    if x.dtype != torch.float32:
        raise RuntimeError(f"float32 only, not {x.dtype}")
    return x * 0.5


halved.register_fake(torch.empty_like)
halved.register_autograd(lambda ctx, gradient: gradient * 0.5)


def test_behind_an_operation_that_the_model_does_not_know_eager_in_float64_is_the_measure() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return halved(x.exp()), y.exp()

    inputs = torch.linspace(-1, 1, 7), torch.linspace(-1, 1, 7)
    told = backfuzz.check(function, *inputs, backend=BACKEND)
    assert told.agrees
    assert "no rounding model of tests_of_check.halved: 1 of 4 tensors are held against eager in float64" in str(told)

    def wrong(graph: Any, given: Any) -> Any:
        return lambda *args: [out + 0.001 if out.requires_grad else out for out in graph(*args)]

    torch._dynamo.register_backend(wrong, name="more_by_a_thousandth")
    told = backfuzz.check(function, inputs[0], inputs[1].detach().clone(), backend="more_by_a_thousandth")
    assert told.signature.verdict == "wrong"  # of y, which the model knows
    told = backfuzz.check(lambda x: halved(x.exp()), inputs[0], backend="more_by_a_thousandth")
    assert told.signature.verdict == "unmodelled"
    assert told.detail.startswith("output[")


def dies_when_compiled(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        ctypes.string_at(0)
    return x.exp()


@pytest.mark.slow
def test_a_function_that_dies_when_compiled_is_heard_from_another_process() -> None:
    told = backfuzz.check(dies_when_compiled, torch.ones(3), backend=BACKEND, isolated=True)
    assert str(told).startswith("crashes: the worker died in the forward: SIGSEGV")


def test_a_function_that_cannot_travel_is_refused_in_a_sentence() -> None:
    with pytest.raises(backfuzz.Uncheckable, match="isolated=True sends the function to another process"):
        backfuzz.check(lambda x: x.exp(), torch.ones(3), isolated=True)


def block() -> torch.nn.Module:
    torch.manual_seed(3)
    parts = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.SiLU(inplace=True), torch.nn.Flatten()
    return torch.nn.Sequential(*parts, torch.nn.Linear(144, 2))


def checked_on_gpu() -> tuple[str, bool]:
    module = block().cuda()
    before = [t.clone() for t in module.state_dict().values()]
    told = backfuzz.check(module, torch.randn(2, 3, 8, 8, device="cuda"))
    return str(told), all(map(torch.equal, before, module.state_dict().values()))


@pytest.mark.gpu
def test_a_module_is_checked_on_the_gpu_where_it_is() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    # in a process of its own: once this one has used CUDA, no worker that it forks can
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        told, unchanged = alone.submit(checked_on_gpu).result()
    assert told.startswith("agree: outputs and 6 gradient(s)")
    assert unchanged
