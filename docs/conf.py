"""The site that `scripts/docs` makes of these documents. Its source is the repository: links are those of the tree."""

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
    app.connect("autodoc-process-docstring", as_it_stands)
    app.connect("sphinx-click-process-epilog", typed)
