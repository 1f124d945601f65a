"""FILE|ID: a program named on the command line, and the task that runs it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fuzzer.commands.shared.holder import holding
from fuzzer.commands.shared.options import Sides
from fuzzer.judgement.verdict import Finding
from fuzzer.language.errors import UsageError
from fuzzer.language.text import ParseError, parse
from fuzzer.trial.places import make_task
from fuzzer.trial.places import runs_here as device_is_here


def with_files_below(references: Iterable[str]) -> Iterator[str]:
    """The references, each folder replaced by the .prog files below it, but for hidden folders'. Raises UsageError."""
    for reference in references:
        folder = Path(reference)
        if not folder.is_dir():
            yield reference
            continue
        below = sorted(folder.rglob("*.prog"))
        found = [path for path in below if not any(p.startswith(".") for p in path.relative_to(folder).parts)]
        if not found:
            raise UsageError(f"{reference}: no .prog file below it")
        yield from map(str, found)


def load_program(reference: str, db: Path) -> tuple[str, str, Finding | None]:
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
    from fuzzer.ledger.store import open_store

    with open_store(holding(reference, db), create=False) as store:
        finding = store.get(reference)
    return finding.id, finding.program, finding


def finding_task(finding: Finding | None, sides: Sides) -> Any:
    """The task for a replay: the finding's own place, unless the command line says otherwise."""
    if finding is not None and sides.compare is None:
        from fuzzer.judgement.oracles import ASKED

        own = finding.place
        against, subject = own.get("against", "eager"), own.get("backend", "inductor")
        where = sides.device or own.get("device", "cpu")
        subject += f"@{where}/{own['threads']}" if "threads" in own else ""
        side = against if sides.device is None else against.split("@")[0]
        own_oracle = (finding.signature.oracle,) if finding.signature.oracle in ASKED else ()
        compared = (side, sides.backend or subject)
        return make_task(where, "inductor", compared, fresh=True, also=sides.also + own_oracle)
    return make_task(sides.device, sides.backend or "inductor", sides.compare, fresh=True, also=sides.also)


def runs_here(finding: Finding, device: str | None = None) -> bool:
    """Whether this machine has the devices of both sides, or the one that both are put on."""
    own = finding.place
    named = [own.get(side, "").partition("@")[2].partition("/")[0] for side in ("backend", "against")]
    wanted = [own.get("device", "cpu"), *filter(None, named)] if device is None else [device]
    return all(map(device_is_here, wanted))
