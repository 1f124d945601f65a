"""Options and arguments that several verbs take."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fuzzer.language.devices import DEVICE_NAMES
from fuzzer.language.errors import UsageError
from fuzzer.ledger.checkout import LEDGER
from fuzzer.ledger.shipped import SHIPPED
from fuzzer.workers.cluster import RAY


def _known_oracles(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if each is of an oracle that must be requested. Raises BadParameter."""
    if names:
        from fuzzer.judgement.oracles import ASKED  # it needs torch, which takes longer than showing a help text

        unknown = [name for name in names if name not in ASKED]
        if unknown:
            raise click.BadParameter(f"{unknown[0]!r} is no oracle that must be requested: {', '.join(ASKED)}")
    return names


class Number(click.FloatRange):
    """A float of a range, but for nan, which compares with nothing, and inf: leave the option out instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


db_option = click.option("--db", type=click.Path(path_type=Path), default=LEDGER, show_default=True, help="The ledger.")
no_diagnose_option = click.option(
    "--no-diagnose", is_flag=True, help="Leave the diagnosis as it is, even if it is missing or of an older version."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
device_option = click.option("--device", default=None, help=f"One of {DEVICE_NAMES}. Default: a GPU if there is one.")
found_device_option = click.option(
    "--device", default=None, help="The device of both sides. Default: the one where the finding was found."
)
program_device_option = click.option(
    "--device",
    default=None,
    help="The device of both sides. Default: for a finding the one where it was found, for a file a GPU if there is "
    "one.",
)
_found_backend_option = click.option(
    "--backend", default=None, help="The torch.compile backend to test. Default: the finding's, else inductor."
)
backend_option = click.option(
    "--backend",
    default="inductor",
    show_default=True,
    help="The torch.compile backend to test, or flag_gems: eager with FlagGems' operators.",
)


def _two_sides(
    context: click.Context, parameter: click.Parameter, sides: tuple[str, str] | None
) -> tuple[str, str] | None:
    if sides and sides[1].startswith("-"):  # the next option was taken for it
        raise UsageError(f"--compare takes two sides, not {sides[0]} alone: for instance eager inductor")
    return sides


compare_option = click.option(
    "--compare",
    nargs=2,
    callback=_two_sides,
    metavar="A B",
    default=None,
    help="Compare two sides, each `backend` or `backend@device`; the first is the reference. "
    "The second may be `backend@cpu/8`: with 8 threads.",
)
also_option = click.option(
    "--also",
    multiple=True,
    metavar="ORACLE",
    callback=_known_oracles,
    help="Use this oracle too, one of those that must be requested (repeatable).",
)


def _some_workers(context: click.Context, parameter: click.Parameter, workers: int | None) -> int | None:
    """The number of workers, if the machine can have so many. Raises BadParameter."""
    if workers is not None and context.params.get("executor") != RAY:
        from fuzzer.workers.capacity import most_workers

        if workers > (most := most_workers()):
            raise click.BadParameter(f"{workers} is more than this machine can run: at most {most}, 16 a core")
    return workers


class Amount(click.ParamType):
    """A number with a unit behind it, as a float; several may follow each other: 1d12h. units: what each stands for, of
    which "" is the one of a bare number."""

    def __init__(self, name: str, units: dict[str, float]):
        self.name, self.units = name, units

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        named = "|".join(map(re.escape, filter(None, self.units)))
        parts = re.findall(rf"(\d+(?:\.\d+)?)({named}|$)", str(value).strip(), re.IGNORECASE)
        total = sum(float(number) * self.units[unit.lower()] for number, unit in parts)
        if "".join(map("".join, parts)) != str(value).strip() or not total:
            self.fail(f"{value!r} is no {self.name}: a number and {', '.join(filter(None, self.units))}")
        return total


DURATION = Amount("duration", {"": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0})
TIME = Amount("time", {"": 1.0, "s": 1.0, "m": 60.0})
SIZE = Amount("size", {"": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40})
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=None,
    callback=_some_workers,
    help="The number of processes. Default: one a core, two with a GPU, fewer where RAM or GPU memory has less than a "
    "GiB for each.",
)
corpus_option = click.option(
    "--corpus",
    type=click.Path(path_type=Path),
    default=Path(".backfuzz/corpus"),
    show_default=True,
    help="The folder of the campaign's corpus.",
)


_NO_KNOWN = "backfuzz.no_known"  # in a context's `meta`


def _without_shipped(context: click.Context, option: click.Parameter, asked: bool) -> None:
    context.meta[_NO_KNOWN] = asked


def _with_shipped(context: click.Context, option: click.Parameter, ledgers: tuple[Path, ...]) -> tuple[Path, ...]:
    return ledgers if context.meta[_NO_KNOWN] else (*ledgers, SHIPPED)


def known_options(command: Any) -> Any:
    """Which ledgers' faults count as known: `known`, among them the one that comes with backfuzz."""
    for option in (
        click.option(
            "--no-known",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_without_shipped,
            help="Count no fault as known that comes with backfuzz.",
        ),
        click.option(
            "--known",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            callback=_with_shipped,
            help="Another ledger, whose faults count as known too; it is only read (repeatable).",
        ),
    ):
        command = option(command)
    return command


releases_option = click.option(
    "--torch",
    "releases",
    multiple=True,
    metavar="RELEASE",
    help="A release that scripts/fuzz --torch made (repeatable).",
)
pythons_option = click.option(
    "--python",
    "pythons",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A Python with another torch (repeatable).",
)
ID_HELP = """A fault or a finding of the ledger, by the first digits of its id. A fault stands for the finding that
represents it."""
FAULT_HELP = "A fault, or one of its findings, by the first digits of its id."
id_argument = click.argument("reference", metavar="ID", help=ID_HELP)
ids_argument = click.argument("references", nargs=-1, required=True, metavar="ID...", help=ID_HELP)
programs_argument = click.argument(
    "references",
    nargs=-1,
    required=True,
    metavar="FILE|ID...",
    help="A program: a .prog file, or a finding or fault of the ledger, by the first digits of its id.",
)


@dataclass(frozen=True)
class Sides:
    """Where and how programs run again, as the command line says it; None stands for the finding's own."""

    device: str | None = None
    backend: str | None = None
    compare: tuple[str, str] | None = None
    also: tuple[str, ...] = ()


def sides_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--device, --backend, --compare and --also of a verb that runs programs again, which gets them as `sides`."""

    @program_device_option
    @_found_backend_option
    @compare_option
    @also_option
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        device: str | None,
        backend: str | None,
        compare: tuple[str, str] | None,
        also: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        return command(*args, sides=Sides(device, backend, compare, also), **kwargs)

    return wrapper
