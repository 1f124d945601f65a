"""backfuzz from Python, and the command `backfuzz` (`python -m backfuzz`); docs/python.md shows its use.

This module imports the packages `fuzzer` and `minimizer` of its own folder under those names, so that a fuzzer.py in
the working folder or on PYTHONPATH is not taken for ours. The command and the fork server of its workers import it
first.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

FOLDER = Path(__file__).resolve().parent
PACKAGES = ("fuzzer", "minimizer")


def take(package: str) -> None:
    """Import a package of this folder, even if another of its name stands earlier on sys.path; a loaded package
    stays."""
    if package in sys.modules:
        return
    spec = spec_from_file_location(package, FOLDER / package / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[package] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


for name in PACKAGES:
    take(name)


if TYPE_CHECKING:
    from fuzzer.campaign.loop import Campaign
    from fuzzer.campaign.plan import Plan
    from fuzzer.generation.strategies import programs
    from fuzzer.judgement.trial import Place, Subject
    from fuzzer.judgement.verdict import Verdict
    from fuzzer.language.errors import NoMachine, UsageError
    from fuzzer.language.ops.spec import Attribute, Operand, OpSpec
    from fuzzer.language.program import Program
    from fuzzer.language.text import parse, show
    from fuzzer.language.transcribe import Inexpressible
    from fuzzer.trial.calls import Uncheckable
    from fuzzer.trial.check import check, run
    from fuzzer.trial.home import program_of
    from fuzzer.workers.messages import Task

# Each public name's module, imported at the name's first use because most of them need torch.
_PUBLIC = {
    "fuzzer.campaign.loop": "Campaign",
    "fuzzer.campaign.plan": "Plan",
    "fuzzer.trial.calls": "Uncheckable",
    "fuzzer.trial.check": "check run",
    "fuzzer.trial.home": "program_of",
    "fuzzer.workers.messages": "Task",
    "fuzzer.generation.strategies": "programs",
    "fuzzer.judgement.trial": "Place Subject",
    "fuzzer.judgement.verdict": "Verdict",
    "fuzzer.language.errors": "NoMachine UsageError",
    "fuzzer.language.ops.spec": "Attribute Operand OpSpec",
    "fuzzer.language.program": "Program",
    "fuzzer.language.text": "parse show",
    "fuzzer.language.transcribe": "Inexpressible",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = [
    "Attribute", "Campaign", "Inexpressible", "NoMachine", "OpSpec", "Operand", "Place", "Plan", "Program", "Subject",
    "Task", "Uncheckable", "UsageError", "Verdict", "check", "main", "parse", "program_of", "programs", "run", "show",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def main() -> None:
    """Run the command with the process's arguments."""
    try:
        from fuzzer import commands
    except KeyboardInterrupt:  # in the first moment; later the command handles it
        print("backfuzz: interrupted", file=sys.stderr)
        sys.exit(130)
    commands.main(prog_name="backfuzz")


if __name__ == "__main__":
    main()
