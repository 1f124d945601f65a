"""Random generators give again what they would have given."""

from __future__ import annotations

import random

import numpy
import torch

from fuzzer.language.randomness import random_state, set_random_state


def test_torch_python_and_numpy_draw_again_what_they_drew() -> None:
    state = random_state()
    drawn = float(torch.rand(())), random.random(), numpy.random.rand()
    set_random_state(state)
    assert (float(torch.rand(())), random.random(), numpy.random.rand()) == drawn
