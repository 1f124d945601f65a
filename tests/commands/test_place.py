"""Where programs run, as options say it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.commands.calls import SEED, call, refused


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("arguments", [("fuzz",), ("replay", SEED), ("minimize", SEED), ("doctor",)])
def test_a_missing_gpu_exits_3(arguments: tuple[Any, ...]) -> None:
    assert "no CUDA device" in refused(call(*arguments, "--device", "cuda"), 3)
