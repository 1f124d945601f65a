"""The fork server: begun before torch is imported, in a clean environment, gone with this process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzer.workers.executor import GONE, process_state
from fuzzer.workers.server import clean_environment, environment
from tests.workers.asked import ROOT


def python(code: str, **planted: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: there the fork server is begun once."""
    given = {**os.environ, **planted, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=given, capture_output=True, text=True)


EARLY = """
import sys
from fuzzer.workers.server import server_pids, start_server
if __name__ == "__main__":
    start_server()
    assert "torch" not in sys.modules
    begun = server_pids()
    from tests.workers import worker_faults as faults
    from fuzzer.workers.messages import Task
    from fuzzer.workers.pool import Pool
    with Pool(1, ["cpu"]) as pool:
        print(pool.result(pool.submit(faults.tell, Task(), "environment"), Task()).stderr)
    assert begun == server_pids()
"""


@pytest.mark.slow
def test_one_that_is_begun_before_torch_is_imported_serves_pools_and_keeps_hidden_switches_from_workers() -> None:
    planted = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCH_COMPILE_DEBUG": "1", "TRITON_INTERPRET": "1", "PLAIN": "kept"}
    done = python(EARLY, **planted)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = ast.literal_eval(done.stdout)
    assert not {"TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_COMPILE_DEBUG", "TRITON_INTERPRET"} & set(seen)
    assert seen["PLAIN"] == "kept"
    assert seen["OMP_NUM_THREADS"] == "1"


NEEDLESS = """
import time
from fuzzer.workers.server import server_pids, start_server
start_server()
time.sleep(0.5)  # it imports now
print(*server_pids())
"""


def test_one_that_nobody_needed_goes_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    done = python(NEEDLESS, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert process_state(int(done.stdout)) in GONE


def test_the_clean_environment_is_in_force_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    with environment(clean_environment()):
        assert "TORCHINDUCTOR_FREEZING" not in os.environ
        assert os.environ["MALLOC_PERTURB_"]
    assert os.environ["TORCHINDUCTOR_FREEZING"] == "1"
