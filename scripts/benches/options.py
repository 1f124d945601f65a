"""Options that several benches have, the task that they describe, and how figures are printed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Task

_ROOT = Path(__file__).resolve().parents[2]


def _enough(context: click.Context, option: click.Parameter, workers: int | None) -> int:
    return workers or default_workers([context.params.get("device", "cpu")])


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
backend_option = click.option("--backend", default="inductor", show_default=True, help="The backend on trial.")
device_option = click.option("--device", default="cpu", show_default=True, is_eager=True, help="cpu or cuda.")
seed_option = click.option("--seed", default=0, show_default=True, help="Programs are drawn from this seed.")
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=None,
    callback=_enough,
    help="Processes. Default: what the machine has room for, about one a core, two with a GPU.",
)


def programs_option(default: int, least: int = 1) -> Any:
    told = "How many programs to draw."
    return click.option("--programs", default=default, show_default=True, type=click.IntRange(least), help=told)


def common_options(command: Any) -> Any:
    """The options of a bench that runs programs on one backend."""
    for option in (json_option, backend_option, device_option, seed_option, workers_option):
        command = option(command)
    return command


def module_path() -> str:
    """PYTHONPATH of a process that runs a bench: this tree, then what this process was given."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join((str(_ROOT), str(_ROOT / "scripts"), *given))


def task_on(device: str, backend: str = "inductor", seed: int = 0) -> Task:
    """Programs of a seed, eager against a backend, by every route that any backend has."""
    return Task(Place(Subject("eager", device), Subject(backend, device)), seed, routes=ANY_BACKEND)


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """As one JSON object, or a line a figure without the long lists."""
    if as_json:
        print(json.dumps(figures))
        return
    for key, value in figures.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, inner in value.items():
                print(f"    {name}: {inner}")
        elif key not in ("missed", "rows"):
            print(f"{key}: {value}")
    for miss in figures.get("missed", []):
        print("missed:", {k: v for k, v in miss.items() if k != "text"})
