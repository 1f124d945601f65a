"""The site that `scripts/docs` makes of these documents. Its source is the repository: links are those of the tree.

A document says `<!-- rows: NAME -->` where a table of data belongs; the functions of ROWS make the tables.
"""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

project = "backfuzz"
copyright = "the authors of backfuzz"

extensions = ["myst_parser", "sphinx_click", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "corpus/README.md", "docs/**.md"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "backfuzz"
html_copy_source = False

ROOT = Path(__file__).parent.parent
GITHUB = "https://github.com/pytorch/pytorch"


def reach() -> str:
    """The reported faults of corpus/reach/threads.json: a table for each area, then those that no program holds."""
    threads = json.loads((ROOT / "corpus" / "reach" / "threads.json").read_text())
    said = [thread for thread in threads if "missing" not in thread]
    tables = [
        f"### {area}\n\n" + table(["Thread", "What is wrong", "Lives on", "Met by draws", "Detected"],
                                  [[*_thread(t), str(t["met"] or "-"), _detected(t)] for t in found])
        for area, found in groupby(said, lambda thread: thread["area"])
    ]  # fmt: skip
    rest = [[*_thread(thread), escape(thread["missing"])] for thread in threads if "missing" in thread]
    heading = "### What programs cannot hold\n\n"
    return "\n\n".join([*tables, heading + table(["Thread", "What is wrong", "Lives on", "A program holds it"], rest)])


def _thread(thread: dict[str, Any]) -> list[str]:
    """The cells of a reported fault that every table has."""
    link = f"[#{thread['thread']}]({GITHUB}/{thread['kind']}/{thread['thread']})"
    return [link, escape(thread["wrong"]), escape(f"{thread['lives']}; {thread['state']}")]


def _detected(thread: dict[str, Any]) -> str:
    return f"{thread['shows']} {', '.join(thread['on'])}" if "on" in thread else "no"


def faults() -> str:
    """The confirmed faults of the project's ledger that its newest release has, the most urgent first."""
    from fuzzer.ledger.listing import lives, urgency
    from fuzzer.ledger.store import open_store

    with open_store(ROOT / "findings.db", create=False) as store:
        found = store.faults()
    newest = max({place.split()[0] for fault in found for place in fault.lives_on}, key=_release)
    confirmed = [
        fault for fault in sorted(found, key=urgency)
        if fault.state.name == "confirmed" and any(place.split()[0] == newest for place in fault.lives_on)
    ]  # fmt: skip
    rows = [[f"`{f.id}`", *map(escape, (f.title, "; ".join(lives(f)), f.state.note))] for f in confirmed]
    told = f"{len(rows)} of {len(found)} faults are confirmed, live on torch {newest} and have no report known to us."
    return f"{told}\n\n" + table(["Fault", "Title", "Lives on", "Note"], rows)


def _release(version: str) -> tuple[int, ...]:
    """A release as numbers: 2.9 comes before 2.11."""
    return tuple(map(int, version.split(".")))


ROWS = {"reach": reach, "faults": faults}


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; `head` names its columns."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|#$])", r"\\\1", text)


def with_rows(text: str) -> str:
    """A document with its tables in place of their marks."""
    return re.sub(r"<!-- rows: (\w+) -->", lambda mark: ROWS[mark[1]](), text)


def read_with_rows(app: Any, name: str, source: list[str]) -> None:
    source[0] = with_rows(source[0])


def as_it_stands(app: Any, what: str, name: str, held: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text whose columns mean something, not reStructuredText."""
    lines[:] = ["::", "", *("    " + line for line in lines), ""]


def typed(app: Any, context: Any, lines: list[str]) -> None:
    """The example at the end of a command's help is shown as it is typed."""
    if "| Example:" in lines:
        at = lines.index("| Example:")
        lines[at:] = [
            "Example:",
            "",
            ".. code-block:: none",
            "",
            *(line.removeprefix("| ") for line in lines[at + 1 :]),
        ]


def setup(app: Any) -> None:
    app.connect("source-read", read_with_rows)
    app.connect("autodoc-process-docstring", as_it_stands)
    app.connect("sphinx-click-process-epilog", typed)
