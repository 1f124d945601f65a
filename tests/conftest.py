"""What every test runs under: one torch thread, quiet warnings, and Hypothesis without clock, database or chance."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Iterator

import hypothesis
import pytest
import torch
from hypothesis.internal.conjecture import providers

from fuzzer.language.private import leave_guards_untimed

# Some of eager's kernels return memory that nobody wrote (median of an expanded tensor, on torch 2.13), and the
# generator looks at values. As in workers (MALLOC_PERTURB_), such memory always holds the same. -6: glibc's M_PERTURB.
with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(None).mallopt(-6, 165)

# As in workers: with an empty cache torch compiles probes of the CPU's vector instructions, 8 CPU seconds in
# every process that compiles.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Hypothesis draws numbers that stand in the modules of the tree, so that examples would depend on which tests were
# chosen, on the name of the checkout's folder, and on every edit. There is no setting for that.
providers.is_local_module_file = lambda path: False

hypothesis.settings.register_profile(
    "backfuzz",
    deadline=None,
    derandomize=True,
    database=None,
    # a test whose examples are nearly all rejected fails: it would look at nothing
    suppress_health_check=[c for c in hypothesis.HealthCheck if c is not hypothesis.HealthCheck.filter_too_much],
)
hypothesis.settings.load_profile("backfuzz")


@pytest.fixture
def fewer_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The final look has the replicas of the second: for tests whose differences are gross."""
    from fuzzer.judgement import comparison

    monkeypatch.setattr(comparison, "FINAL_LOOK", comparison.SECOND_LOOK)


@pytest.fixture(autouse=True)
def _quiet_and_single_threaded() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    if "torch._dynamo.guards" in sys.modules:  # as in workers; a test that compiles nothing does not import it for this
        leave_guards_untimed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
