"""Where programs run, as options say it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fuzzer.campaign.told import view
from fuzzer.stages import STAGES
from fuzzer.trial.places import make_task
from tests.commands.calls import SEED, call, refused


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("arguments", [("fuzz",), ("replay", SEED), ("minimize", SEED), ("doctor",)])
def test_a_missing_gpu_exits_3(arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_FIRST_LINE_SECONDS", 600.0)  # a busy machine takes long to look for one
    assert "no CUDA device" in refused(call(*arguments, "--device", "cuda"), 3)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_inductor_is_a_side_like_any_other(stage: str) -> None:
    subject = make_task("cpu", "inductor", ("eager", f"inductor:{stage}@cpu/2")).place.subject
    assert (subject.compiler, subject.stage, subject.device, subject.threads) == ("inductor", stage, "cpu", 2)


@pytest.mark.parametrize("side", ["inductor:frob", "inductor:", "aot_eager:ir", "eager:ir"])
def test_a_stage_that_there_is_not_is_refused(side: str) -> None:
    told = refused(call("replay", SEED, "--device", "cpu", "--compare", "eager", side))
    assert told.endswith("there are inductor:graph, inductor:ir")
