"""A knob changes what it says about programs; at their defaults the knobs change nothing."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable

import pytest

from fuzzer.generate import DTYPE_WEIGHTS, Rejected, generate
from fuzzer.knobs import TURNS, USUAL, Knobs, turns
from fuzzer.ops import OPS
from fuzzer.program import FLOATS, Program, contiguous


def drawn(knobs: Knobs, count: int = 40) -> list[Program]:
    found = []
    for i in range(2 * count):
        try:
            found.append(generate(random.Random(f"knobs {i}"), knobs=knobs))
        except Rejected:
            continue
    return found[:count]


def mean(programs: list[Program], measure: Callable[[Program], float]) -> float:
    return statistics.mean(map(measure, programs))


def dense(program: Program) -> float:
    return statistics.mean(leaf.stride == contiguous(leaf.shape) for leaf in program.leaves)


@pytest.mark.parametrize(
    ("less", "more", "measure"),
    [
        (Knobs(nodes=3.0), Knobs(nodes=0.0), lambda p: len(p.nodes)),
        (Knobs(dense=0.3), Knobs(dense=0.9), dense),
        (Knobs(reuse=0.9), Knobs(reuse=0.3), lambda p: len(p.leaves) / len(p.nodes)),
        (Knobs(closed=0.25), Knobs(closed=1.0), lambda p: sum(n.op == "sum" for n in p.nodes)),
        (Knobs(settings="none"), Knobs(settings="one"), lambda p: len(p.settings)),
        (Knobs(settings="one"), Knobs(settings="several"), lambda p: len(p.settings)),
        (Knobs(), Knobs(family="scatter"), lambda p: sum(OPS[n.op].family == "scatter" for n in p.nodes)),
        (Knobs(dtype="f32"), Knobs(dtype="f64"), lambda p: sum(x.dtype == "f64" for x in p.leaves)),
    ],
    ids=["nodes", "dense", "reuse", "closed", "some settings", "more settings", "family", "dtype"],
)
def test_a_knob_changes_what_it_says(less: Knobs, more: Knobs, measure: Callable[[Program], float]) -> None:
    assert mean(drawn(more), measure) > 1.2 * mean(drawn(less), measure)


def test_a_profile_without_settings_has_none() -> None:
    assert not any(p.settings for p in drawn(Knobs(settings="none"), 20) if not any(OPS[n.op].random for n in p.nodes))


def test_the_same_seed_and_knobs_draw_the_same_program() -> None:
    assert drawn(Knobs(family="loss", nodes=0.0), 5) == drawn(Knobs(family="loss", nodes=0.0), 5)
    assert drawn(USUAL, 5) == drawn(Knobs(), 5) != drawn(Knobs(reuse=0.3), 5)


def test_every_knob_has_values_to_turn_it_to_and_its_default_first() -> None:
    found = turns(FLOATS, ("loss", "view"))
    assert set(found) == {field.name for field in dataclasses.fields(Knobs)}
    for name, (default, *others) in found.items():
        assert default == getattr(USUAL, name)
        assert others
        assert default not in others
    assert set(TURNS) < set(found)
    assert set(found["dtype"][1:]) <= set(DTYPE_WEIGHTS)


def test_only_turned_knobs_are_told() -> None:
    assert USUAL.turned() == {}
    assert Knobs(nodes=0.0, family="loss").turned() == {"nodes": 0.0, "family": "loss"}
    assert Knobs(**Knobs(dtype="f16").turned()) == Knobs(dtype="f16")  # type: ignore[arg-type]
