"""What every test runs under: one torch thread, quiet warnings, and Hypothesis without clock, database or chance."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile(
    "backfuzz",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("backfuzz")


@pytest.fixture(autouse=True)
def _quiet_and_single_threaded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
