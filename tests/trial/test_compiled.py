"""The side on trial, and what torch says where its two runs differ."""

from __future__ import annotations

from dataclasses import replace

import torch

from fuzzer.judgement.trial import Place, Subject
from fuzzer.trial.compiled import determinism_note
from fuzzer.workers.journal import Journal
from tests.workers.light import LIGHT, trial

UNPOOLED = """x0 = leaf(f32[1, 1, 2], seed=1)
x1 = leaf(i64[1, 1, 2], values="zeros")
v0 = max_unpool1d(x0, x1, kernel_size=2)
backward(v0, cotangent(f32[1, 1, 4], seed=3))
"""


def test_what_torch_admits_of_two_runs_that_differ_names_the_operation_that_determinism_refuses() -> None:
    asked = replace(LIGHT, place=Place(Subject("eager"), Subject("inductor:graph")))  # calls its kernels by torch.ops
    unset, plain = trial(body=UNPOOLED, task=asked), trial(task=asked)
    assert determinism_note(unset.program, unset, asked.place.subject, Journal(None)) == (
        "torch says: max_unpooling2d_forward_out does not have a deterministic implementation"
    )
    note = determinism_note(plain.program, plain, asked.place.subject, Journal(None))
    assert note == "two runs are equal under torch.use_deterministic_algorithms"
    assert not torch.are_deterministic_algorithms_enabled()
