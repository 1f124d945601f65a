"""Programs, ledgers and options that others wrote: each is refused in one line, soon, or read. Nothing of it runs.

Programs of the corpus with characters, tokens and lines changed, doubled, dropped and exchanged are parsed; what parses
is shown and parsed again. A ledger of a few findings with bytes flipped is opened and read as `list`, `show` and
`faults` do. Of a `backfuzz.toml` with a value for each option of a verb the text or some values are changed, and the
verb begins, up to the point where it would do something. Counted is what raises anything but the error for people, or
takes more than a second of CPU time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benches.options import json_option
from fuzzer.commands.shared.config import OWN
from fuzzer.commands.shared.group import Verbs, main
from fuzzer.language.text import ParseError, parse, show
from fuzzer.ledger.errors import StoreError
from fuzzer.ledger.store import open_store

_TOO_LONG = 1.0
_FINDINGS = 3  # of a ledger whose bytes are flipped: most of its pages are then read
_CORPUS = Path(__file__).resolve().parents[2] / "corpus"
_TOKENS = (
    "(", ")", "[", "]", "{", "}", ",", "=", ":", ".", "\n", "#", "'", '"', "\\", "-", "**", "*", "0x" + "f" * 40,
    "1e999", "9" * 30, "9" * 5000, "nan", "None", "True", "\x1b[2J", "\x00", "\ud800", "\u202e",
    "__import__('os')", "lambda: 0",
    "f32[2**40]", "f32[1, 1, 1]", "leaf", "leaf_view", "backward", "returns", "settings", "program(1)", "-" * 3000,
    "(" * 500, 'settings({"inductor.cpp.cxx": ("sh", "x")})', 'settings({"inductor.trace.upload_tar": "curl"})',
    'data([1, "2"])', "with autocast(dtype=bf16):\n    ", "stride=(9999999999, 1)", "offset=-1", "seed=1.5",
)  # fmt: skip


def changed(rng: random.Random, texts: Sequence[str]) -> str:
    """A program's text, changed in up to eight places."""
    text = rng.choice(texts)
    for _ in range(rng.randint(1, 8)):
        at, other = rng.randrange(len(text) + 1), rng.choice(texts)
        to = min(len(text), at + rng.randint(0, 20))
        start = rng.randrange(len(other))
        piece = rng.choice((rng.choice(_TOKENS), chr(rng.randrange(1, 0x2030)), other[start : start + 30], text[at:to]))
        text = text[:at] + piece + text[rng.choice((at, to)) :]
    return text


def try_text(text: str) -> str:
    """What came of a text: refused, or parsed. Raises whatever is a fault of ours."""
    try:
        program = parse(text)
    except ParseError:
        return "refused"
    shown = show(program)
    assert show(parse(shown)) == shown, "what is shown is not what was read"
    return "parsed"


def flipped(rng: random.Random, content: bytes) -> bytes:
    """A file with some of its bytes changed."""
    changed = bytearray(content)
    for _ in range(2 ** rng.randint(0, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def try_ledger(path: Path) -> str:
    """What came of a ledger: refused, or read. Raises whatever is a fault of ours."""
    try:
        with open_store(path, create=False) as store:
            store.list()
            store.known_faults()
            for fault in store.faults():
                store.variants(fault.id)
            store.campaigns()
            store.newest_scopes()
    except StoreError:
        return "refused"
    return "read"


_VALUES = (
    "true", "0", "-1", "3.5", "inf", "nan", "1e999", "9" * 30, "0x" + "f" * 40, "1979-05-27", "07:32:00", "[]", "[[]]",
    "{}", '{a = [1, {b = "x"}]}', '[1, "a"]', '[["a", 1]]', '""', '"cpu"', '"\\u0000"', '"\\u202e"', '"../../x"',
    '"' + "x" * 5000 + '"', '"-1"', '"%(x)s"', '"30s"', '"20G"', "[true]", '["", ""]',
)  # fmt: skip


def options_of(verb: click.Command) -> str:
    """A file of options with a value for each option of a verb."""
    lines = [f"[{verb.name}]"]
    for option in (param for param in verb.params if isinstance(param, click.Option)):
        kind = option.type
        value: Any = "x"
        if option.is_flag:
            value = True
        elif isinstance(kind, click.Choice):
            value = kind.choices[0]
        elif isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
            value = 3
        lines.append(f"{option.opts[0].removeprefix('--')} = {json.dumps([value] if option.multiple else value)}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def idle_verbs() -> Iterator[dict[str, click.Command]]:
    """The verbs by name, which do nothing in the block once their options are read."""
    context = click.Context(main)
    verbs = {name: verb for name in Verbs.modules if (verb := main.get_command(context, name)) is not None}
    callbacks = {name: verb.callback for name, verb in verbs.items()}
    try:
        for verb in verbs.values():
            verb.callback = lambda **_: None
        yield verbs
    finally:
        for name, verb in verbs.items():
            verb.callback = callbacks[name]


def try_options(text: str, verb: str) -> str:
    """What came of a file of options in the working folder, with which a verb begins. Raises whatever is a fault of
    ours."""
    OWN.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        main.main([verb], prog_name="backfuzz", standalone_mode=False)
    except click.ClickException as error:
        told = error.format_message()
        assert len(told.splitlines()) == 1, f"no line: {told!a}"
        return "refused"
    return "read"


def count(tries: Iterator[Callable[[], str]], show_first: int = 5) -> dict[str, Any]:
    """What came of each, how many were faults of ours or took too long, and the first of these."""
    found, faults, longest = Counter[str](), list[str](), 0.0
    for attempt in tries:
        started = time.process_time()
        try:
            found[attempt()] += 1
        except BaseException as error:
            found["faults of ours"] += 1
            faults.append(f"{type(error).__name__}: {error}"[:300])
            if isinstance(error, KeyboardInterrupt):
                raise
        took = time.process_time() - started
        found["too long"] += took > _TOO_LONG
        longest = max(longest, took)
    return dict(found) | {"longest_seconds": round(longest, 3), "first": faults[:show_first]}


def hostile(inputs: int, ledgers: int, options: int, seed: int, db: Path) -> dict[str, Any]:
    """Counts of each kind."""
    rng = random.Random(seed)
    texts = [path.read_text() for path in sorted(_CORPUS.rglob("*.prog"))]
    told = {"texts": count(functools.partial(try_text, changed(rng, texts)) for _ in range(inputs))}
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "flipped.db", Path(folder) / "small.db"
        with open_store(db, create=False) as store, open_store(small) as some:
            for finding in store.list()[:_FINDINGS]:
                some.add(finding)
        content = small.read_bytes()

        def one() -> str:
            path.write_bytes(flipped(rng, content))
            return try_ledger(path)

        told["ledgers"] = count(one for _ in range(ledgers))
        told["files of options"] = count(_option_files(rng, options, Path(folder)))
    return told


def _option_files(rng: random.Random, number: int, folder: Path) -> Iterator[Callable[[], str]]:
    """So many changed files of options, each a try in this folder."""
    with contextlib.chdir(folder), idle_verbs() as verbs:
        texts = {name: options_of(verb) for name, verb in verbs.items()}
        for _ in range(number):
            name = rng.choice([*verbs])
            change = rng.choice((_other_values, lambda rng, text: changed(rng, [text])))
            yield functools.partial(try_options, change(rng, texts[name]), name)


def _other_values(rng: random.Random, text: str) -> str:
    """A file of some of these options, up to three of them with another value."""
    head, *lines = text.splitlines()
    chosen = rng.sample(lines, rng.randint(0, min(3, len(lines))))
    kept = [line for line in lines if line not in chosen and rng.random() < 0.2]
    told = [f"{line.partition(' = ')[0]} = {rng.choice(_VALUES)}" for line in chosen]
    return "\n".join([head, *kept, *told]) + "\n"


@click.command("hostile")
@click.option("--inputs", type=click.IntRange(0), default=100_000, show_default=True, help="Texts to try.")
@click.option("--ledgers", type=click.IntRange(0), default=1000, show_default=True, help="Ledgers to try.")
@click.option("--options", type=click.IntRange(0), default=10_000, show_default=True, help="Files of options to try.")
@click.option("--seed", type=int, default=0, show_default=True, help="Changes are drawn from this seed.")
@click.option(
    "--db",
    type=click.Path(path_type=Path, exists=True),
    default=Path("findings.db"),
    show_default=True,
    help="The ledger whose findings are damaged.",
)
@json_option
def hostile_command(inputs: int, ledgers: int, options: int, seed: int, db: Path, as_json: bool) -> None:
    """Which changed programs, ledgers and files of options are not refused in one line within a second?"""
    told = hostile(inputs, ledgers, options, seed, db)
    if as_json:
        click.echo(json.dumps(told))
        return
    for what, counts in told.items():
        click.echo(f"{what}: " + ", ".join(f"{value} {name}" for name, value in counts.items() if name != "first"))
        for fault in counts["first"]:
            click.echo(f"  {fault!a}")
