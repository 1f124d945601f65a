"""How many workers a machine gets: by its cores, its memory and that of its GPUs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import psutil
import pytest
from benches.options import common_options
from click.testing import CliRunner

from fuzzer.workers import capacity
from fuzzer.workers.capacity import default_workers, free_ram

GIB = 2**30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(cores: int, ram: int, gpu: int) -> None:
        monkeypatch.setattr(capacity, "cores", lambda: cores)
        monkeypatch.setattr(capacity, "free_ram", lambda: ram * GIB)
        monkeypatch.setattr(capacity, "free_memory", lambda kind: gpu * GIB)

    return made


# cores, GiB of RAM and of GPU memory, devices: workers
MACHINES = [
    (2, 22, 0, ["cpu", "cpu"], 2),
    (16, 120, 139, ["cuda", "cuda"], 32),
    (16, 120, 139, ["cpu", "cuda:1"], 32),
    (16, 120, 139, ["xpu", "xpu"], 32),
    (16, 120, 139, ["cpu", "cpu"], 16),
    (16, 12, 139, ["cuda", "cuda"], 12),
    (16, 120, 7, ["cuda", "cuda"], 7),
    (16, 120, 7, ["cpu", "cpu"], 16),
    (4, 0, 0, ["cuda", "cuda"], 1),
]


@pytest.mark.parametrize(("cores", "ram", "gpu", "devices", "workers"), MACHINES)
def test_the_scarcest_of_cores_ram_and_gpu_memory_decides(
    machine: Any, cores: int, ram: int, gpu: int, devices: list[str], workers: int
) -> None:
    machine(cores, ram, gpu)
    assert default_workers(devices) == workers


def test_ram_is_what_the_machine_and_the_container_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4096 * 1024))
    monkeypatch.setattr(capacity, "CGROUP", tmp_path)
    assert free_ram() == 4096 * 1024
    (tmp_path / "memory.current").write_text("1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_ram() == 4096 * 1024
    (tmp_path / "memory.max").write_text("3000000\n")
    assert free_ram() == 2000000
    (tmp_path / "memory.max").write_text("5\n")
    assert free_ram() == 0


@pytest.mark.parametrize(("given", "workers"), [([], 3), (["--device", "cuda"], 6), (["--workers", "5"], 5)])
def test_a_bench_takes_the_default_of_its_device(machine: Any, given: list[str], workers: int) -> None:
    machine(3, 99, 99)

    @click.command()
    @common_options
    def asked(workers: int, **rest: Any) -> None:
        click.echo(workers)

    assert CliRunner().invoke(asked, given).output == f"{workers}\n"
