"""What the fork server imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzer.workers.pool import Pool
from fuzzer.workers.server import clean_environment
from tests.workers import worker_faults as faults
from tests.workers.asked import ROOT, ask


def test_a_worker_starts_with_all_that_the_fork_server_holds(tmp_path: Path) -> None:
    with Pool(1, ["cpu"], deadline=60, scratch=tmp_path) as pool:
        known = ast.literal_eval(ask(pool, faults.tell, "known").stderr)
        spent = ast.literal_eval(ask(pool, faults.tell, "spent").stderr)
    assert known == {
        "compiler": True,
        "instructions": True,
        "frozen": True,
        "simplified": True,
        "timed": False,
        "gpu": False,
    }
    assert spent < 0.5  # CPU seconds; importing torch alone takes more


NO_DEVICE = """
import pytest
import torch

def touch(*given, **named):
    raise AssertionError("the fork server touched CUDA: all its children would fail")

torch.cuda._lazy_init = touch
asked = ["_cuda_init"] if torch.cuda._device_count_nvml() < 0 else ["_cuda_init", "_cuda_getDeviceCount"]
for name in asked:  # without NVML torch has nobody else to ask how many GPUs there are
    if hasattr(torch._C, name):
        setattr(torch._C, name, touch)
import fuzzer.workers.preload
assert not torch.cuda.is_initialized()
"""


@pytest.mark.slow
def test_what_the_fork_server_imports_asks_for_no_gpu() -> None:
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", NO_DEVICE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
