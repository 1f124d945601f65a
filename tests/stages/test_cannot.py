"""What a stage raises itself is no outcome of the program, but for its verdict."""

from __future__ import annotations

import pytest

from fuzzer.stages.cannot import Cannot, Faulty, own_work


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyError("buf0\nand more"), "KeyError: 'buf0\\nand more'"), (Cannot("operation: rand"), "operation: rand"),
     (RuntimeError("shapes differ\nat this place"), "RuntimeError: shapes differ")],
)  # fmt: skip
def test_whatever_is_raised_is_a_reason_to_build(error: Exception, told: str) -> None:
    reasons: list[str] = []
    with pytest.raises(Cannot), own_work(reasons):
        raise error
    assert reasons == [told]


def test_a_verdict_passes_and_is_no_reason() -> None:
    reasons: list[str] = []
    with pytest.raises(Faulty), own_work(reasons):
        raise Faulty("outside")
    assert reasons == []
