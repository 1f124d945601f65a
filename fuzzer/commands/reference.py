"""FILE|ID: a program named on the command line, and the task that runs it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuzzer.commands.place import make_task
from fuzzer.judgement.trial import UsageError
from fuzzer.judgement.verdict import Finding
from fuzzer.language.text import ParseError, parse


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
    from fuzzer.findings.store import open_store

    with open_store(db, create=False) as store:
        finding = store.get(reference)
    return finding.id, finding.program, finding


def finding_task(
    finding: Finding | None, device: str | None, backend: str | None, compare: Any, also: tuple[str, ...] = ()
) -> Any:
    """The task for a replay: the finding's own place, unless the command line says otherwise."""
    if finding is not None and compare is None:
        from fuzzer.judgement.oracles import ASKED

        own = finding.place
        against, subject = own.get("against", "eager"), own.get("backend", "inductor")
        where = device or own.get("device", "cpu")
        subject += f"@{where}/{own['threads']}" if "threads" in own else ""
        side = against if device is None else against.split("@")[0]
        own_oracle = (finding.signature.oracle,) if finding.signature.oracle in ASKED else ()
        return make_task(where, "inductor", (side, backend or subject), fresh=True, also=also + own_oracle)
    return make_task(device, backend or "inductor", compare, fresh=True, also=also)
