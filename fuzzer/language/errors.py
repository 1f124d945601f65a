"""What a person asked for cannot be done: the errors whose message is one line for people. No torch."""

from __future__ import annotations


class UsageError(ValueError):
    """What was asked for does not exist, or cannot be read, said or written; the message is one line for people."""


class NoMachine(RuntimeError):
    """The machine cannot run what was asked for; one line for people."""


class UnknownOp(UsageError):
    """A program or a command line names an op that there is not, or not in this torch."""
