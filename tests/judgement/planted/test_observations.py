"""Records corrupted after a run."""

from __future__ import annotations

import torch

from fuzzer.judgement.planted.observations import changed_gradients, changed_outputs, long_compile, scaled_in_place
from fuzzer.judgement.planted.runtime import ASLEEP_SECONDS
from fuzzer.judgement.trial import RAN, Observation


def seen() -> Observation:
    gradients = {"x0": torch.ones(3), "x1": None}
    return Observation(RAN, outputs=[torch.ones(2)], gradients=gradients, cpu_seconds=1.0)


def test_gradients_change_and_what_has_none_keeps_none() -> None:
    before = seen()
    found = changed_gradients(lambda t: t * 2).tamper(before)
    assert torch.equal(found.gradients["x0"], torch.full((3,), 2.0))
    assert found.gradients["x1"] is None
    assert torch.equal(found.outputs[0], torch.ones(2))
    assert torch.equal(before.gradients["x0"], torch.ones(3)), "the record itself is as it was"
    assert changed_gradients(lambda t: t, "reference").side == "reference"


def test_outputs_change_alone() -> None:
    found = changed_outputs(lambda t: None).tamper(seen())
    assert found.outputs == [None]
    assert torch.equal(found.gradients["x0"], torch.ones(3))


def test_a_compile_took_longer_than_any_deadline() -> None:
    assert long_compile(seen()).cpu_seconds == 1.0 + ASLEEP_SECONDS


def test_what_is_scaled_in_place_stays_in_its_storage() -> None:
    tensor = torch.ones(3)
    assert scaled_in_place(tensor).data_ptr() == tensor.data_ptr()
    assert torch.equal(tensor, torch.full((3,), 1.01))
