"""What a run asks of an accelerator, of any type: here of machines that are made up."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzzer.language.devices import DEVICES, HOST
from fuzzer.language.errors import NoMachine
from fuzzer.trial.places import pick_device
from fuzzer.workers import accelerator
from fuzzer.workers.accelerator import (
    bound_memory,
    can_fork,
    check_devices,
    check_flag_gems,
    context_is_usable,
    count_devices,
    default_device_type,
    device_name,
    free_memory,
    poison,
    query_devices,
    use_device,
)
from fuzzer.workers.usage import Peak

ACCELERATORS = [name for name in DEVICES if name != HOST.type]


class Machine:
    """A torch that is built for a type of accelerator, of which this machine has so many; it notes what is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str | None, there: int):
        self.asked: list[Any] = []
        monkeypatch.setattr(
            "torch.accelerator.current_accelerator", lambda: SimpleNamespace(type=kind) if kind else None
        )
        monkeypatch.setattr("torch.accelerator.device_count", lambda: there)
        for name, told in (
            ("synchronize", None),
            ("set_device_index", None),
            ("reset_peak_memory_stats", None),
            ("memory_allocated", 100),
            ("max_memory_allocated", 350),
        ):
            monkeypatch.setattr(f"torch.accelerator.{name}", self.noting(name, told))
        device_name.cache_clear()

    def noting(self, name: str, told: Any) -> Any:
        def note(*given: Any) -> Any:
            self.asked.append((name, *given))
            return told

        return note


@pytest.fixture(params=ACCELERATORS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_machine_runs_on_its_accelerator_where_nothing_else_is_asked_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, kind, 2)
    assert [count_devices(name) for name in DEVICES] == [2 * (name == kind) for name in DEVICES]
    assert default_device_type() == pick_device(None) == kind
    assert pick_device("cpu") == "cpu"
    check_devices(["cpu", f"{kind}:1"])
    with pytest.raises(NoMachine, match=f"no device {kind}:2: this machine has 2"):
        check_devices([f"{kind}:2"])
    check_flag_gems_is_only_missing(kind)


def check_flag_gems_is_only_missing(kind: str) -> None:
    with pytest.raises(NoMachine, match="pip install"):
        check_flag_gems(kind)


@pytest.mark.parametrize(("built", "there"), [(None, 0), ("cuda", 0), ("mps", 1)])
def test_a_machine_without_an_accelerator_of_a_known_type_runs_on_the_cpu(
    built: str | None, there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, built, there)
    assert default_device_type() == "cpu"
    for name in ACCELERATORS:
        with pytest.raises(NoMachine, match=f"no {name.upper()} device"):
            check_devices([name])


def test_the_fork_server_imports_the_compiler_only_where_its_children_can_use_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for kind, hip in ((None, None), ("cuda", None), ("cuda", "7.0"), ("xpu", None), ("mps", None)):
        Machine(monkeypatch, kind, 1)
        monkeypatch.setattr(torch.version, "hip", hip)
        found.append(can_fork())
    assert found == [True, True, False, False, False]


def test_workers_take_devices_in_turn_and_all_bits_of_float32(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, kind, 2)
    # torch's own test tools, once imported, forbid any change of the real ones
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=True))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        for number in range(3):
            use_device(DEVICES[kind], number, 2)
        assert machine.asked == [("set_device_index", index) for index in (0, 1, 0)]
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cudnn.allow_tf32 == (not DEVICES[kind].tf32)
    finally:
        torch.set_float32_matmul_precision(before)


def test_workers_share_a_devices_memory_evenly_where_torch_can_bound_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded: list[float] = []
    monkeypatch.setattr(
        "torch.get_device_module", lambda _: SimpleNamespace(set_per_process_memory_fraction=bounded.append)
    )
    for share in (0.25, 1.0):
        bound_memory(DEVICES[kind], share)
    assert bounded == [0.25]
    monkeypatch.setattr("torch.get_device_module", lambda _: SimpleNamespace())
    bound_memory(DEVICES[kind], 0.25)


def test_free_memory_is_filled_with_nan_on_an_accelerator_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, filled = Machine(monkeypatch, kind, 1), list[Any]()
    monkeypatch.setattr("torch.full", lambda *given, device: filled.append((*given, device)))
    poison("cpu")
    assert not filled
    poison(f"{kind}:1")
    assert len(filled) == 36
    assert {device for _, _, device in filled} == {f"{kind}:1"}
    assert machine.asked == [("synchronize", f"{kind}:1")]


def test_a_device_that_lost_its_context_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any, device: str) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    Machine(monkeypatch, kind, 1)
    one = torch.ones(())
    monkeypatch.setattr("torch.ones", lambda shape, device: one)
    assert context_is_usable(kind)
    monkeypatch.setattr("torch.ones", refused)
    assert not context_is_usable(kind), "also where there is nothing to wait for"

    def full(*given: Any, device: str) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")

    monkeypatch.setattr("torch.ones", full)
    assert context_is_usable(kind)
    assert context_is_usable("cpu")


def test_the_peak_of_an_accelerator_is_what_its_allocator_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, kind, 1)
    with Peak(f"{kind}:0") as peak:
        pass
    assert peak.bytes == 250
    assert {given for _, given in machine.asked} == {f"{kind}:0"}


@pytest.mark.parametrize(
    ("told", "free", "name"),
    [
        ("3000 0 Data Center GPU\n2000 35 Data Center GPU\n", 5000, "Data Center GPU"),
        ("3000 0 \n", 3000, ""),
        ("", sys.maxsize, ""),
        ("RuntimeError: no driver\n", sys.maxsize, ""),
    ],
)
def test_free_memory_is_that_of_all_devices_together(
    kind: str, told: str, free: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, kind, 2)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, told))
    assert (free_memory(kind), device_name(kind)) == (free, name)
    assert [device.busy for device in query_devices(kind)][1:] == ([0.35] if free == 5000 else [])
    assert query_devices("cpu") == []


@pytest.mark.slow
def test_what_does_not_answer_in_time_or_cannot_tells_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, kind, 1)
    if kind == ACCELERATORS[0] and not torch.get_device_module(kind).is_available():  # such a process imports torch
        assert query_devices(kind) == []  # the process that asks finds no such device
    monkeypatch.setattr(accelerator, "QUERY_SECONDS", 0.01)
    assert query_devices(kind) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_a_real_accelerator_tells_its_name_and_memory_and_is_not_touched() -> None:
    code = "from fuzzer.workers.accelerator import *; k = default_device_type()\n"
    code += "print(count_devices(k), free_memory(k), device_name(k))\n"
    code += "import torch; print(torch.get_device_module(k).is_initialized())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    there, free, name = told[0].split(" ", 2)
    kind = default_device_type()
    assert int(there) == count_devices(kind) > 0
    assert 0 < int(free) < sys.maxsize
    assert name == torch.get_device_module(kind).get_device_name(0)
    assert told[1] == "False"
