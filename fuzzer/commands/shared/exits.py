"""What a command exits with, and how it refuses: one line on stderr and no traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from fuzzer.language.errors import NoMachine, UsageError

DIFFERS, COULD_NOT_RUN, NO_MACHINE, INTERRUPTED = 1, 2, 3, 130
UNREAD = 141  # as a shell tells of a program that SIGPIPE ended


class Refusal(click.ClickException):
    """One line for people and an exit code."""

    def __init__(self, message: str, code: int = COULD_NOT_RUN):
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"backfuzz: {self.message}", err=True)


def exit_codes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what people can cause into one line and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except NoMachine as error:
            raise Refusal(str(error), NO_MACHINE) from None
        except UsageError as error:
            raise Refusal(str(error)) from None
        except BrokenPipeError:  # the reader had enough: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed at the end
            sys.exit(UNREAD)
        except OSError as error:  # a folder or file that cannot be written
            raise Refusal(f"{error.filename or 'the machine'}: {error.strerror or error}") from None
        except KeyboardInterrupt:
            raise Refusal("interrupted", INTERRUPTED) from None

    return wrapper
