"""The op tables: OPS maps a name to its OpSpec. A new op is one entry in one family's table."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable, Iterator, Sequence

from fuzzer.language.errors import UsageError
from fuzzer.language.ops import complex
from fuzzer.language.ops.spec import OpSpec


def _available(spec: OpSpec) -> bool:
    """Whether the running torch has this op."""
    return [int(part) for part in spec.since.split(".") if part] <= _RUNNING


def _running() -> list[int]:
    """Major and minor number of the installed torch, without importing torch if its metadata give them."""
    try:
        release = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # a torch on the path that was not installed
        release = importlib.import_module("torch").__version__
    return [int(part) for part in release.split(".")[:2]]


_RUNNING = _running()
OPS: dict[str, OpSpec] = {}


def _enter(table: Iterable[OpSpec], where: str) -> None:
    """Add the rows of a table that the running torch has to OPS."""
    for spec in table:
        if spec.name in OPS:
            raise ValueError(f"op {spec.name} is in two tables; the second is {where}")
        if _available(spec):
            OPS[spec.name] = spec


def _own_tables() -> Iterator[tuple[str, Sequence[OpSpec]]]:
    """The tables of packages with an entry point of the group `backfuzz.ops`. Raises UsageError."""
    for point in sorted(importlib.metadata.entry_points(group="backfuzz.ops"), key=lambda point: point.name):
        where = f"the entry point {point.name} = {point.value}"
        try:
            yield where, point.load()
        except Exception as error:  # somebody else's module
            raise UsageError(f"{where} of backfuzz.ops: {error!r}") from error


for _module in sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in ("spec", "excluded")):
    _enter(importlib.import_module(f"{__name__}.{_module}").TABLE, f"fuzzer/language/ops/{_module}.py")
for _where, _table in _own_tables():
    _enter(_table, _where)

# The ops for campaigns without complex numbers.
REAL = {name: spec for name, spec in OPS.items() if spec.family != complex.FAMILY}


def ops_by_family() -> dict[str, tuple[OpSpec, ...]]:
    """The ops of each family, in table order."""
    found: dict[str, tuple[OpSpec, ...]] = {}
    for spec in OPS.values():
        found[spec.family] = (*found.get(spec.family, ()), spec)
    return found
