"""KERNELS: one frozen row for each ATen kernel with its roundings. A new kernel is one row in one table."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping

from fuzzer.rounding.kernels.row import Kernel
from fuzzer.rounding.trace import Step, once

FAMILIES = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in ("row", "bounds"))


def assembled(tables: Mapping[str, Iterable[Kernel]]) -> dict[str, Kernel]:
    """The rows of all tables by name. Raises ValueError where two rows have the same name."""
    rows: dict[str, Kernel] = {}
    for family, table in tables.items():
        for row in table:
            if row.name in rows:
                raise ValueError(
                    f"kernel {row.name} has two rows; the second is in fuzzer/rounding/kernels/{family}.py"
                )
            rows[row.name] = row
    return rows


KERNELS = assembled({name: importlib.import_module(f"fuzzer.rounding.kernels.{name}").TABLE for name in FAMILIES})

UNNAMED = Kernel("")  # a kernel without a row is replayed as compound; what depends on it is `unmodelled`


def named(name: str) -> Kernel:
    """The row of this name (`Step.name`)."""
    return KERNELS.get(name, UNNAMED)


@once
def kernel(step: Step) -> Kernel:
    """The row of the kernel that a step called."""
    return named(step.name)
