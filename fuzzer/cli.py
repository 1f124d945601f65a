"""The command line: thin commands over the library. Exit codes stand in each command's help."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fuzzer.execution.messages import UNCOMPILED, Place, Report, UsageError, parse_subject
from fuzzer.schedule import ARMS, SHIPPED
from fuzzer.text import ParseError, parse
from fuzzer.verdict import ASKED, FINDINGS, Finding

ROOT = Path(__file__).resolve().parent.parent
DIFFERS, COULD_NOT_RUN, NO_MACHINE, INTERRUPTED = 1, 2, 3, 130
DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class Refusal(click.ClickException):
    """One line for people and an exit code."""

    def __init__(self, message: str, code: int = COULD_NOT_RUN):
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"backfuzz: {self.message}", err=True)


def explained(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what people can cause into one line and an exit code."""
    import functools

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        from fuzzer.execution.pool import NoMachine
        from fuzzer.export import ExportError
        from fuzzer.infer import IllTyped
        from fuzzer.interpret import UnknownOp
        from fuzzer.regions import UnknownRegion
        from fuzzer.routes import UnknownRoute
        from fuzzer.settings import UnknownSetting
        from fuzzer.store import StoreError
        from fuzzer.values import UnknownRecipe

        try:
            return command(*args, **kwargs)
        except NoMachine as error:
            raise Refusal(str(error), NO_MACHINE) from None
        except (
            UsageError, ParseError, StoreError, ExportError, IllTyped, UnknownOp, UnknownRegion, UnknownRoute,
            UnknownSetting, UnknownRecipe,
        ) as error:  # fmt: skip
            raise Refusal(str(error)) from None
        except OSError as error:  # a folder or file that cannot be written
            raise Refusal(f"{error.filename or 'the machine'}: {error.strerror or error}") from None
        except KeyboardInterrupt:
            raise Refusal("interrupted", INTERRUPTED) from None

    return wrapper


db_option = click.option(
    "--db", type=click.Path(path_type=Path), default=Path("findings.db"), show_default=True, help="The ledger."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
device_option = click.option("--device", default=None, help="cpu, cuda or cuda:N. Default: cuda if there is a GPU.")
where_option = click.option(
    "--device", default=None, help="Of both sides. Default: the finding's own; for a file, cuda if there is a GPU."
)
backend_option = click.option(
    "--backend",
    default="inductor",
    show_default=True,
    help="On trial: a torch.compile backend, or flag_gems: eager with FlagGems' operators.",
)
compare_option = click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    default=None,
    help="Compare any two sides, each `backend` or `backend@device`; the first is the reference. "
    "The second may be `backend@cpu/8`: with 8 threads.",
)
also_option = click.option(
    "--also", multiple=True, type=click.Choice(ASKED), help="An oracle that is silent unless asked for (repeatable)."
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=None,
    help="Processes. Default: one a core, two with a GPU, fewer where RAM or GPU memory has less than a GiB for each.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="backfuzz", prog_name="backfuzz")
def main() -> None:
    """Fuzz the backward pass of compiled PyTorch."""


def pick_device(device: str | None) -> str:
    """The device asked for; else cuda where NVML shows a GPU, else cpu. CUDA itself is not touched."""
    if device is not None:
        if not DEVICE.fullmatch(device):
            raise UsageError(f"--device takes cpu, cuda or cuda:N, not {device!r}")
        return device
    import torch

    from fuzzer.execution.pool import clean_environment, environment

    with environment(clean_environment()):
        return "cuda" if torch.cuda.device_count() else "cpu"


def make_place(device: str, backend: str, compare: tuple[str, str] | None) -> Place:
    """The two sides of a trial. Raises UsageError for an unknown backend, NoMachine where flag_gems cannot run."""
    from fuzzer.execution.pool import check_flag_gems

    if compare:
        place = Place(parse_subject(compare[0], device), parse_subject(compare[1], device))
    else:
        place = Place(parse_subject("eager", device), parse_subject(backend, device))
    import torch

    known = {*UNCOMPILED, *torch.compiler.list_backends(exclude_tags=())}
    for side in (place.reference, place.subject):
        if not DEVICE.fullmatch(side.device):
            raise UsageError(f"a device is cpu, cuda or cuda:N, not {side.device!r}")
        if side.backend not in known:
            raise UsageError(f"no backend {side.backend!r}; this torch has {', '.join(sorted(known))}")
    if place.reference.backend != "eager":
        raise UsageError(f"the reference side records ATen operations, so it is eager, not {place.reference.backend!r}")
    if place.reference.threads > 1:
        raise UsageError(f"the reference side runs with one thread, not {place.reference}")
    if place.subject.backend == "flag_gems":
        check_flag_gems(place.subject.device)
    return place


def make_task(device: str | None, backend: str, compare: tuple[str, str] | None, **fields: Any) -> Any:
    from fuzzer.execution.worker import Task

    return Task(place=make_place(pick_device(device), backend, compare), **fields)


# ---------------------------------------------------------------- fuzz


@main.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=None, help="Stop drawing after this time.")
@click.option("--programs", type=click.IntRange(1), default=None, help="Stop after drawing this many programs.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Same seed, same programs, any number of workers; with --guidance what comes back decides too.",
)
@device_option
@workers_option
@backend_option
@compare_option
@click.option(
    "--routes", default=None, help="Routes to draw from, with commas. Default: all that any backend can take."
)
@click.option(
    "--ops",
    "ops_",
    default=None,
    metavar="NAMES",
    help="Ops to draw from, with commas: names, or `core` (42 that most models are made of). Default: all.",
)
@click.option(
    "--guidance",
    type=click.Choice(list(ARMS)),
    default=None,
    help="By what programs are chosen: nothing; the rarest trace of several; what knobs brought of features of "
    f"compiles; of lines; mutants too. Each has what stands before it, but price: the rarest trace for the CPU seconds "
    f"that it is expected to take. The choices are logged. Default: {SHIPPED}.",
)
@click.option("--unguided", is_flag=True, help="Nothing is chosen, and neither features nor a corpus are kept.")
@click.option("--resume", is_flag=True, help="Go on with the last campaign, from its corpus in .backfuzz/corpus.")
@click.option(
    "--again", type=click.Path(path_type=Path), metavar="LOG", help="The programs of a campaign's choices.jsonl."
)
@click.option(
    "--lines/--no-lines",
    default=None,
    help="Record which lines of the compiler are reached, for `status --coverage`. Default: where Python can, of one "
    "program in 4 from 3.12 on (of all where lines guide), before (with coverage.py) of one in 16.",
)
@click.option("--complex", "complex_", is_flag=True, help="Draw complex numbers (c64, c128) beside real ones.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A compiler setting for every program.")
@also_option
@db_option
@json_option
@click.option("--fail-on-finding", is_flag=True, help="Exit 1 when there is a new finding.")
@explained
def fuzz(
    minutes: float | None,
    programs: int | None,
    seed: int,
    device: str | None,
    workers: int | None,
    backend: str,
    compare: tuple[str, str] | None,
    routes: str | None,
    ops_: str | None,
    guidance: str | None,
    unguided: bool,
    resume: bool,
    again: Path | None,
    lines: bool | None,
    complex_: bool,
    assignments: Sequence[str],
    also: tuple[str, ...],
    db: Path,
    as_json: bool,
    fail_on_finding: bool,
) -> None:
    """Draw programs, run them compiled and in eager, report what cannot be rounding.

    Without --minutes or --programs it runs until Ctrl-C, which stops it cleanly; a second Ctrl-C kills it.

    Exit codes: 0 it ran; 1 with --fail-on-finding and a new finding; 2 usage; 3 this machine cannot run it; 130
    interrupted.
    """
    from fuzzer import settings
    from fuzzer.campaign import Campaign, Plan
    from fuzzer.execution.capacity import default_workers
    from fuzzer.ops.spec import Limits
    from fuzzer.program import DIFFERENTIABLE, FLOATS
    from fuzzer.view import Lines, Live
    from fuzzer.vocabulary import named

    chosen = named_routes(routes)
    fixed = tuple(sorted(settings.parse_assignment(text) for text in assignments))
    limits = Limits(dtypes=DIFFERENTIABLE if complex_ else FLOATS)
    task = make_task(device, backend, compare, seed=seed, limits=limits, routes=chosen, fixed=fixed, also=also)
    task = task if ops_ is None else replace(task, ops=named(ops_))
    check_routes(task)
    command = "backfuzz " + shlex.join(sys.argv[1:])
    workers = workers or default_workers(task.place.devices)
    plan = Plan(task, workers, minutes, programs, db, corpus=regressions(db), command=command)
    plan = scheduled(plan, guidance, unguided, resume, again)
    plan = replace(plan, task=replace(plan.task, lines=share_of_lines(lines, plan)))
    view = Live(as_json) if sys.stdout.isatty() and not as_json else Lines(as_json)
    campaign = Campaign(plan, view.say)
    install_interrupt(campaign, view.say)
    with view:
        totals = campaign.run(view.update)
    view.end(totals)
    if as_json:
        click.echo(json.dumps(totals.summary()))
    if campaign.stopping:
        corpus = f"its corpus: {command if resume else command + ' --resume'}"
        onward = corpus if plan.guidance else f"another seed: {command} --seed {seed + 1}"
        click.echo(f"stopped; go on with {onward}", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(DIFFERS if fail_on_finding and totals.new.total() else 0)


def named_routes(text: str | None) -> tuple[str, ...]:
    """The routes of a list with commas; without one those that any backend can take. Raises UsageError."""
    from fuzzer.routes import ANY_BACKEND, ROUTES

    given = ",".join(ANY_BACKEND) if text is None else text
    chosen = tuple(part.strip() for part in given.split(",") if part.strip())
    if not chosen:
        raise UsageError(f"--routes names no route; known are {', '.join(ROUTES)}")
    for route in chosen:
        if route not in ROUTES:
            raise UsageError(f"no route {route!r}; known are {', '.join(ROUTES)}")
    return chosen


def check_routes(task: Any) -> None:
    """Raises UsageError where the backend on trial cannot take one of the task's routes."""
    from fuzzer.routes import check

    for route in task.routes:
        check(route, task.place.subject.backend)


def scheduled(plan: Any, guidance: str | None, unguided: bool, resume: bool, again: Path | None) -> Any:
    """The plan with where its programs come from: a log, a corpus, a guidance or the seed. Raises UsageError."""
    from fuzzer.campaign import resume as resumed
    from fuzzer.schedule import read_log

    if again and resume:
        raise UsageError("--again runs what was chosen before, --resume chooses: take one of them")
    if unguided and (guidance or resume):
        raise UsageError("--unguided chooses nothing and keeps no corpus: leave out --guidance and --resume")
    if resume and guidance:
        raise UsageError("--resume goes on with its corpus' own guidance: leave out --guidance")
    if again:
        task, logged = read_log(again, plan.task)
        most = min(plan.programs or len(logged), len(logged))
        return replace(plan, task=task, again=tuple(logged), programs=most)
    if resume:
        return resumed(plan)
    return plan if unguided else replace(plan, guidance=ARMS[guidance or SHIPPED])


def share_of_lines(asked: bool | None, plan: Any) -> float:
    """The share of a plan's programs whose lines are recorded. Raises UsageError where that is asked for in vain."""
    from fuzzer.execution.lines import share
    from fuzzer.features import LINES

    credited = bool(plan.guidance and set(LINES) & set(plan.guidance.credits))
    compiles = plan.task.place.subject.backend not in UNCOMPILED
    if asked and not (plan.guidance and compiles):
        raise UsageError("--lines goes with a campaign that compiles and keeps a corpus: that holds what was reached")
    if credited and asked is False:
        raise UsageError("--no-lines: what is guided by lines needs them")
    if (asked or credited) and not share():
        raise UsageError("before Python 3.12, lines are recorded with coverage.py: pip install coverage")
    return share(credited) if plan.guidance and compiles and asked is not False else 0.0


def regressions(db: Path) -> Path | None:
    """Where a finding's .prog goes too, when it enters the project's own ledger."""
    return ROOT / "corpus" / "regressions" if db.resolve() == (ROOT / "findings.db").resolve() else None


def install_interrupt(campaign: Any, say: Callable[[str], None]) -> None:
    """First Ctrl-C: stop cleanly and keep everything. Second: kill."""

    def stop(*_: Any) -> None:
        if campaign.stopping:
            os.killpg(os.getpgid(0), signal.SIGKILL) if os.getpgid(0) == os.getpid() else os._exit(INTERRUPTED)
        campaign.stopping = True
        say("stopping: what is running ends first, everything is kept (Ctrl-C again kills)")

    signal.signal(signal.SIGINT, stop)


# ---------------------------------------------------------------- one program


def load(reference: str, db: Path) -> tuple[str, str, Finding | None]:
    """(label, program text, finding) of a .prog file or a finding's id. Raises UsageError, ParseError, StoreError."""
    path = Path(reference)
    if path.suffix == ".prog" or path.is_file():
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{reference}: {getattr(error, 'strerror', None) or error}") from None
        try:
            parse(text)
        except ParseError as error:
            raise UsageError(f"{reference}: {error}") from None
        return reference, text, None
    from fuzzer.store import open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    return finding.id, finding.program, finding


def finding_task(
    finding: Finding | None, device: str | None, backend: str | None, compare: Any, also: tuple[str, ...] = ()
) -> Any:
    """The task for a replay: the finding's own place, unless the command line says otherwise."""
    if finding is not None and compare is None:
        own = finding.place
        against, subject = own.get("against", "eager"), own.get("backend", "inductor")
        where = device or own.get("device", "cpu")
        subject += f"@{where}/{own['threads']}" if "threads" in own else ""
        side = against if device is None else against.split("@")[0]
        own_oracle = (finding.signature.oracle,) if finding.signature.oracle in ASKED else ()
        return make_task(where, "inductor", (side, backend or subject), fresh=True, also=also + own_oracle)
    return make_task(device, backend or "inductor", compare, fresh=True, also=also)


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="FILE|ID...")
@where_option
@click.option(
    "--backend", default=None, help="The torch.compile backend on trial. Default: the finding's, or inductor."
)
@compare_option
@also_option
@workers_option
@db_option
@json_option
@explained
def replay(
    references: Sequence[str],
    device: str | None,
    backend: str | None,
    compare: tuple[str, str] | None,
    also: tuple[str, ...],
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Run programs again, compiler caches off: .prog files or ids of findings.

    Exit codes: 0 all agree; 1 some differ; 2 some could not run; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.diagnose import examine_all
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.pool import Pool

    loaded = [load(reference, db) for reference in references]
    tasks = [finding_task(finding, device, backend, compare, also) for _, _, finding in loaded]
    devices = sorted({side.device for t in tasks for side in (t.place.reference, t.place.subject)})
    with Pool(min(workers or default_workers(devices), len(loaded)), devices) as pool:
        asked = [(task, text) for task, (_, text, _) in zip(tasks, loaded, strict=True)]
        reports = examine_all(pool, asked)
    rows = [report_row(label, report) for (label, _, _), report in zip(loaded, reports, strict=True)]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        for row in rows:
            reason = f" ({row['rejected']})" if row["rejected"] else ""
            click.echo(f"{row['program']}: {row['class']}{reason}", err=bool(reason))
            for verdict in row["verdicts"]:
                click.echo(f"  {verdict['signature']}\n    {verdict['detail']}")
    classes = {report.verdict for report in reports}
    sys.exit(COULD_NOT_RUN if "rejected" in classes else DIFFERS if classes & set(FINDINGS) else 0)


def report_row(label: str, report: Report) -> dict[str, Any]:
    return {
        "program": label,
        "class": report.verdict,
        "rejected": report.rejected,
        "verdicts": [{"signature": str(v.signature), "detail": v.detail} for v in report.verdicts],
        "detectable": report.detectable,
        "elements": report.elements,
    }


@main.command()
@click.option(
    "--corpus", type=click.Path(path_type=Path), default=Path(".backfuzz/corpus"), show_default=True, help="Its folder."
)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="A new folder. Default: the corpus itself.")
@json_option
@explained
def cmin(corpus: Path, out: Path | None, as_json: bool) -> None:
    """Reduce a campaign's corpus to few programs that show every feature that it shows.

    Exit codes: 0 reduced; 2 there is no corpus, its index cannot be read, or --out exists.
    """
    from fuzzer.corpus import load, reduce

    found = load(corpus)
    chosen = reduce(found, out or corpus)
    told = {"programs": len(found.kept), "kept": len(chosen), "features": len(found.frontier.best)}
    line = f"{told['kept']} of {told['programs']} programs show all {told['features']} features: {out or corpus}"
    click.echo(json.dumps(told) if as_json else line)


@main.command(name="status")
@click.option(
    "--corpus", type=click.Path(path_type=Path), default=Path(".backfuzz/corpus"), show_default=True, help="Its folder."
)
@click.option("--coverage", is_flag=True, help="The compiler's files and functions too that no program reached.")
@json_option
@explained
def status_(corpus: Path, coverage: bool, as_json: bool) -> None:
    """Say what a campaign has seen: the last one, or the one whose corpus is named.

    Exit codes: 0 told; 2 there is no corpus, it cannot be read, or for --coverage no lines were recorded.
    """
    from fuzzer.audit import audit, summed, told
    from fuzzer.corpus import load

    found = load(corpus)
    state = found.state()
    seen = found.frontier
    families = {name: {"features": n, "last_new": seen.moved[name]} for name, n in sorted(seen.families.items())}
    audited = audit(found) if coverage else []
    row: dict[str, Any] = {"corpus": str(corpus), "place": found.place, "programs": seen.programs}
    row |= {"kept": len(found.kept), "lines_share": state.get("lines", 0.0), "families": families}
    if as_json:
        row |= {"coverage": summed(audited) | {"by_file": [file.row() for file in audited]}} if coverage else {}
        click.echo(json.dumps(row))
        return
    place = ", ".join(f"{name} {value}" for name, value in found.place.items())
    click.echo(f"{corpus}: {seen.programs} programs, {len(found.kept)} kept ({place})")
    for name, family in families.items():
        click.echo(f"  {name:9} {family['features']:6} features, the last new one with program {family['last_new']}")
    if coverage:
        click.echo(f"the compiler's lines were recorded of {row['lines_share']:.0%} of the programs")
        click.echo("\n".join(told(audited)))


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="FILE|ID...")
@device_option
@workers_option
@db_option
@json_option
@explained
def features(references: Sequence[str], device: str | None, workers: int | None, db: Path, as_json: bool) -> None:
    """Print what programs exercise, in words, by family: what campaigns count.

    Exit codes: 0 printed; 2 a program could not run; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.guide import features_of
    from fuzzer.execution.pool import Pool

    loaded = [load(reference, db) for reference in references]
    task = make_task(device, "inductor", None, fresh=True)
    where = task.place.subject.device
    with Pool(min(workers or default_workers([where]), len(loaded)), [where]) as pool:
        futures = [pool.submit(features_of, task, text) for _, text, _ in loaded]
        reports = [pool.result(future, task) for future in futures]
    rows = []
    for (label, _, _), report in zip(loaded, reports, strict=True):
        words = {family: text.splitlines() for family, text in report.files.items()}
        rows.append({"program": label, "rejected": report.rejected, "features": words})
        if not as_json:
            feature_lines(label, report.rejected, words)
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(COULD_NOT_RUN if any(row["rejected"] for row in rows) else 0)


def feature_lines(label: str, rejected: str, words: dict[str, list[str]]) -> None:
    """Print a program's features for people."""
    told = ", ".join(f"{len(found)} {family}" for family, found in words.items())
    click.echo(f"{label}: {rejected or told}", err=bool(rejected))
    for family, found in words.items():
        click.echo("".join(f"  {family:9} {word}\n" for word in found), nl=False)


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="FILE|ID...")
@where_option
@click.option(
    "--backend", default=None, help="The torch.compile backend on trial. Default: the finding's, or inductor."
)
@compare_option
@also_option
@workers_option
@db_option
@json_option
@explained
def minimize(
    references: Sequence[str],
    device: str | None,
    backend: str | None,
    compare: tuple[str, str] | None,
    also: tuple[str, ...],
    workers: int | None,
    db: Path,
    as_json: bool,
) -> None:
    """Shrink programs that differ; verify and store what comes out. Prints the minimal program.

    Exit codes: 0 minimized; 2 a program agrees, could not run or did not reproduce; 3 this machine cannot run it; 130
    interrupted.
    """
    rows = [minimize_one(reference, device, backend, compare, also, workers, db, as_json) for reference in references]
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if all(row["finding"] for row in rows) else COULD_NOT_RUN)


def minimize_one(
    reference: str,
    device: str | None,
    backend: str | None,
    compare: Any,
    also: tuple[str, ...],
    workers: int | None,
    db: Path,
    quiet: bool,
) -> dict[str, Any]:
    from fuzzer.answers import Answers
    from fuzzer.campaign import Plan, Suspect, describe, facts, triage
    from fuzzer.diagnose import examine_all
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.pool import Pool

    label, text, finding = load(reference, db)
    text = finding.original if finding is not None else text
    task = finding_task(finding, device, backend, compare, also)
    plan = Plan(
        task,
        workers or default_workers(task.place.devices),
        db=db,
        corpus=regressions(db),
        command=f"backfuzz minimize {reference}",
    )
    plan.folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with Pool(plan.workers, plan.devices, scratch=plan.folder) as pool:
        report = examine_all(pool, [(task, text)])[0]
        row: dict[str, Any] = {"program": label, "class": report.verdict, "note": report.rejected}
        row |= {"finding": None, "minimal": None, "queries": 0}
        if report.verdicts and report.verdict in FINDINGS:
            suspect = Suspect(text, report.verdicts[0].signature)
            outcome = triage(suspect, plan, Answers(pool, task), facts(task))
            found, reduction = outcome.finding, outcome.reduction
            row["finding"], row["minimal"] = (found.id, found.program) if found else (None, None)
            row["note"] = outcome.note
            row["queries"] = reduction.queries if reduction else 0
            if found is not None and not quiet:
                click.echo(describe(found))
    row["seconds"] = round(time.monotonic() - started, 1)
    if row["finding"] is None and not quiet:
        click.echo(f"{label}: {row['class']}; nothing to store ({row['note'] or 'it agrees'})")
    return row


@main.command(name="import")
@click.argument("reference", metavar="FILE.py[:FUNCTION]")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The file to write. Default: FUNCTION.prog.")
@explained
def import_(reference: str, out: Path | None) -> None:
    """Write a Python function as a program: it is called once, and every torch call that it makes becomes a node.

    FILE.py is run; the tuple `inputs` in it holds the tensors that FUNCTION is called with. FUNCTION may be left out
    where the file defines one function, and may be a torch.nn.Module. Inputs and parameters become leaves, with their
    types and layouts; with their values too where they have at most 64 elements.

    Exit codes: 0 written; 2 something in the function cannot be expressed (all of it is named), or usage.
    """
    from fuzzer.text import show
    from fuzzer.transcribe import Inexpressible, transcribe

    path, _, wanted = reference.partition(":")
    name, function, inputs = user_function(path, wanted)
    try:
        program, drawn = transcribe(function, inputs)
    except Inexpressible as error:
        for call in error.calls:
            click.echo(f"cannot be expressed: {call}", err=True)
        raise UsageError(
            f"{reference}: {len(error.calls)} call(s) that no op says; `backfuzz ops` lists the ops"
        ) from None
    told = (f"{', '.join(drawn)} hold drawn values, not those of the function's inputs.",) if drawn else ()
    target = out or Path(f"{name}.prog")
    if out is None and target.exists():
        raise UsageError(f"{target} exists; --out names another file, or this one to replace it")
    target.write_text(show(replace(program, comment=(f"The function {name} of {Path(path).name}.", *told))))
    click.echo(str(target))


def user_function(path: str, wanted: str) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
    """(name, function, inputs) of a Python file. Raises UsageError."""
    import runpy

    import torch

    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file; `backfuzz import` takes FILE.py or FILE.py:FUNCTION")
    try:
        space = runpy.run_path(path, run_name="backfuzz_import")
    except Exception as error:  # the user's own code
        raise UsageError(f"{path} raised {type(error).__name__}: {error}") from None
    inputs = space.get("inputs")
    if not (isinstance(inputs, tuple | list) and inputs and all(isinstance(t, torch.Tensor) for t in inputs)):
        raise UsageError(f"{path}: it has no tuple of tensors called `inputs` to call the function with")
    own = [key for key, v in space.items() if callable(v) and getattr(v, "__module__", "") == "backfuzz_import"]
    if not wanted and len(own) != 1:
        raise UsageError(f"{path} defines {', '.join(own) or 'no function'}: name one, {path}:FUNCTION")
    function = space.get(wanted or own[0])
    if not callable(function):
        raise UsageError(f"{path}: no function {wanted!r}; it defines {', '.join(own) or 'none'}")
    return wanted or own[0], function, tuple(inputs)


@main.command()
@click.argument("references", nargs=-1, required=True, metavar="ID...")
@where_option
@workers_option
@db_option
@json_option
@explained
def diagnose(references: Sequence[str], device: str | None, workers: int | None, db: Path, as_json: bool) -> None:
    """Find out again what is at fault in findings of the ledger, where they were found or on --device, and store it.

    Takes about a minute a finding. Exit codes: 0 diagnosed; 2 a finding does not show here, or there is no such
    finding or ledger; 3 this machine cannot run it; 130 interrupted.
    """
    from fuzzer.store import encode, open_store

    with open_store(db, create=False) as store:
        findings = [store.get(reference) for reference in references]
    rows = []
    for finding in findings:
        found = diagnose_one(finding, device, workers)
        if found is None:
            click.echo(f"{finding.id}: it does not show here (found with torch {finding.place.get('torch')})", err=True)
            continue
        with open_store(db) as store:
            store.set_diagnosis(found)
        rows.append(encode(found))
        if not as_json:
            click.echo(f"{found.id}  {found.signature}\n" + "\n".join(diagnosis_lines(found)))
    if as_json:
        click.echo(json.dumps(rows))
    sys.exit(0 if len(rows) == len(findings) else COULD_NOT_RUN)


def diagnose_one(finding: Finding, device: str | None, workers: int | None) -> Finding | None:
    """The finding with a new diagnosis; None where it does not show."""
    from fuzzer.diagnose import RUNS, diagnose, examine_all, matching
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.pool import Pool

    task = finding_task(finding, device, None, None)
    devices = task.place.devices
    folder = Path(".backfuzz")
    folder.mkdir(parents=True, exist_ok=True)
    with Pool(workers or default_workers(devices), devices, scratch=folder) as pool:
        shown = [matching(r, finding.signature) for r in examine_all(pool, [(task, finding.program)] * RUNS)]
        return diagnose(finding, task, pool, folder) if any(shown) else None


def diagnosis_lines(finding: Finding) -> list[str]:
    """What is at fault, for the terminal."""
    if not finding.diagnosis:
        return ["not diagnosed yet: backfuzz diagnose " + finding.id]
    lines = [f"  {name}: {text}" for name, text in finding.diagnosis.items()]
    return [*lines, f"  attachments (in `backfuzz export`): {', '.join(finding.attachments) or 'none'}"]


# ---------------------------------------------------------------- the ledger


@main.command(name="list")
@click.option("--class", "verdict", type=click.Choice(FINDINGS), default=None, help="Only this class.")
@db_option
@json_option
@explained
def list_findings(verdict: str | None, db: Path, as_json: bool) -> None:
    """List the findings of the ledger.

    Exit codes: 0 listed, be it none; 2 the ledger is missing or cannot be read.
    """
    from fuzzer.store import encode, open_store

    with open_store(db, create=False) as store:
        findings = store.list(verdict=verdict)
    if as_json:
        click.echo(json.dumps([encode(f) for f in findings]))
        return
    for f in findings:
        nodes = len(parse(f.program).nodes)
        where = f"torch {f.place.get('torch', '?')} {f.place.get('device', '?')}"
        click.echo(f"{f.id}  {f.signature.verdict:18} {f.triage:9} {where:24} {nodes} node(s)  {f.signature}")
    click.echo(f"{len(findings)} finding(s)")


@main.command()
@click.argument("reference", metavar="ID")
@db_option
@json_option
@explained
def show(reference: str, db: Path, as_json: bool) -> None:
    """Show one finding: its minimal program, evidence, diagnosis, stages, ablation and environment.

    Exit codes: 0 shown; 2 no such finding, or the ledger is missing or cannot be read.
    """
    from fuzzer.store import encode, open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    if as_json:
        click.echo(json.dumps(encode(finding)))
        return
    click.echo(f"{finding.id}  {finding.signature}  ({finding.triage})\n{finding.detail}")
    if finding.before:
        click.echo(f"the original program: {finding.before}")
    click.echo()
    click.echo(finding.program)
    click.echo(f"reproduced {finding.reproduced} of {finding.runs} in fresh processes")
    click.echo("diagnosis:\n" + "\n".join(diagnosis_lines(finding)))
    for title, table in (("stages", finding.stages), ("settings", finding.ablation), ("place", finding.place)):
        click.echo(f"{title}:" + "".join(f"\n  {key}: {value}" for key, value in table.items()))
    if finding.note:
        click.echo(f"note: {finding.note}")


@main.command()
@click.argument("reference", metavar="ID")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder to write. Default: export/ID.")
@db_option
@json_option
@explained
def export(reference: str, out: Path | None, db: Path, as_json: bool) -> None:
    """Write repro.py (standalone; exits 1 while the fault is there) and issue.md of a finding.

    Exit codes: 0 written; 2 no such finding, or the ledger cannot be read or the folder written.
    """
    from fuzzer.export import repro
    from fuzzer.issue import issue
    from fuzzer.store import open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    texts = {"repro.py": repro(finding), "issue.md": issue(finding)}
    folder = out or Path("export") / finding.id
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in texts]
    click.echo(json.dumps({"id": finding.id, "files": paths}) if as_json else "\n".join(paths))


# ---------------------------------------------------------------- the machine


@main.command()
@device_option
@workers_option
@json_option
@explained
def doctor(device: str | None, workers: int | None, as_json: bool) -> None:
    """Say what this machine has, and run every canary: each oracle must ring for it and be silent for its twin.

    Then one program is compiled of which every family of features must see something.

    Exit codes: 0 all is well; 1 a canary was missed, a twin rang or a family saw nothing; 2 usage; 3 this machine
    cannot run backfuzz; 130 interrupted.
    """
    from fuzzer.campaign import facts
    from fuzzer.canaries import run_canaries
    from fuzzer.doctor import silent_families
    from fuzzer.execution.capacity import default_workers
    from fuzzer.execution.lines import share
    from fuzzer.execution.pool import Pool
    from fuzzer.settings import SETTINGS, exists

    task = make_task(device, "inductor", None)
    place = task.place.subject.device
    about = {key: value for key, value in facts(task).items() if key not in ("backend", "against")}
    missing = [s.name for s in SETTINGS if not exists(s.name)]
    with Pool(workers or default_workers([place]), [place]) as pool:
        found = run_canaries(pool, place)
        silent, shown = silent_families(pool, replace(task, fresh=True, lines=share()))
    rows = [
        {"canary": c.name, "oracle": c.oracle, "flagged": c.flagged, "silent": c.silent, "detail": c.detail}
        for c in found
    ]
    if as_json:
        click.echo(
            json.dumps({"place": about, "missing_settings": missing, "silent_families": silent, "canaries": rows})
        )
    else:
        for key, value in about.items():
            click.echo(f"{key:10} {value}")
        click.echo(f"settings that this torch does not have: {', '.join(missing) or 'none'}")
        for c in found:
            click.echo(f"{'ok    ' if c.passed else 'MISSED'} {c.name} ({c.oracle}) {c.detail}".rstrip())
        told = f"{', '.join(silent)} {shown.rejected}".rstrip() if silent else "none"
        click.echo(f"families of features that show nothing of a compile: {told}")
    sys.exit(0 if all(c.passed for c in found) and not silent else DIFFERS)


@main.command()
@click.option("--complex", "complex_", is_flag=True, help="Only those that take complex numbers in the running torch.")
@json_option
@explained
def ops(complex_: bool, as_json: bool) -> None:
    """List the operations that programs are made of.

    Exit codes: 0 always.
    """
    from fuzzer.ops import OPS
    from fuzzer.ops.spec import SAME
    from fuzzer.vocabulary import SETS, widened

    rows: list[dict[str, Any]] = []
    for spec in filter(lambda s: s.takes_complex, map(widened, OPS)) if complex_ else OPS.values():
        first = spec.operands[0].dtypes
        rows.append(
            {
                "name": spec.name,
                "family": spec.family,
                "sets": [name for name, members in SETS.items() if spec.name in members],
                "source": spec.source,
                "dtypes": [] if first == SAME else list(first),
                "attributes": [a.name for a in spec.attributes],
                "differentiable": spec.differentiable,
                "entries": list(spec.entries),
            }
        )
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        sets = " ".join(row["sets"])
        click.echo(f"{row['family']:14} {row['name']:24} {sets:5} {row['source']}({', '.join(row['attributes'])})")
    click.echo(f"{len(rows)} op(s), {sum(bool(r['differentiable']) for r in rows)} differentiable")


if __name__ == "__main__":
    main()
