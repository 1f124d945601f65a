"""A knob changes what it says about programs; at their defaults the knobs change nothing."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable

import pytest

from fuzzer.generation.generate import DTYPE_WEIGHTS
from fuzzer.generation.knobs import CHOICES, USUAL, Knobs, choices
from fuzzer.language.ops import OPS
from fuzzer.language.program import FLOATS, Program, contiguous
from tests.drawn import drawn

THREADS = {"inductor.cpp.threads", "inductor.cpp.min_chunk_size"}  # which every program draws


@functools.cache
def turned(knobs: Knobs, count: int = 40) -> list[Program]:
    return drawn([f"knobs {i}" for i in range(count)], knobs=knobs)


def mean(programs: list[Program], measure: Callable[[Program], float]) -> float:
    return statistics.mean(map(measure, programs))


def dense(program: Program) -> float:
    return statistics.mean(leaf.stride == contiguous(leaf.shape) for leaf in program.leaves)


@pytest.mark.parametrize(
    ("less", "more", "measure"),
    [
        (Knobs(nodes=3.0), Knobs(nodes=0.0), lambda p: len(p.nodes)),
        (Knobs(dense=0.3), Knobs(dense=0.9), dense),
        (Knobs(reuse=0.9), Knobs(reuse=0.3), lambda p: len(p.leaves)),
        (Knobs(closed=0.25), Knobs(closed=1.0), lambda p: sum(n.op == "sum" for n in p.nodes)),
        (Knobs(settings="none"), Knobs(settings="one"), lambda p: len(p.settings)),
        (Knobs(settings="one"), Knobs(settings="several"), lambda p: len(p.settings)),
        (Knobs(), Knobs(family="scatter"), lambda p: sum(OPS[n.op].family == "scatter" for n in p.nodes)),
        (Knobs(dtype="f32"), Knobs(dtype="f64"), lambda p: sum(x.dtype == "f64" for x in p.leaves)),
    ],
    ids=["nodes", "dense", "reuse", "closed", "some settings", "more settings", "family", "dtype"],
)
def test_a_knob_changes_what_it_says(less: Knobs, more: Knobs, measure: Callable[[Program], float]) -> None:
    assert mean(turned(more), measure) > 1.2 * mean(turned(less), measure)


def test_a_profile_without_settings_has_none() -> None:
    programs = [p for p in turned(Knobs(settings="none")) if not any(OPS[n.op].random for n in p.nodes)]
    assert len(programs) >= 30
    assert not any({name for name, _ in p.settings} - THREADS for p in programs)


def test_the_same_seed_and_knobs_draw_the_same_program() -> None:
    again = turned.__wrapped__
    assert turned(Knobs(family="loss", nodes=0.0)) == again(Knobs(family="loss", nodes=0.0))
    assert again(USUAL, 5) == again(Knobs(), 5) != again(Knobs(reuse=0.3), 5)


def test_every_knob_has_values_to_turn_it_to_and_its_default_first() -> None:
    found = choices(FLOATS, ("loss", "view"))
    assert set(found) == {field.name for field in dataclasses.fields(Knobs)}
    for name, (default, *others) in found.items():
        assert default == getattr(USUAL, name)
        assert others
        assert default not in others
    assert set(CHOICES) < set(found)
    assert set(found["dtype"][1:]) <= set(DTYPE_WEIGHTS)


def test_knobs_at_their_defaults_are_left_out() -> None:
    assert USUAL.non_default() == {}
    assert Knobs(nodes=0.0, family="loss").non_default() == {"nodes": 0.0, "family": "loss"}
    assert Knobs(**Knobs(dtype="f16").non_default()) == Knobs(dtype="f16")  # type: ignore[arg-type]
