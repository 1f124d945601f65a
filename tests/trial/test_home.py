"""A difference is brought home to the smallest module that shows it."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from fuzzer.trial.calls import Call
from fuzzer.trial.check import judge_call
from fuzzer.trial.home import calls_met, shown_by_program, smallest_module
from fuzzer.trial.places import make_task
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task


@functools.cache
def task() -> Task:
    return make_task("cpu", "aot_eager", None)  # it asks torch for its backends, which imports the compiler


LOG = Journal(None)


class Twice(nn.Module):
    """Right in eager, wrong under the compiler."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x * (3.0 if torch.compiler.is_compiling() else 2.0) * scale


class Block(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.inner, self.part = nn.Linear(3, 3), part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.inner(x), scale=0.5)


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 3), nn.ModuleList([nn.Identity(), Block(Twice())])[1], nn.Tanh())


def test_each_module_is_met_with_its_arguments_and_cotangents() -> None:
    call = Call(net(), (torch.ones(2, 3),))
    judge_call(call, task(), LOG)
    met = calls_met(call, task())
    part = call.function[1].part  # type: ignore[index]
    assert met[part].kwargs == {"scale": 0.5}
    assert met[part].args[0].shape == (2, 3)
    assert met[part].args[0].requires_grad
    assert met[part].cotangents["output"].shape == (2, 3)


@pytest.mark.slow
def test_the_smallest_module_that_differs_alone_is_found() -> None:
    call = Call(net(), (torch.ones(2, 3),))
    judged = []

    def judge(inner: Call):  # type: ignore[no-untyped-def]
        judged.append(type(inner.function).__name__)
        return judge_call(inner, task(), LOG)

    report = judge_call(call, task(), LOG)
    assert report.verdict == "wrong"
    name, found, told = smallest_module(call, task(), report, judge)
    assert name == "1.part"
    assert isinstance(found.function, Twice)
    assert told.verdict == "wrong"
    assert judged == ["Linear", "Block", "Linear", "Twice"]


def test_a_branch_of_the_compiler_is_in_no_program() -> None:
    call = Call(Twice(), (torch.ones(2, requires_grad=True),))
    assert shown_by_program(call, judge_call(call, task(), LOG), task(), LOG) == ""


def test_of_a_module_that_is_called_twice_the_first_call_is_kept() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tanh = nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.tanh(3 * self.tanh(x))

    call = Call(Chain(), (torch.ones((), requires_grad=True),))
    judge_call(call, task(), LOG)
    met = calls_met(call, task())[call.function.tanh]  # type: ignore[attr-defined]
    assert met.args[0].item() == 1
    second = 3 * torch.ones(()).tanh()
    assert torch.allclose(met.cotangents["output"], 3 * (1 - second.tanh() ** 2))
