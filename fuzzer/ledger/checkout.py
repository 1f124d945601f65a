"""The source checkout that this backfuzz runs from; an installed one has none."""

from __future__ import annotations

from pathlib import Path

LEDGER = Path(".backfuzz/findings.db")  # the ledger, if no other is named: in the working folder
_FOLDER = Path(__file__).resolve().parents[2]
ROOT = _FOLDER if (_FOLDER / "corpus" / "regressions").is_dir() else None


def regressions(db: Path) -> Path | None:
    """The folder for the .prog of each finding that enters this ledger; None unless it is the checkout's own."""
    if ROOT is None or db.resolve() != ROOT / "findings.db":
        return None
    folder = ROOT / "corpus" / "regressions"
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
