"""What a program exercises, before it is compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.execution.guide import exercised, with_seen_cotangents
from fuzzer.execution.messages import Place, Subject
from fuzzer.execution.worker import Journal, Task, begin, draw
from fuzzer.features import Words, hashed, layout
from fuzzer.frontier import MOST, PLACES, Seen, novelty
from fuzzer.text import parse

ROOT = Path(__file__).parent.parent
EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")))
BROADCAST = """program(1)
route("ROUTE")
x0 = leaf(f32[4, 13, 33], seed=1)
x1 = leaf(f32[4, 6, 33], seed=2)
v0 = slice_scatter(x0, x1, dim=1, start=0, end=6)
END
"""
SUMMED = 'v1 = sum(v0, dim=1)\nbackward(v1, cotangent(f32[4, 33], values="ones"))'
DECLARED = "backward(v0, cotangent(f32[4, 13, 33], stride=(33, 0, 1)))"
ARRIVES = "backward cotangent > slice_scatter 0: broadcast"


def words(text: str) -> Words:
    return exercised(begin(parse(text), EAGER, Journal(None)))


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "told"),
    [
        ((), (), 0, "contiguous"),
        ((2, 3), (3, 1), 0, "contiguous"),
        ((2, 3), (3, 1), 4, "contiguous at offset"),
        ((2, 1, 3), (3, 99, 1), 0, "contiguous size 1"),
        ((2, 3), (1, 2), 0, "permuted"),
        ((2, 3), (0, 1), 0, "broadcast"),
        ((1, 3), (0, 1), 0, "contiguous size 1"),
        ((2, 3), (4, 1), 0, "gaps"),
        ((3, 2), (1, 1), 0, "overlapping"),
        ((2, 0), (1, 1), 0, "empty"),
    ],
)
def test_every_class_of_layout_has_its_word(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, told: str
) -> None:
    assert layout(shape, stride, offset) == told


@pytest.mark.parametrize(("route", "end", "there"), [("autograd", SUMMED, True), ("vjp", SUMMED, True),
                         ("vjp", DECLARED, True), ("autograd", DECLARED, False)])  # fmt: skip
def test_a_cotangent_counts_as_the_compiler_will_see_it(route: str, end: str, there: bool) -> None:
    found = words(BROADCAST.replace("ROUTE", route).replace("END", end))
    assert (ARRIVES in found["edge"]) == there
    assert ("backward slice_scatter 0: f32 rank 3 broadcast" in found["operand"]) == there
    assert "forward slice_scatter 0: f32 rank 3 contiguous" in found["operand"]


def test_only_a_declared_layout_that_does_not_act_is_replaced() -> None:
    program = parse(BROADCAST.replace("ROUTE", "autograd").replace("END", SUMMED))
    assert with_seen_cotangents(program) == program


def test_what_the_backward_reads_of_the_forward_is_saved() -> None:
    found = words(
        'program(1)\nroute("autograd")\nx0 = leaf(f32[4], seed=1)\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))'
    )
    assert "saved exp > mul 1: contiguous" in found["edge"]
    assert "forward leaf > exp 0: contiguous" in found["edge"]
    assert "backward cotangent > mul 0: contiguous" in found["edge"]


PRINT = """
import json
from dataclasses import replace
from tests.test_features import EAGER, Journal, begin, draw, exercised, hashed
found = []
for index in range(12):
    task = replace(EAGER, seed=7, routes=("autograd", "vjp", "accumulate"))
    words = exercised(begin(draw(task, index), task, Journal(None)))
    found.append({family: sorted(numbers) for family, numbers in hashed(words).items()})
print(json.dumps(found))
"""


def test_features_are_the_same_in_every_process() -> None:
    def run(salt: str) -> list[dict[str, list[int]]]:
        environment = {**os.environ, "PYTHONHASHSEED": salt, "MALLOC_PERTURB_": "165"}
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", PRINT], cwd=ROOT, env=environment,
                              capture_output=True, text=True, check=True)  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])

    first, second = run("1"), run("2")
    assert first == second
    assert all(one["operand"] for one in first)


def test_a_feature_that_more_programs_showed_is_less_novel() -> None:
    seen, features = Seen(), {"operand": frozenset({1, 2}), "edge": frozenset({PLACES + 3}), "other": frozenset({9})}
    assert novelty([1, 2, 3, 9], seen, 0.0) == 4
    seen.add(features)
    assert novelty([1, 2, 3], seen, 0.0) == 1.5
    assert novelty([9], seen, 0.0) == 1, "only what is known before a compile is counted"
    assert novelty([1, 2, 3, 5], seen, 1.0) == 2.5 / 4
    assert novelty([], seen) == 0
    for _ in range(MOST + 5):
        seen.add(features)
    assert Seen(seen.packed())[1] == MOST


def test_drawing_again_gives_the_same_features() -> None:
    task = replace(EAGER, seed=3)
    once, twice = (hashed(exercised(begin(draw(task, 5, 2), task, Journal(None)))) for _ in range(2))
    assert once == twice
    assert json.dumps({family: sorted(found) for family, found in once.items()})
