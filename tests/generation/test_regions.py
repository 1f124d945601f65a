"""Regions as they are drawn: where they can stand, and where they make a difference."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from fuzzer.generation.regions import changes_no_type, wrap
from fuzzer.language.infer import check_cotangents, infer
from fuzzer.language.ops import OPS
from fuzzer.language.program import Dtype, Program, Region, statements
from fuzzer.language.regions import REGIONS
from fuzzer.language.routes import ROUTES, route_of
from fuzzer.language.text import parse, show
from tests.drawn import drawn


def regions(program: Program) -> list[Region]:
    return [s for s in statements(program.body) if isinstance(s, Region)]


def of_any_route(count: int) -> list[Program]:
    return drawn([f"regions/{number}" for number in range(count)], routes=tuple(ROUTES))


def test_some_programs_are_drawn_with_regions_that_can_stand_where_they_do() -> None:
    programs = of_any_route(250)
    enclosed = [p for p in programs if regions(p)]
    assert 0.04 < len(enclosed) / len(programs) < 0.25
    assert {r.kind for p in enclosed for r in regions(p)} == set(REGIONS)
    for program in enclosed:
        route_of(program)
        assert parse(show(program)) == program
        check_cotangents(program, infer(program))
        for region in regions(program):
            assert region.body
            if REGIONS[region.kind].recomputes:
                assert not any(OPS[node.op].effects for node in program.nodes)


def test_a_region_that_is_idle_around_the_whole_body_changes_no_type_around_a_part() -> None:
    rng, seen = random.Random(1), Counter[bool]()
    for program in (p for p in of_any_route(120) if not regions(p)):
        region = Region("autocast", (("dtype", Dtype("bf16")),), program.body)
        left_out = changes_no_type(program, region)
        if left_out:
            types = infer(program)
            assert all(infer(replace(program, body=wrap(rng, program.body, region))) == types for _ in range(2))
            assert infer(replace(program, body=(region,))) == types
        seen[left_out] += 1
    assert seen[True] > 60
    assert seen[False] > 5
