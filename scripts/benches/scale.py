"""Programs a second on 1, 2, 4 units of one machine, with workers of this machine's and on Ray.

A unit is a GPU with its share of the cores, or without GPUs a core. Each number of units is measured in a process of
its own, which sees so many GPUs and may use so many cores, and so may all that it starts. In it the two executors have
their turns, round by round, on the same programs; workers that wait for their turn take nothing.

The pace is that while every worker is busy (`throughput.pace`): the last program of a round takes as long as it takes.

Beside the pace stands what may hold it back: the CPU seconds of a program (more where cores share a core's parts, or
memory), the share of the cores' time that is busy (less where workers wait for a GPU or for each other), the share that
the host took away, and that which the main process takes of one core. So do the CPU milliseconds of a Python loop
(`loop_ms`), which runs on each of these cores at once before the workers start. The loop needs no memory, no GPU and no
call of the system: where it takes longer on more cores, the host's cores share parts or run slower together.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import click
import psutil

from benches.options import backend_option, device_option, json_option, module_path, seed_option
from benches.throughput import Pace, Side
from fuzzer.campaign.schedule import BySeed
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.devices import HOST, accelerator, device_row
from fuzzer.language.errors import UsageError
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.workers.accelerator import count_devices
from fuzzer.workers.capacity import cores
from fuzzer.workers.cluster import LOCAL, RAY, Cluster
from fuzzer.workers.messages import Task
from fuzzer.workers.pool import Pool

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Asked:
    """One measurement: so many units with so many cores each, so many programs of each unit in each round."""

    units: int
    cores: int
    programs: int
    rounds: int
    warm: int
    device: str
    backend: str
    seed: int
    executors: tuple[str, ...]

    @property
    def workers(self) -> int:
        return self.units * self.cores * device_row(self.device).per_core


def measure_scale(units: Sequence[int], asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    """Rates by executor and units, what a unit gives of the first number's, and Ray against local by round. Raises
    UsageError where the machine has fewer."""
    _require(max(units), asked)
    told = {number: _in_a_process(replace(asked, units=number), say) for number in units}
    rates = {name: {n: told[n][name]["rate"] for n in units} for name in asked.executors}
    figures: dict[str, Any] = {
        "device": asked.device,
        "cores_per_unit": asked.cores,
        "threads_of_a_core": (psutil.cpu_count() or 1) / (psutil.cpu_count(logical=False) or 1),
        "workers": {n: told[n]["workers"] for n in units},
        "programs_per_s": rates,
        "loop_ms": {n: told[n]["loop_ms"] for n in units},
        "per_unit": {name: {n: round(of[n] / n / (of[units[0]] / units[0]), 3) for n in units}
                     for name, of in rates.items()},
        **{what: {name: {n: told[n][name][what] for n in units} for name in asked.executors} for what in HELD_BACK},
    }  # fmt: skip
    if set(asked.executors) == {LOCAL, RAY}:
        figures["ray_of_local"] = {n: round(rates[RAY][n] / rates[LOCAL][n], 3) for n in units}
        figures["ray_of_local_by_round"] = {n: told[n]["ratios"] for n in units}
    return figures


HELD_BACK = ("cpu_seconds_per_program", "busy", "taken_by_host", "main_process")
LOOP = """\
import time
ends, laps, cpu = time.monotonic() + 3, 0, time.process_time()
while time.monotonic() < ends:
    for number in range(100_000):
        number & 7
    laps += 1
print((time.process_time() - cpu) / laps * 1000)
"""


def loop_ms(processes: int) -> float:
    """CPU milliseconds of 100,000 steps of a Python loop, the mean over so many processes that run it for three seconds
    at once."""
    command = [sys.executable, "-S", "-c", LOOP]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return statistics.fmean(float(process.communicate()[0]) for process in running)


@dataclass
class Spent:
    """Of the cores that this process may use: seconds in all, busy ones, those that the host took away; seconds on the
    clock, and those of the CPU that this process took."""

    total: float = 0.0
    busy: float = 0.0
    taken: float = 0.0
    clock: float = 0.0
    own: float = 0.0

    @classmethod
    def so_far(cls) -> Spent:
        each = psutil.cpu_times(percpu=True)
        times = [each[core] for core in sorted(os.sched_getaffinity(0)) if core < len(each)]
        taken, idle = sum(t.steal for t in times), sum(t.idle + t.iowait for t in times)
        total = sum(t.user + t.nice + t.system + t.irq + t.softirq + t.steal + t.idle + t.iowait for t in times)
        return cls(total, total - idle - taken, taken, time.monotonic(), time.process_time())

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


def _require(units: int, asked: Asked) -> None:
    there = count_devices(asked.device) if asked.device != HOST.type else cores()
    if units > there or units * asked.cores > cores():
        raise UsageError(f"{units} units of {asked.cores} core(s) are asked for; this machine has {cores()} core(s)"
                         + ("" if asked.device == HOST.type else f" and {there} {asked.device} device(s)"))  # fmt: skip


def _in_a_process(asked: Asked, say: Callable[[str], None]) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": module_path()}
    if asked.device != HOST.type:
        seen = environment.get(_VISIBLE, "").split(",") if environment.get(_VISIBLE) else map(str, range(asked.units))
        environment[_VISIBLE] = ",".join(list(seen)[: asked.units])
    command = [sys.executable, "-m", "benches.scale", json.dumps(asdict(asked))]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    say(f"{asked.units} unit(s): " + ", ".join(f"{name} {found[name]['rate']:.3f}/s" for name in asked.executors))
    return found


def run(asked: Asked) -> dict[str, Any]:
    """In the process: what each executor gives, and the ratio of Ray's pace to that of local workers in each round."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.units * asked.cores])
    loop = loop_ms(asked.units * asked.cores)
    task = Task(Place(Subject("eager", asked.device), Subject(asked.backend, asked.device)), asked.seed,
                routes=ANY_BACKEND)  # fmt: skip
    if RAY in asked.executors:
        gpus = asked.units if accelerator([asked.device]) else 0  # whatever the machine has
        Cluster("local").connect(num_cpus=asked.units * asked.cores, num_gpus=gpus)
    with contextlib.ExitStack() as stack:
        places = {name: Cluster() if name == RAY else None for name in asked.executors}
        pools = {name: stack.enter_context(Pool(asked.workers, task.place.devices, cluster=place))
                 for name, place in places.items()}  # fmt: skip
        sides = {name: Side(BySeed()) for name in pools}
        for name, pool in pools.items():
            sides[name].explored(pool, task, asked.warm * asked.workers)
        paces: dict[str, list[Pace]] = {name: [] for name in pools}
        spent, cpu = dict.fromkeys(pools, Spent()), dict.fromkeys(pools, 0.0)
        for _ in range(asked.rounds):
            for name, pool in pools.items():
                before = Spent.so_far()
                reports, pace = sides[name].explored(pool, task, asked.programs * asked.units)
                spent[name] += Spent.so_far() - before
                cpu[name] += sum(report.seconds.get("cpu", 0.0) for report in reports)
                paces[name].append(pace)
    programs = asked.rounds * asked.programs * asked.units
    found: dict[str, Any] = {
        name: {"rate": sum(of, Pace()).rate, **held_back(spent[name], cpu[name] / programs)}
        for name, of in paces.items()
    }
    if len(paces) == 2:
        found["ratios"] = [round(far.rate / near.rate, 3)
                           for near, far in zip(paces[LOCAL], paces[RAY], strict=True)]  # fmt: skip
    return found | {"workers": asked.workers, "loop_ms": round(loop, 3)}


def held_back(spent: Spent, cpu: float) -> dict[str, float]:
    """What may hold the pace back (HELD_BACK), of what was spent; cpu: seconds of a program."""
    total, clock = spent.total or 1.0, spent.clock or 1.0
    shares = (cpu, spent.busy / total, spent.taken / total, spent.own / clock)
    return {name: round(share, 3) for name, share in zip(HELD_BACK, shares, strict=True)}


def _numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is no list of numbers, as 1,2,4")
    return tuple(map(int, parts))


@click.command("scale")
@click.option("--units", default="1,2", show_default=True, callback=_numbers, help="GPUs, or cores, with commas.")
@click.option("--cores", "each", type=click.IntRange(1), default=1, show_default=True, help="Cores of a unit.")
@click.option("--executors", default=f"{LOCAL},{RAY}", show_default=True, help="local, ray or both, with commas.")
@click.option(
    "--programs", type=click.IntRange(1), default=60, show_default=True, help="Programs of each unit in a round."
)
@click.option("--rounds", type=click.IntRange(1), default=4, show_default=True, help="How often the arms take turns.")
@click.option(
    "--warm", type=click.IntRange(0), default=4, show_default=True, help="Programs of each worker that do not count."
)
@seed_option
@device_option
@backend_option
@json_option
def scale_command(
    units: tuple[int, ...], each: int, executors: str, programs: int, rounds: int, warm: int, seed: int, device: str,
    backend: str, as_json: bool,
) -> None:  # fmt: skip
    """How many programs a second do 1, 2, 4 GPUs (or cores) of this machine run, with local workers and on Ray?"""
    names = tuple(executors.split(","))
    if not set(names) <= {LOCAL, RAY}:
        raise UsageError(f"--executors takes {LOCAL} and {RAY}, not {executors!r}")
    asked = Asked(1, each, programs, rounds, warm, device, backend, seed, names)
    figures = measure_scale(units, asked, lambda line: click.echo(line, err=True))
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{key}: {value}" for key, value in figures.items()))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(run(Asked(**given | {"executors": tuple(given["executors"])}))))
