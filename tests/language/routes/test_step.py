"""Forward and backward in one compiled function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer.language.routes import (
    ROUTES,
    UnknownRoute,
    route_of,
)
from fuzzer.language.settings import in_force
from fuzzer.language.text import parse
from fuzzer.trial.pipeline import report_program
from fuzzer.workers.journal import Journal
from tests.language.routes.runs import FRESH, HELD, run


def test_a_parameter_is_held_by_a_module_and_its_gradient_is_that_of_a_leaf() -> None:
    handed: list[Any] = []

    def compile(step: Callable[..., Any]) -> Callable[..., Any]:
        handed.append(step)
        return step

    held, plain = run(parse(HELD), compile), run(parse(HELD.replace("parameter=True, ", "")))
    assert [name for name, _ in handed[0].named_parameters()] == ["x1"]
    assert list(held.gradients) == list(plain.gradients) == ["x0", "x1"]
    for name, gradient in plain.gradients.items():
        assert torch.equal(held.gradients[name], gradient)


@pytest.mark.parametrize("route", [name for name, spec in ROUTES.items() if not spec.module])
def test_a_route_without_a_module_refuses_parameters(route: str) -> None:
    with pytest.raises(UnknownRoute, match=f"route {route} has no module to hold the parameters x1"):
        route_of(parse(HELD.replace("vjp", route)))


def code(text: str, frozen: bool) -> str:
    """What inductor generates for a program, forward and backward."""
    from torch._inductor.utils import run_and_get_code

    program = parse(text)
    torch._dynamo.reset()
    uncached = (("inductor.force_disable_caches", True), ("inductor.freezing", frozen))
    with in_force(uncached):
        _, found = run_and_get_code(run, program, lambda f: torch.compile(f, fullgraph=True, dynamic=False))
    return re.sub("# AOT ID.*", "", "\n".join(found))  # a count of compiles


@pytest.mark.slow
def test_freezing_acts_on_the_parameters_of_the_vjp_route() -> None:
    usual, frozen = code(HELD, False), code(HELD, True)
    assert "_frozen_param" not in usual
    assert "tanh" in usual.replace("tanh_backward", "")
    # the parameter is a constant of the code, and what depends on it alone was computed by the compiler
    assert "_frozen_param" in frozen
    assert "tanh()" not in frozen
    found = report_program(
        parse(HELD.replace("route", 'settings({"inductor.freezing": True})\nroute', 1)), FRESH, Journal(None)
    )
    assert (found.verdict, found.rejected) == ("agree", "")


@pytest.mark.slow
def test_freezing_is_inert_in_the_autograd_route() -> None:
    text = HELD.replace("vjp", "autograd").replace("parameter=True, ", "")
    assert code(text, False) == code(text, True)
