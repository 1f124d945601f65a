"""Does the judge stay silent? Programs are drawn and judged at a stage, and each that differs is then built.

A *suspect* is a program whose numbers differ, by `SILENT`. It *stands* where the built program shows its signature,
and is *explained* where a fault of the ledger passes the experiments of recognition. What stands unexplained is for a
person: a new fault, or a false alarm of the rounding model.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benches.options import common_options, print_figures, programs_option, task_on
from benches.stages import at_stage
from benches.stream import streamed
from fuzzer.campaign.plan import FORWARD
from fuzzer.campaign.suspects.recognition import fault_shown
from fuzzer.judgement.oracles import ASKED
from fuzzer.judgement.verdict import FINDINGS
from fuzzer.language.text import parse
from fuzzer.ledger.recognise import Known
from fuzzer.ledger.store import open_store
from fuzzer.trial.draw import STAGE
from fuzzer.trial.tasks import examine, explore
from fuzzer.trial.verify import matching
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from fuzzer.workers.worker import INTERNAL_ERROR

SILENT = ("wrong", "eager-suspect", "nonfinite-differs")  # classes that compare numbers: false alarms would show here
_SHOWN_AFTER = 200  # programs between two lines of progress


@dataclass(frozen=True)
class Suspect:
    """A program whose numbers differ at the stage.

    number, text      which program of the seed;  shown, signature, detail   its class, signature and numbers there.
    built             the class of the built program;  stands   whether that has the signature.
    fault             of the ledger that explains the program; "" where none does.
    """

    number: int
    shown: str
    signature: str
    detail: str
    text: str
    built: str
    stands: bool
    fault: str = ""


def decide(number: int, report: Report, known: list[Known], task: Task, stage: str, pool: Pool) -> Suspect:
    """Build the program that a report calls a suspect, and look for the fault that explains it: at the stage, where
    experiments are cheap, and if none does there, built."""
    program, verdict = parse(report.text), report.verdicts[0]
    task = replace(task, also=(*task.also, *{verdict.signature.oracle} & {*ASKED}))  # a share of programs is asked it
    again = pool.result(pool.submit(examine, replace(task, fresh=True), report.text), task)
    met = matching(again, verdict.signature)
    fault = fault_shown(program, verdict.signature, known, at_stage(task, stage), pool)[0] if met else None
    if met and fault is None:
        fault = fault_shown(program, met.signature, known, task, pool)[0]
    return Suspect(number, report.verdict, str(verdict.signature), (met or verdict).detail, report.text,
                   again.verdict, met is not None, fault or "")  # fmt: skip


def silence_figures(classes: Counter[str], suspects: list[Suspect]) -> dict[str, Any]:
    """How many programs have each class; of the suspects how many stand, by fault and without one, and which classes
    show at the stage alone; a row for each suspect, by number."""
    ordered = sorted(suspects, key=lambda each: each.number)
    standing = [each for each in ordered if each.stands]
    return {
        "programs": classes.total(),
        "classes": dict(classes.most_common()),
        "suspects": len(ordered),
        "stand": len(standing),
        "explained": dict(Counter(each.fault for each in standing if each.fault).most_common()),
        "open": sum(not each.fault for each in standing),
        "at_the_stage_alone": dict(Counter(f"{e.shown}, built: {e.built}" for e in ordered if not e.stands)),
        "rows": [asdict(each) for each in ordered],
    }


def measure_silence(task: Task, stage: str, numbers: range, known: list[Known], workers: int,
                    rows: Path | None = None) -> dict[str, Any]:  # fmt: skip
    """The figures of the programs of these numbers, which are judged at the stage, and of their suspects; seconds,
    programs judged a second, and the programs on which backfuzz itself failed. Progress goes to stderr. `rows` gets
    each suspect as soon as it is decided, as a line of JSON."""
    started = time.perf_counter()
    classes, waiting = Counter[str](), list[Future[Suspect]]()
    failures = list[dict[str, Any]]()
    lock = threading.Lock()

    def decided(number: int, report: Report) -> Suspect:
        suspect = decide(number, report, known, task, stage, pool)
        if rows is not None:
            with lock, rows.open("a") as file:
                file.write(json.dumps(asdict(suspect)) + "\n")
        return suspect

    with Pool(workers, [task.place.subject.device]) as pool, ThreadPoolExecutor(workers) as deciding:
        for _, number, report in streamed(pool, explore, at_stage(task, stage), numbers):
            classes[report.verdict] += 1
            if report.rejected.startswith(INTERNAL_ERROR):
                failures.append({"number": number, "said": report.stderr or report.rejected, "text": report.text})
            if report.verdict in SILENT:
                waiting.append(deciding.submit(decided, number, report))
            if not classes.total() % _SHOWN_AFTER:
                shown = {name: count for name, count in classes.items() if name in FINDINGS}
                print(f"{classes.total()} of {len(numbers)}: {shown}", file=sys.stderr, flush=True)
        judged = time.perf_counter() - started
        suspects = [future.result() for future in waiting]
    seconds = time.perf_counter() - started
    return silence_figures(classes, suspects) | {
        "programs_per_s": round(classes.total() / judged, 2),
        "seconds": round(seconds, 1),
        "own_failures": failures,
    }


@click.command("silence")
@programs_option(2000)
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The number of the first program.")
@click.option("--stage", default=STAGE, show_default=True, help="Where programs are judged first.")
@click.option("--ledger", type=click.Path(path_type=Path), default=Path("findings.db"), show_default=True,
              help="Whose faults explain suspects.")  # fmt: skip
@click.option("--rows", type=click.Path(path_type=Path), help="Append each decided suspect to this file.")
@common_options
def silence_command(programs: int, first: int, stage: str, ledger: Path, rows: Path | None, workers: int, seed: int,
                    device: str, backend: str, as_json: bool) -> None:  # fmt: skip
    """Does the judge stay silent on drawn programs, but for faults of the ledger?"""
    with open_store(ledger, create=False) as store:
        known = list(store.known_faults())
    task = replace(task_on(device, backend, seed), cells=True, forward=FORWARD)
    print_figures(measure_silence(task, stage, range(first, first + programs), known, workers, rows), as_json)
