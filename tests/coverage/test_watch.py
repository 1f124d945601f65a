"""Graphs and code as they come by while a program is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzzer.campaign.self_check import silent_families
from fuzzer.coverage import watch
from fuzzer.coverage.features import TRACE_FAMILIES
from fuzzer.coverage.structure import COMPILED_FAMILIES
from fuzzer.coverage.watch import watch_inductor
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language import private
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool

INDUCTOR = Task(place=Place(Subject("eager", "cpu"), Subject("inductor", "cpu")), fresh=True)


@pytest.mark.slow
def test_features_of_a_compile_are_the_same_in_every_process() -> None:
    found = []
    for _ in range(2):
        with Pool(1, ["cpu"]) as made:
            found.append(silent_families(made, INDUCTOR)[1])
    assert found[0].files == found[1].files
    assert found[0].features == found[1].features
    assert all(found[0].features[family] for family in (*TRACE_FAMILIES, *COMPILED_FAMILIES))


def test_an_error_in_a_hook_is_not_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: dict[str, Callable[..., Any]] = {}

    def caught(name: str) -> Callable[..., Any]:
        def hook(function: Callable[..., Any]) -> Any:
            hooks[name] = function
            return torch.no_grad()

        return hook

    monkeypatch.setattr(watch, "inner_graphs", caught("received"))
    monkeypatch.setattr(watch, "output_code", caught("written"))
    with watch_inductor("autograd", lambda: "forward") as seen:
        assert hooks["received"](object(), False) is True
    with pytest.raises(AttributeError, match="print_readable"):
        seen.words()


def test_counters_are_those_of_the_compiler() -> None:
    from torch._dynamo.utils import counters

    counters["inductor"]["some_match"] += 2
    try:
        assert private.counters()["inductor some_match"] == 2
    finally:
        del counters["inductor"]["some_match"]
