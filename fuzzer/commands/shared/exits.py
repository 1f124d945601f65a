"""The exit codes of a command, and how it refuses: one line on stderr and no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from fuzzer.language.errors import NoMachine, UsageError

DONE, DIFFERS, COULD_NOT_RUN, NO_MACHINE, INTERRUPTED = 0, 1, 2, 3, 130
UNREAD = 141  # as a shell tells of a program that SIGPIPE ended

# The meaning of each code for every verb. A verb says more about a code in its own help, where it can.
EXITS = {
    DONE: "done",
    DIFFERS: "done, and something differs, is new or came back",
    COULD_NOT_RUN: "not done: wrong usage, or something is missing, unreadable or cannot run",
    NO_MACHINE: "this machine cannot run it",
    INTERRUPTED: "interrupted",
    UNREAD: "nobody reads the output any more",
}


def exits_line(own: dict[int, str], runs: bool) -> str:
    """The line on exit codes in the help of a verb.

    own   the words for codes about which the verb says more than EXITS.  runs   whether it runs programs.
    """
    codes = {DONE, COULD_NOT_RUN, INTERRUPTED} | ({NO_MACHINE} if runs else set()) | own.keys()
    said = EXITS | own
    return "Exit codes: " + "; ".join(f"{code} {said[code]}" for code in sorted(codes)) + "."


class Refusal(click.ClickException):
    """One line for people and an exit code."""

    def __init__(self, message: str, code: int = COULD_NOT_RUN):
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"backfuzz: {self.message}", err=True)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors that people can cause into one line and an exit code."""
    try:
        yield
    except NoMachine as error:
        raise Refusal(str(error), NO_MACHINE) from None
    except UsageError as error:
        raise Refusal(str(error)) from None
    except BrokenPipeError:  # the reader had enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed at the end
        sys.exit(UNREAD)
    except OSError as error:  # a folder or file that cannot be read or written
        refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        way_out = "; change its permissions, or name another place" if refused else ""
        raise Refusal(f"{error.filename or 'the machine'}: {error.strerror or error}{way_out}") from None
    except KeyboardInterrupt:
        raise Refusal("interrupted", INTERRUPTED) from None
