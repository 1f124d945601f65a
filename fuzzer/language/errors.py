"""Errors about a person's request; the message is one line for people. No torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A requested thing does not exist, or cannot be read, expressed or written; the message is one line for people."""


class NoMachine(RuntimeError):
    """The machine cannot run the request; the message is one line for people."""


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name, "; did you mean NAME?", for the known name that is most like it; ""
    where no known name is like it."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class UnknownOp(UsageError):
    """A program or a command line names an op that does not exist, or not in this torch."""
