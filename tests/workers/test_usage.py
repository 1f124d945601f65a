"""What a run used is measured: CPU time of children too, memory at its peak."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from fuzzer.workers.usage import Peak, cpu_seconds

BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_cpu_seconds_count_work_and_not_waiting() -> None:
    start = cpu_seconds()
    time.sleep(0.3)
    assert cpu_seconds() - start < 0.2


def test_cpu_seconds_of_children_count_once_they_have_ended() -> None:
    start = cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert cpu_seconds() - start >= 0.5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_the_peak_counts_what_was_freed_again_but_not_what_was_there_before() -> None:
    before = torch.ones(2**24)
    with Peak("cpu") as peak:
        torch.ones(2**24)
        torch.ones(2**24)
    assert peak.bytes is not None
    assert 60 * 2**20 < peak.bytes < 80 * 2**20
    with Peak("cpu") as small:
        before += 1
    assert small.bytes is not None
    assert small.bytes < 4 * 2**20
