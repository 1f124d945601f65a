"""The op tables: OPS maps a name to its OpSpec. A new op is one entry in one family's table."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil

from fuzzer.language.ops import complex
from fuzzer.language.ops.spec import OpSpec


def _available(spec: OpSpec) -> bool:
    """Whether the running torch has this op."""
    return [int(part) for part in spec.since.split(".") if part] <= _RUNNING


def _running() -> list[int]:
    """Major and minor number of the torch that is installed, which is not imported for that where its metadata say."""
    try:
        release = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # a torch on the path that nobody installed
        release = importlib.import_module("torch").__version__
    return [int(part) for part in release.split(".")[:2]]


_RUNNING = _running()
OPS: dict[str, OpSpec] = {}

for _module in sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in ("spec", "excluded")):
    for _spec in importlib.import_module(f"fuzzer.language.ops.{_module}").TABLE:
        if _spec.name in OPS:
            raise ValueError(f"op {_spec.name} stands in two tables; the second is fuzzer/language/ops/{_module}.py")
        if _available(_spec):
            OPS[_spec.name] = _spec

# What is drawn where complex numbers are not asked for.
REAL = {name: spec for name, spec in OPS.items() if spec.family != complex.FAMILY}


def ops_by_family() -> dict[str, tuple[OpSpec, ...]]:
    """The ops of each family, in table order."""
    found: dict[str, tuple[OpSpec, ...]] = {}
    for spec in OPS.values():
        found[spec.family] = (*found.get(spec.family, ()), spec)
    return found
