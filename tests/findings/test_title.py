"""A fault's title."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzzer.findings.title import title
from fuzzer.judgement.verdict import Finding, Signature
from tests.findings.found import RELU, TWO_OPS, finding

RAISED = Signature("compile_does_not_raise", "raises", "forward", "TypeError < lower < call")
LOST = Signature("metadata_agrees", "wrong", "backward", "None-ness")
SET = " under inductor.cpp.inject_relu_bug_TESTING_ONLY=accuracy"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (finding(TWO_OPS), "silent: zero gradient of torch.slice_scatter + torch.sum"),
        (finding(RELU), f"silent: zero gradient of torch.nn.functional.relu{SET}"),
        (
            replace(finding(TWO_OPS), signature=RAISED, detail="the forward raised TypeError: no"),
            "forward of torch.slice_scatter + torch.sum raises TypeError",
        ),
        (finding(TWO_OPS, "eager-suspect"), "eager: silent: zero gradient of torch.slice_scatter + torch.sum"),
        (
            finding(TWO_OPS, diagnosis={"side": "eager wrong: at x0[0]"}),
            "eager: silent: zero gradient of torch.slice_scatter + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=Signature("metadata_agrees", "wrong", "forward", "dtype")),
            "silent: another dtype of the result of torch.slice_scatter + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is None, the reference's is float32[4, 4]"),
            "silent: no gradient of torch.slice_scatter + torch.sum",
        ),
        (
            replace(finding(TWO_OPS), signature=LOST, detail="x0.grad is float32[4, 4], the reference's is None"),
            "silent: a gradient of torch.slice_scatter + torch.sum where eager has none",
        ),
        (
            replace(finding(TWO_OPS), signature=Signature("worker_survives", "crashes", "forward", "SIGSEGV")),
            "result of torch.slice_scatter + torch.sum: crashes",
        ),
    ],
)
def test_a_title_says_what_is_wrong_of_which_operators_of_torch(found: Finding, expected: str) -> None:
    assert title(found) == expected
