"""What a program exercises, before it is compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.coverage.features import Words, feature_ids, layout_words
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.text import parse
from fuzzer.trial.draw import draw_program
from fuzzer.trial.exercise import trial_words
from fuzzer.trial.pipeline import run_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Task

ROOT = Path(__file__).parents[2]
EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")))


def words(text: str) -> Words:
    return trial_words(run_reference(parse(text), EAGER, Journal(None)))


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
    assert layout_words(shape, stride, offset) == told


def test_what_the_backward_reads_of_the_forward_is_saved() -> None:
    found = words(
        'program(1)\nroute("autograd")\nx0 = leaf(f32[4], seed=1)\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))'
    )
    assert "saved exp > mul 1: contiguous" in found["edge"]
    assert "forward leaf > exp 0: contiguous" in found["edge"]
    assert "backward cotangent > mul 0: contiguous" in found["edge"]


def drawn_features() -> list[dict[str, list[int]]]:
    found = []
    for index in range(12):
        task = replace(EAGER, seed=7, routes=("autograd", "vjp", "accumulate"))
        words = trial_words(run_reference(draw_program(task, index), task, Journal(None)))
        found.append({family: sorted(numbers) for family, numbers in feature_ids(words).items()})
    return found


@pytest.mark.slow
def test_features_are_the_same_in_every_process() -> None:
    code = "import json; from tests.coverage.test_features import drawn_features; print(json.dumps(drawn_features()))"
    other = {**os.environ, "PYTHONHASHSEED": "1", "MALLOC_PERTURB_": "165", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, env=other,
                          capture_output=True, text=True, check=True)  # fmt: skip
    here = drawn_features()
    assert json.loads(done.stdout.splitlines()[-1]) == here
    assert all(one["operand"] for one in here)


def test_drawing_again_gives_the_same_features() -> None:
    task = replace(EAGER, seed=3)
    once, twice = (
        feature_ids(trial_words(run_reference(draw_program(task, 5, 2), task, Journal(None)))) for _ in range(2)
    )
    assert once == twice
    assert json.dumps({family: sorted(found) for family, found in once.items()})
