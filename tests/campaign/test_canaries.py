"""Every oracle rings for its canaries, and all of them stay silent on the benign twins."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.campaign import loop
from fuzzer.campaign.canaries import (
    CANARIES,
    PROGRAMS,
    canary_result,
    canary_results,
    selected_canaries,
)
from fuzzer.campaign.plan import Plan
from fuzzer.judgement.oracles import ASKED, ORACLES
from fuzzer.judgement.planted import FAULTS, UnknownFault, planted
from fuzzer.judgement.verdict import FINDINGS, UNSUPPORTED, Signature, Verdict
from fuzzer.language.errors import NoMachine
from fuzzer.language.text import parse, show
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.obituary import top_frame
from fuzzer.workers.pool import DEADLINE_SECONDS, Pool
from tests.campaign.fakes import FakePool

HUNG = Report("", (Verdict(Signature("worker_survives", "hangs", "backward", "deadline"), "did not end in time"),))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_oracle_flags_its_planted_faults_and_none_speaks_where_nothing_is_planted(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with Pool(2, [device]) as pool:
        results = canary_results(pool, device, CANARIES, staged=device == "cpu")
    failed = {f"{r.name}: {r.oracle}": r.detail for r in results if not r.passed}
    assert (len(results), failed) == (len(CANARIES), {})


def test_every_oracle_has_a_canary_and_a_quick_one() -> None:
    names = {oracle.name for oracle in ORACLES}
    assert {c.oracle for c in CANARIES} == names
    assert Counter(c.oracle for c in selected_canaries(quick=True)) == dict.fromkeys(names - set(ASKED), 1)


def test_every_class_of_finding_that_an_oracle_gives_has_a_canary() -> None:
    of_functions = {"unmodelled"}  # every kernel that a program calls is modelled
    assert {c.verdict for c in CANARIES} == set(FINDINGS) - {UNSUPPORTED} - of_functions


def test_every_fault_is_planted_by_a_canary() -> None:
    assert {c.name for c in CANARIES} | {c.twin for c in CANARIES} - {""} == set(FAULTS)


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.prog")), ids=lambda path: path.stem)
def test_a_canary_program_is_canonical_in_use_and_says_what_to_expect(path: Path) -> None:
    text = path.read_text()
    assert show(parse(text)) == text
    assert "# expect: agree" in text.splitlines()
    assert path.stem in {c.program for c in CANARIES}


def test_a_fault_acts_on_its_own_side_only() -> None:
    table = decompositions()
    before = dict(table)
    with planted("gradient_all_zero", "reference"):
        assert dict(table) == before
    with planted("gradient_all_zero", "subject"):
        assert dict(table) != before
    assert dict(table) == before


def decompositions() -> dict[object, object]:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def test_an_unknown_fault_is_an_error_and_none_is_none() -> None:
    with pytest.raises(UnknownFault, match="no fault 'typo'"), planted("typo", "subject"):
        pass
    with planted("", "subject"):
        pass


def test_a_rejected_canary_is_not_flagged_and_a_rejected_twin_is_not_silent() -> None:
    refused = Report("", rejected="no compiler")
    result = canary_result(CANARIES[0], refused, refused, 0.0)
    assert not result.flagged
    assert not result.silent
    assert "no compiler" in result.detail


@pytest.mark.parametrize(
    ("name", "canary", "twin", "late"),
    [
        ("gradients_doubled", HUNG, Report(""), True),
        ("gradients_doubled", Report(""), Report("", rejected="the worker timed out on the reference side ()"), True),
        ("gradients_doubled", Report(""), Report(""), False),
        ("compiled_backward_hangs", HUNG, Report(""), False),
    ],
)
def test_what_did_not_end_in_time_says_nothing_of_an_oracle(
    name: str, canary: Report, twin: Report, late: bool
) -> None:
    [wanted] = [c for c in CANARIES if c.name == name]
    assert canary_result(wanted, canary, twin, 0.0).late == late


def test_an_overloaded_machine_is_told_from_deaf_oracles(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    [wanted] = [c for c in CANARIES if c.name == "gradients_doubled"]
    pool: Any = FakePool(lambda task, what: HUNG)
    late, deaf = (canary_result(wanted, report, Report(""), 0.0) for report in (HUNG, Report("")))
    for found, said in (([late], "did not end in time"), ([late, deaf], "the oracles cannot be trusted")):
        monkeypatch.setattr(loop, "run_canaries", lambda *_, found=found, **__: found)
        with pytest.raises(NoMachine, match=said):
            loop.require_canaries(pool, plan, print)


def test_canaries_have_deadlines_of_their_own_whatever_programs_have() -> None:
    deadlines: list[float] = []

    class Told(FakePool):
        def submit(self, function: Any, task: Task, what: Any, seconds: float | None = None) -> Future[Report]:
            assert seconds is not None
            deadlines.append(seconds)
            return super().submit(function, task, what)

    pool: Any = Told(lambda task, what: Report(""))
    canary_results(pool, "cpu", selected_canaries(quick=True))
    assert set(deadlines) == {DEADLINE_SECONDS}


STACKS = """noise
SIGSEGV(11), PID: 7, Thread 7:
 frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x8f (0x7f in libc10.so)
frame #1: c10::FatalSignalHandler::fatalSignalHandler(int, siginfo_t*) + 0x2da (0x7f in libc10.so)
frame #2: <unknown function> + 0x3c050 (0x7f in /lib/x86_64-linux-gnu/libc.so.6)
{frames}<omitting python frames>
frame #18: PyThread::main(int) + 0x5 (0x7f in libpython.so)
frame #19: __libc_start_main + 0x85 (0x7f in /lib/x86_64-linux-gnu/libc.so.6)

SIGSEGV(11), PID: 7, Thread 8:
 frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x8f (0x7f in libc10.so)
frame #1: other::thread(int) + 0x2 (0x7f in libother.so)
"""


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        ("frame #3: at::native::raise_to<4>(int) + 0x12 (0x7f in libtorch.so)\n", "at::native::raise_to<#>"),
        ("frame #3: at::(anonymous namespace)::copy(int) + 0x12 (0x7f in libtorch.so)\n", "at::{anonymous}::copy"),
        ("frame #3: abort + 0xd3 (0x7f in libc.so.6)\nframe #4: kernel + 0x3 (0x7f in c.so)\n", "kernel"),
        ("frame #3: abort + 0xd3 (0x7f in libc.so.6)\n", ""),
    ],
)
def test_a_death_is_named_after_the_innermost_native_function_of_its_own_thread(frames: str, name: str) -> None:
    assert top_frame(STACKS.replace("{frames}", frames)) == name
    assert top_frame(frames) == name
    assert top_frame("") == ""
