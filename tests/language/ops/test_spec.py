"""What an entry of the op tables says."""

from __future__ import annotations

import pytest

from fuzzer.language.ops.spec import writable
from fuzzer.language.program import TensorType


@pytest.mark.parametrize(
    ("stride", "may"), [((4, 1), True), ((1, 3), True), ((0, 1), False), ((1, 1), False), ((9, 2), True)]
)
def test_only_memory_without_overlaps_is_writable(stride: tuple[int, int], may: bool) -> None:
    assert writable(TensorType("f32", (3, 4), stride)) is may
