"""How long a large ledger takes: `list`, `faults`, a search and `report` as the commands answer, and merging two."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.judgement.verdict import SUMS, Finding, Natural, Signature
from fuzzer.ledger import faults, file
from fuzzer.ledger.diagnosed import DIAGNOSER, VERSION
from fuzzer.ledger.rows import encode, to_row
from fuzzer.ledger.scope import FAILS, PROGRAM, Row, Scope, encode_scope
from fuzzer.ledger.store import Store, open_store

_PROGRAM = """program(1)
route("autograd")
x0 = leaf(f32[4], seed={seed})
v0 = {op}(x0)
backward(v0, cotangent(f32[4]))
"""
_OPS = ("relu", "exp", "sin", "tanh", "neg", "abs", "sqrt", "log")
_A_VARIANT, _A_FAULT = 50, 4  # occurrences of a variant, variants of a fault: in the project's own ledger 56 and 3
_SCOPED, _NEIGHBOURS = 16, 40  # variants for one with a scope, and the rows of it: there 46 for one, and 18 to 42


def variant(number: int, of: int) -> Finding:
    """A made-up finding; `of` tells one ledger's from another's. Every fourth begins a fault of its own."""
    op, lowering = _OPS[number % len(_OPS)], hashlib.sha256(str(number // _A_FAULT).encode()).hexdigest()
    decided = f"aten.{lowering[:12].translate(str.maketrans('0123456789', 'ghijklmnop'))}.default left to ATen"
    program = _PROGRAM.format(seed=2 * number + of, op=op)
    return Finding(
        Signature("gradients_agree", "wrong", "backward", "scattered"),
        "x0.grad[2]: compiled 0, eager 1",
        program,
        program,
        place={"backend": "inductor", "against": "eager", "device": "cpu", "torch": "2.13.0"},
        reproduced=3,
        runs=3,
        ablation={decided: "agree"},
        diagnosis={"side": "compiled wrong: at x0[2]", "culprit": f"code for {decided}", VERSION: str(DIAGNOSER)},
        natural=Natural(program, Signature("gradients_agree", "wrong", "backward", "scattered"), "x0.grad[2]"),
        attachments={"backward_graph.py": "    mul = torch.ops.aten.mul.Tensor(a, b)\n" * 50},
        created=f"2026-01-01T00:00:00+00:00-{number:06}",
    )


def scope(found: Finding, number: int) -> Scope:
    """A made-up scope: sizes alone, whose ratios have a formula."""

    def row(i: int) -> Row:
        n, k = 5 + (number + 7 * i) % 60, 1 + (number + i) % 4
        sizes = {"x0.shape[0]": 1 + i % 3, "x0.shape[1]": n, "x1.shape[1]": k, "start": i % 2, "end": i % 2 + k}
        return Row("size" if i else PROGRAM, f"x0.shape[1]={n}", FAILS, found.program, "", 1.0, 1.0, 0.0,
                   {SUMS: n / (n - k)}, sizes)  # fmt: skip

    return Scope(found.id, "2.13.0", "cpu", "ir", found.created, tuple(map(row, range(_NEIGHBOURS))))


def fill(store: Store, occurrences: int, of: int) -> None:
    """Make a ledger of so many occurrences, in one transaction."""
    known: list[tuple[str, str]] = []
    with store._writing() as db:
        for number in range(occurrences // _A_VARIANT):
            finding = variant(number, of)
            file.put(db, "variant", to_row(encode(finding)))
            known.append((faults.enter(db, finding), finding.id))
            if number % _SCOPED == 0:
                told = json.dumps(encode_scope(scope(finding, number)))
                db.conn.execute("insert into scope values (?, ?, ?, ?, ?)",
                                [finding.id, "2.13.0", "cpu", finding.created, told])  # fmt: skip
        rows = (
            (f"{of}-{i}", *known[i % len(known)], _PROGRAM.format(seed=i, op="relu"), "c", "2.13.0", "cpu", "2026", 1)
            for i in range(occurrences - len(known))
        )
        db.conn.executemany("insert into occurrence values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def seconds(*arguments: object) -> float:
    """What a command takes, in this process."""
    started = time.monotonic()
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return round(time.monotonic() - started, 2)


def measure_ledger(occurrences: int, folder: Path) -> dict[str, Any]:
    """Seconds of each, with two ledgers of so many occurrences in a folder; whether merging again changed anything."""
    paths = [folder / f"{of}.db" for of in range(2)]
    for of, path in enumerate(paths):
        with open_store(path) as store:
            fill(store, occurrences, of)
    figures: dict[str, Any] = {"occurrences": occurrences}
    figures["findings"] = seconds("faults", "--findings", "--db", paths[0])
    figures["faults"] = seconds("faults", "--db", paths[0])
    figures["search"] = seconds("faults", "relu", "mul", "--findings", "--db", paths[0])
    figures["report"] = seconds("report", "--db", paths[0], "--out", folder / "report.html")
    figures["merge"] = seconds("merge", paths[1], "--db", paths[0])
    before = hashlib.sha256(paths[0].read_bytes()).digest()
    figures["merge_again"] = seconds("merge", paths[1], "--db", paths[0])
    figures["again_changes"] = hashlib.sha256(paths[0].read_bytes()).digest() != before
    with open_store(paths[0]) as store:
        figures["merged_occurrences"] = sum(fault.occurrences for fault in store.faults())
    return figures


@click.command("ledger")
@click.option("--occurrences", default=100_000, show_default=True, type=click.IntRange(_A_VARIANT), help="Of each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ledger_command(occurrences: int, as_json: bool) -> None:
    """Seconds that a ledger of many occurrences takes."""
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_ledger(occurrences, Path(folder))
    for line in [json.dumps(figures)] if as_json else [f"{name}: {value}" for name, value in figures.items()]:
        click.echo(line)
