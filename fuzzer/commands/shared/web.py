"""A page of HTML about a ledger or a campaign."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzer.commands.shared.exits import Refusal

if TYPE_CHECKING:
    from fuzzer.export.gather import Contents

_NEEDED = ("jinja2", "matplotlib")


def require_plots() -> None:
    """Raises Refusal where a library that a page needs is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Refusal(f"report needs {' and '.join(missing)}: pip install 'backfuzz[report]'")


def write_page(out: Path, contents: Contents) -> None:
    """Write the page, with the time and the version of backfuzz."""
    from importlib.metadata import version

    from fuzzer.campaign.told.written import now
    from fuzzer.export.page import page

    out.write_text(page(contents, f"{now()[:16].replace('T', ' ')} UTC by backfuzz {version('backfuzz')}"))
