"""`scripts/opinfo-coverage`: which entries of torch's own database of ops the tables reach.

The database (`torch.testing._internal.common_methods_invocations.op_db`) is private and changes with every release. It
is read here and in `harvest` and nowhere else; programs are drawn without it.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.generate import generate
from fuzzer.generation.nodes import draw_node, run_node
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.errors import NoMachine
from fuzzer.language.ops import OPS
from fuzzer.language.ops.excluded import EXCLUDED
from fuzzer.language.ops.spec import Limits, OpSpec
from fuzzer.language.program import FLOATS
from fuzzer.language.text import identify, parse
from fuzzer.trial.observe import observe
from fuzzer.trial.tasks import explore
from fuzzer.workers.capacity import default_workers
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

HARVEST = Path(__file__).parents[2] / "corpus" / "opinfo.json"
_SINGLE = Limits(max_nodes=1, max_numel=512)


class NoDatabase(RuntimeError):
    """torch's database of ops cannot be imported; the message says why and what to do."""


def database() -> dict[str, list[Any]]:
    """The database by entry ("norm.fro": name and variant; some stand there twice). Raises NoDatabase."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise NoDatabase(
            f"torch's database of ops cannot be imported: {error}; it is part of torch, needs `pip install expecttest`"
        ) from None
    found: dict[str, list[Any]] = {}
    for info in op_db:
        variant = f".{info.variant_test_name}" if info.variant_test_name else ""
        found.setdefault(info.name + variant, []).append(info)
    return found


def wanted(entries: dict[str, list[Any]]) -> list[str]:
    """Those that support autograd on CPU float32, in order."""
    import torch

    return sorted(
        name
        for name, infos in entries.items()
        if any(info.supports_autograd and torch.float32 in info.dtypes for info in infos)
    )


@dataclass(frozen=True)
class Coverage:
    """Each entry is in one of these: reached (by which ops), excluded (why), missing."""

    reached: dict[str, list[str]]
    excluded: dict[str, str]
    missing: list[str]


def coverage(entries: list[str]) -> Coverage:
    reached: dict[str, list[str]] = {}
    for spec in OPS.values():
        for entry in spec.entries:
            reached.setdefault(entry, []).append(spec.name)
    return Coverage(
        {e: reached[e] for e in entries if e in reached},
        {e: EXCLUDED[e] for e in entries if e in EXCLUDED and e not in reached},
        [e for e in entries if e not in reached and e not in EXCLUDED],
    )


# ---------------------------------------------------------------- attributes


def _undrawn(reached: dict[str, list[str]]) -> dict[str, list[str]]:
    """By entry: arguments that the database's samples give by name, of which no covering op has a parameter."""
    harvest = json.loads(HARVEST.read_text())
    found: dict[str, list[str]] = {}
    for entry, names in reached.items():
        drawn = {parameter.name for name in names for parameter in OPS[name].params}
        given = harvest.get(entry, {}).get("arguments", {})
        if left := sorted(name for name in given if not name.isdigit() and name not in drawn):
            found[entry] = left
    return found


# ---------------------------------------------------------------- rejections


def _refusal(spec: OpSpec, number: int) -> str:
    """Why torch or the generator refused the number-th program of this op alone; "" where it ran in eager."""
    rng = random.Random(f"{spec.name} {number}")
    try:
        if not spec.differentiable:
            draft = Draft(rng, _SINGLE, FLOATS[number % len(FLOATS)])
            run_node(draft, draw_node(draft, spec), spec)
            return ""
        # an op that writes in place needs what carries a gradient and is no leaf
        beside, limits = ({"clone": OPS["clone"]}, replace(_SINGLE, max_nodes=3)) if spec.effects else ({}, _SINGLE)
        program = generate(rng, {spec.name: spec, **beside}, limits)
    except Rejected as error:
        return str(error)
    raised = observe(program, Subject("eager"), lambda name: None).raised
    return f"{raised.kind}: {raised.message.splitlines()[:1]}" if raised else ""


def rejections(draws: int, names: list[str]) -> dict[str, list[str]]:
    """The reasons of the refused draws, by op."""
    return {name: [r for r in (_refusal(OPS[name], n) for n in range(draws)) if r] for name in names}


# ---------------------------------------------------------------- reached by a compiled program

_TRIES = 24
# Without a gradient of its own an op shows where another one multiplies by its result; squares hide a sign that is
# nobody's promise (eigenvectors').
_COMPANIONS = ("mul", "square", "sum")
_ALONE = 4  # so many tries without companions


def _task_for(spec: OpSpec, number: int, place: Place, seed: int) -> Task:
    if spec.differentiable and not spec.effects and number < _ALONE:
        return Task(place, seed, _SINGLE, ops=(spec.name,))
    return Task(place, seed, Limits(max_nodes=5, max_numel=512), ops=(spec.name, *_COMPANIONS))


def shows(report: Report, name: str) -> bool:
    """Whether the compiled program ran, holds the op and has a gradient in which a fault would show."""
    if report.rejected or report.verdict in ("raises", "crashes", "hangs") or not report.detectable:
        return False
    return any(node.op == name for node in parse(report.text).nodes)


def compiled(names: list[str], place: Place, workers: int, seed: int = 0) -> Iterator[tuple[str, int, Report]]:
    """(op, number of the try, report) of every try, until the op shows or TRIES are used up."""
    left = list(names)
    with Pool(workers, [place.reference.device, place.subject.device]) as pool:
        for number in range(_TRIES):
            tasks = {name: _task_for(OPS[name], number, place, seed) for name in left}
            futures = {name: pool.submit(explore, task, number) for name, task in tasks.items()}
            for name, future in futures.items():
                report = pool.result(future, tasks[name])
                if shows(report, name):
                    left.remove(name)
                yield name, number, report


# ---------------------------------------------------------------- the command


def _print_coverage(found: Coverage) -> None:
    for entry, names in found.reached.items():
        click.echo(f"reached   {entry:44} {', '.join(names)}")
    for entry, reason in found.excluded.items():
        click.echo(f"excluded  {entry:44} {reason}")
    for entry in found.missing:
        click.echo(f"missing   {entry}")
    click.echo(f"{len(found.reached)} reached, {len(found.excluded)} excluded, {len(found.missing)} missing")


def _show_compiled(found: Coverage, place: Place, workers: int, seed: int, only: tuple[str, ...]) -> dict[str, Any]:
    """Print every try; what each op and each entry was shown by."""
    names = list(only) or sorted({name for names in found.reached.values() for name in names})
    shown: dict[str, dict[str, str]] = {}
    tries: dict[str, list[str]] = {}
    for name, number, report in compiled(names, place, workers, seed):
        if shows(report, name):
            program = parse(report.text)
            shown[name] = {"program": identify(program), "verdict": report.verdict, "text": report.text}
        tries.setdefault(name, []).append(report.rejected or report.verdict)
        click.echo(f"{name:40} try {number:2}  {tries[name][-1]}{'  shown' if name in shown else ''}", err=True)
    entries = {
        entry: next(({"op": name, **shown[name]} for name in names if name in shown), None)
        for entry, names in found.reached.items()
        if not only or set(names) & set(only)
    }
    return {"entries": entries, "not shown": {name: tries[name] for name in names if name not in shown}}


def _show_rejections(draws: int, names: list[str]) -> dict[str, Any]:
    found = rejections(draws, names)
    for name, reasons in found.items():
        click.echo(f"{name:40} {len(reasons) / draws:5.0%}  {Counter(reasons).most_common(1)[0][0] if reasons else ''}")
    overall = sum(map(len, found.values())) / (draws * len(found))
    worst = max(found, key=lambda name: len(found[name]))
    click.echo(f"{overall:.2%} of {draws * len(found)} rejected; most of {worst}, {len(found[worst]) / draws:.0%}")
    rates = {name: len(reasons) / draws for name, reasons in found.items()}
    return {"overall": overall, "worst": rates[worst], "rates": rates}


@click.command()
@click.option("--compile", "run", is_flag=True, help="Reach each entry by a compiled program; slow.")
@click.option("--rejections", "rejecting", is_flag=True, help="Draw each op alone, run it in eager: what is refused?")
@click.option("--attributes", is_flag=True, help="Arguments of the harvested samples that no op draws.")
@click.option("--op", "only", multiple=True, help="Only these ops.")
@click.option(
    "--draws", default=20, show_default=True, type=click.IntRange(1), help="Programs an op, for --rejections."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--backend", default="inductor", show_default=True)
@click.option("--workers", type=click.IntRange(1), default=default_workers, help="Processes, for --compile.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, last.")
def main(
    run: bool,
    rejecting: bool,
    attributes: bool,
    only: tuple[str, ...],
    draws: int,
    seed: int,
    device: str,
    backend: str,
    workers: int,
    as_json: bool,
) -> None:
    """Reached, excluded and missing of torch's own database of differentiable ops (CPU, float32)."""
    if unknown := set(only) - set(OPS):
        raise click.UsageError(f"no op {', '.join(sorted(unknown))}; `backfuzz ops` lists the known ones")
    told: dict[str, Any]
    if rejecting:
        told = _show_rejections(draws, list(only or OPS))
    else:
        found = coverage(wanted(database()))
        told = {"reached": found.reached, "excluded": found.excluded, "missing": found.missing}
        if attributes:
            told["undrawn"] = _undrawn(found.reached)
            for entry, names in told["undrawn"].items():
                click.echo(f"{entry:44} {', '.join(names)}")
        elif run:
            place = Place(Subject("eager", device), Subject(backend, device))
            told["compiled"] = _show_compiled(found, place, workers, seed, only)
            entries = told["compiled"]["entries"]
            for entry, by in entries.items():
                click.echo(f"{entry:44} {by['op'] + ' ' + by['program'] + ' ' + by['verdict'] if by else 'not shown'}")
            click.echo(f"{sum(map(bool, entries.values()))} of {len(entries)} entries reached by a compiled program")
        else:
            _print_coverage(found)
    if as_json:
        click.echo(json.dumps(told))


if __name__ == "__main__":
    try:
        main(prog_name="scripts/opinfo-coverage")
    except (NoDatabase, NoMachine) as problem:
        sys.exit(f"backfuzz: {problem}")
