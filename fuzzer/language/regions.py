"""REGIONS: contexts that a run of statements executes under, `with autocast(dtype=bf16):`. A region is one entry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fuzzer.language.errors import UsageError
from fuzzer.language.program import Dtype, Region, Value
from fuzzer.language.text import show_value
from fuzzer.language.values import TORCH_DTYPES


class UnknownRegion(UsageError):
    """A program names a region that does not exist, or gives it other attributes than it takes."""


@dataclass(frozen=True)
class Inside:
    """What a region's Python needs to know: its statements as lines, names it reads from outside, names read later."""

    lines: list[str]
    reads: list[str]
    results: list[str]


@dataclass(frozen=True)
class RegionSpec:
    """A kind of region.

    write       the region as the Python that a person would write.
    context     what is entered where its nodes are run one at a time on the CPU, to type them.
    attributes  all of them must be given; the values each may have.
    portable    whether it means the same on every device.
    share       of the programs that may hold such a region, how many are tried with one.
    recomputes  whether the statements run again in the backward: then nothing may be drawn or overwritten. A region
                that does not is there to change types.
    """

    write: Callable[[Region, Inside], list[str]]
    context: Callable[[Region], contextlib.AbstractContextManager[object]]
    attributes: dict[str, tuple[Value, ...]]
    share: float
    portable: bool = True
    recomputes: bool = False


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _dtype_of(region: Region) -> torch.dtype:
    named = dict(region.attrs)["dtype"]
    assert isinstance(named, Dtype)
    return TORCH_DTYPES[named.name]


def _write_autocast(region: Region, inside: Inside) -> list[str]:
    """On the device where the region's first operand lies."""
    if not inside.reads:
        raise UnknownRegion("region autocast reads no value from outside, so that its device is not known")
    head = f"with torch.autocast({inside.reads[0]}.device.type, dtype={_dtype_of(region)}):"
    return [head, *indented(inside.lines)]


def _write_checkpoint(region: Region, inside: Inside) -> list[str]:
    given, results = ", ".join(inside.reads), ", ".join(inside.results)
    return [
        f"def block({given}):",
        *indented([*inside.lines, f"return {results}"]),
        f"{results} = torch.utils.checkpoint.checkpoint(block, {given}, use_reentrant=False)",
    ]


REGIONS: dict[str, RegionSpec] = {
    # kept only where it changes a type, which it can in one of eight programs
    "autocast": RegionSpec(
        _write_autocast,
        lambda region: torch.autocast("cpu", dtype=_dtype_of(region)),
        {"dtype": (Dtype("bf16"), Dtype("f16"))},
        share=0.5,
        portable=False,
    ),
    "checkpoint": RegionSpec(
        _write_checkpoint, lambda region: contextlib.nullcontext(), {}, share=0.08, recomputes=True
    ),
}


def region_spec(region: Region) -> RegionSpec:
    """The region's entry. Raises UnknownRegion."""
    spec = REGIONS.get(region.kind)
    if spec is None:
        raise UnknownRegion(f"no region {region.kind!r}; known are {', '.join(REGIONS)}")
    given = dict(region.attrs)
    for name in {*given, *spec.attributes}:
        values = spec.attributes.get(name, ())
        if given.get(name) not in values:
            taken = " or ".join(f"{name}={show_value(value)}" for value in values) or f"no {name}"
            raise UnknownRegion(f"region {region.kind} takes {taken}, not {name}={show_value(given.get(name))}")
    return spec
