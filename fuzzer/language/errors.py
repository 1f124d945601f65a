"""Errors about a person's request; the message is one line for people. No torch."""

from __future__ import annotations


class UsageError(ValueError):
    """A requested thing does not exist, or cannot be read, expressed or written; the message is one line for people."""


class NoMachine(RuntimeError):
    """The machine cannot run the request; the message is one line for people."""


class UnknownOp(UsageError):
    """A program or a command line names an op that does not exist, or not in this torch."""
