"""What a command exits with, and how it refuses: one line on stderr and no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from fuzzer.judgement.trial import UsageError
from fuzzer.language.text import ParseError

DIFFERS, COULD_NOT_RUN, NO_MACHINE, INTERRUPTED = 1, 2, 3, 130


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
        from fuzzer.execution.pool import NoMachine
        from fuzzer.findings.errors import StoreError
        from fuzzer.findings.script import ExportError
        from fuzzer.language.infer import IllTyped
        from fuzzer.language.interpret import UnknownOp
        from fuzzer.language.regions import UnknownRegion
        from fuzzer.language.routes import UnknownRoute
        from fuzzer.language.settings import UnknownSetting
        from fuzzer.language.values import UnknownRecipe

        try:
            return command(*args, **kwargs)
        except NoMachine as error:
            raise Refusal(str(error), NO_MACHINE) from None
        except (
            UsageError, ParseError, StoreError, ExportError, IllTyped, UnknownOp, UnknownRegion, UnknownRoute,
            UnknownSetting, UnknownRecipe,
        ) as error:  # fmt: skip
            raise Refusal(str(error)) from None
        except OSError as error:  # a folder or file that cannot be written
            raise Refusal(f"{error.filename or 'the machine'}: {error.strerror or error}") from None
        except KeyboardInterrupt:
            raise Refusal("interrupted", INTERRUPTED) from None

    return wrapper
