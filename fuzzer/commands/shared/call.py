"""FILE.py:FUNCTION or MODULE:FUNCTION: a person's own function named on the command line, and the tensors to call it
with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fuzzer.language.errors import UsageError

_OWN = "backfuzz_import"  # the module as which a file runs


class Call(NamedTuple):
    """A function, the file or module in which it is, and the tensors to call it with."""

    where: str
    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def find_call(reference: str) -> Call:
    """The function of FILE.py[:FUNCTION] or MODULE:FUNCTION, with the `inputs` beside it. The file or module runs.
    Raises UsageError."""
    import torch

    where, _, wanted = reference.partition(":")
    space = _space(where, wanted)
    inputs = space.get("inputs")
    if not (isinstance(inputs, tuple | list) and inputs and all(isinstance(t, torch.Tensor) for t in inputs)):
        raise UsageError(f"{where}: it has no tuple of tensors called `inputs` to call the function with")
    defined = [key for key, v in space.items() if callable(v) and getattr(v, "__module__", "") in (_OWN, where)]
    own = [key for key in defined if not isinstance(space[key], type)]
    if not wanted and len(own) != 1:
        raise UsageError(f"{where} defines {', '.join(own) or 'no function'}: name one, {where}:FUNCTION")
    function = space.get(wanted or own[0])
    if not callable(function):
        raise UsageError(f"{where}: no function {wanted!r}; it defines {', '.join(own) or 'none'}")
    if isinstance(function, type):
        raise UsageError(f"{where}: {wanted} is a class; make an object of it there, and name that")
    return Call(where, wanted or own[0], function, tuple(inputs))


def _space(where: str, wanted: str) -> dict[str, Any]:
    """The names of a file or module. Raises UsageError."""
    import importlib
    import runpy

    if Path(where).is_file():
        with running(where):
            return runpy.run_path(where, run_name=_OWN)
    if not wanted or not all(part.isidentifier() for part in where.split(".")):
        raise UsageError(f"{where}: no such file; name FILE.py, FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        with running(where, but=ModuleNotFoundError):
            return vars(importlib.import_module(where))
    except ModuleNotFoundError as error:
        raise UsageError(f"{where}: no such file, and no such module ({error.name} is not installed)") from None


@contextmanager
def running(what: str, but: type[Exception] | None = None) -> Iterator[None]:
    """The person's own code runs. Raises UsageError for whatever it raises, and where it exits."""
    try:
        yield
    except SystemExit as error:
        raise UsageError(f"{what} exits, with {error.code!r}") from None
    except Exception as error:
        if but is not None and isinstance(error, but):
            raise
        told = " ".join(str(error).split())
        raise UsageError(f"{what} raised {type(error).__name__}: {told}") from None
