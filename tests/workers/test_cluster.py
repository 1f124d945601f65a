"""Workers on the machines of a Ray cluster: where they go, and that a machine that is lost takes nothing with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzzer.language.devices import device_row
from fuzzer.language.errors import NoMachine
from fuzzer.workers.cluster import Cluster, Crew, place_crews
from fuzzer.workers.pool import Pool
from tests.workers import worker_faults as faults
from tests.workers.asked import TASK, ask

CUDA = device_row("cuda")


def test_a_machine_has_a_crew_for_each_gpu_which_share_its_cores() -> None:
    machines = [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0}]
    assert place_crews(machines, None, CUDA) == [Crew(8, 1, 16), Crew(8, 1, 16)]
    assert place_crews(machines, 20, CUDA) == [Crew(8, 1, 10), Crew(8, 1, 10)]


def test_without_a_gpu_a_crew_has_few_cores_so_that_ray_can_place_it_again() -> None:
    assert place_crews([{"CPU": 6.0}, {"CPU": 2.0}, {}], None, None) == [Crew(3, 0, 3), Crew(3, 0, 3), Crew(2, 0, 2)]


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 40])
def test_as_many_workers_are_placed_as_were_asked_for(workers: int) -> None:
    crews = place_crews([{"CPU": 6.0}, {"CPU": 2.0}], workers, None)
    assert sum(crew.workers for crew in crews) == workers
    assert all(crew.workers for crew in crews)


def test_a_cluster_without_what_is_needed_is_told() -> None:
    with pytest.raises(NoMachine, match="no machine of the Ray cluster has a GPU"):
        place_crews([{"CPU": 64.0}], None, CUDA)
    with pytest.raises(NoMachine, match="has a CPU"):
        place_crews([{"memory": 1.0}], None, None)


def test_without_ray_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(NoMachine, match=r"no Ray: pip install 'backfuzz\[ray\]' brings it"):
        Cluster().machines()


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two machines of one core each, of which one can be killed; both are this one."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as Machines

    ray.shutdown()
    made = Machines(initialize_head=True, head_node_args={"num_cpus": 1})
    other = made.add_node(num_cpus=1)
    yield SimpleNamespace(made=made, other=other, cluster=Cluster(made.address))
    ray.shutdown()
    made.shutdown()


def test_a_machine_that_is_killed_costs_no_task_and_one_that_comes_is_used(machines: Any, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert machines.cluster.default_workers(["cpu"]) == 2
    with Pool(2, ["cpu"], deadline=60, scratch=tmp_path, cluster=machines.cluster) as pool:
        assert signal.getsignal(signal.SIGTERM) == before, "a campaign has its own way to end"
        warm = [pool.submit(faults.sleep, TASK, 0.5) for _ in range(4)]
        assert [pool.result(future, TASK).stderr for future in warm] == ["slept"] * 4
        wait_for(lambda: len(pool.executor.at_work()) == 2)
        futures = [pool.submit(faults.sleep, TASK, 1.0) for _ in range(8)]
        machines.made.remove_node(machines.other, allow_graceful=False)
        assert [pool.result(future, TASK).stderr for future in futures] == ["slept"] * 8
        assert pool.deaths == 0
        assert len(pool.executor.at_work()) == 1
        machines.made.add_node(num_cpus=1)
        wait_for(lambda: len(pool.executor.at_work()) == 2)
        assert ask(pool, faults.fine, "here").stderr == "here"


def test_a_machine_with_another_torch_is_refused_in_a_line(machines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "9.9.0")
    with (
        Pool(1, ["cpu"], cluster=machines.cluster) as pool,
        pytest.raises(Exception, match=r"a machine of the cluster has torch .*, the campaign's has 9\.9\.0"),
    ):
        ask(pool, faults.fine, "x")


def wait_for(happened: Any) -> None:
    until = time.monotonic() + 90
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)
