"""Regions as they are drawn: where they can stand, and where they make a difference."""

from __future__ import annotations

import contextlib
import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fuzzer.generation import enclose
from fuzzer.generation.draft import Rejected
from fuzzer.generation.enclose import changes_no_type, wrap
from fuzzer.generation.generate import generate
from fuzzer.language.infer import check_cotangents, infer
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import Limits
from fuzzer.language.program import Dtype, Program, Region, Statement, statements, walk
from fuzzer.language.regions import OF_FUNC, REGIONS
from fuzzer.language.routes import ROUTES, route_of
from fuzzer.language.text import parse, show
from tests.drawn import drawn

ROUTED = ("autograd", "vjp")


def regions(program: Program) -> list[Region]:
    return [s for s in statements(program.body) if isinstance(s, Region)]


def many(seed: str) -> Iterator[Program]:
    for number in range(300):
        with contextlib.suppress(Rejected):
            yield generate(random.Random(f"{seed}/{number}"), limits=Limits(max_nodes=3), routes=ROUTED)


def around(like: Region) -> Callable[[tuple[Statement, ...]], Region]:
    return lambda body: replace(like, body=body)


@functools.cache
def of_any_route() -> list[Program]:
    return drawn([f"regions/{number}" for number in range(120)], routes=tuple(ROUTES))


def test_some_programs_are_drawn_with_regions() -> None:
    programs = of_any_route()
    enclosed = [p for p in programs if regions(p)]
    assert 0.04 < len(enclosed) / len(programs) < 0.4


def test_transforms_of_torch_func_are_drawn_in_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclose, "_COMPOSED", 1.0)
    for name, spec in REGIONS.items():
        monkeypatch.setitem(REGIONS, name, replace(spec, share=0.0))
    pairs = Counter[tuple[str, ...]](tuple(r.kind for r in regions(p)) for p in drawn([f"func/{n}" for n in range(60)]))
    assert pairs.pop((), 0) < 55
    assert len(pairs) >= 4
    assert all(len(pair) == 2 and set(pair) <= set(OF_FUNC) for pair in pairs)


@pytest.mark.parametrize("kind", REGIONS)
def test_every_kind_is_drawn_where_it_can_stand(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, spec in REGIONS.items():
        monkeypatch.setitem(REGIONS, name, replace(spec, share=0.8 if name == kind else 0.3 * (name == "autocast")))
    program = next(p for p in many(kind) if any(r.kind == kind for r in regions(p)))
    route_of(program)
    assert parse(show(program)) == program
    check_cotangents(program, infer(program))
    for region in regions(program):
        assert region.body
        spec = REGIONS[region.kind]
        for node in program.nodes if spec.recomputes else walk(region.body) if spec.pure else ():
            assert not OPS[node.op].effects
        if spec.holds is not None:
            assert {r.kind for r in statements(region.body) if isinstance(r, Region)} <= set(spec.holds)


def test_a_region_that_is_idle_around_the_whole_body_changes_no_type_around_a_part() -> None:
    rng, seen = random.Random(1), Counter[bool]()
    for program in (p for p in of_any_route() if not regions(p)):
        region = Region("autocast", (("dtype", Dtype("bf16")),), program.body)
        left_out = changes_no_type(program, region)
        if left_out:
            types = infer(program)
            for _ in range(2):
                around_a_part = wrap(rng, program.body, around(region))
                assert around_a_part is not None
                assert infer(replace(program, body=around_a_part)) == types
            assert infer(replace(program, body=(region,))) == types
        seen[left_out] += 1
    assert seen[True] > 40
    assert seen[False] > 3
