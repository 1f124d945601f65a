"""Rare faults: each turns its own program wrong, says so, and leaves the program alone where it is not planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benches.conditions import broadcast, known, permuted
from benches.distortions import last_two_exchanged, one_step_back, sides_exchanged
from benches.faults import has_slice_scatter
from benches.miswritten import CODE
from benches.rare import ALL, PLANTS, RARE

from fuzzer.judgement.planted import planted
from fuzzer.judgement.trial import Place, Subject
from fuzzer.language import private
from fuzzer.language.text import parse, show
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Task

CORPUS = Path(__file__).parents[2] / "corpus" / "rare"
QUICK = "tanh_of_a_broadcast_gradient"  # compiled in the quick tests, for all
# A GPU's graphs hold no bmm of one matrix: inductor's joint pass makes an mm of it (torch 2.11).
UNREACHED_ON_GPU = ("product_of_one_matrix_in_float64",)


def text_of(name: str) -> str:
    return (CORPUS / f"{name}.prog").read_text()


def test_there_is_a_canonical_program_for_every_fault_and_no_other() -> None:
    assert {path.stem for path in CORPUS.glob("*.prog")} == set(PLANTS)
    assert all(show(parse(text_of(name))) == text_of(name) for name in PLANTS)


def test_there_are_enough_to_compare_with() -> None:
    assert len(RARE) >= 20
    assert len(CODE) >= 6
    assert len(PLANTS) == len(RARE) + len(CODE)


def test_all_are_planted_at_once_and_taken_out_again() -> None:
    from torch._inductor import compile_fx
    from torch._inductor.codegen import cpp
    from torch._inductor.lowering import lowerings

    softmax = torch.ops.aten._softmax_backward_data.default
    classes = (cpp.CppOverrides, cpp.CppVecOverrides, cpp.CppVecKernel, cpp.CppTile2DKernel, cpp.CppScheduling)

    def state() -> tuple[Any, ...]:
        methods = [dict(vars(kind)) for kind in classes]
        return dict(lowerings), private.decomposition(softmax), compile_fx._compile_fx_inner, methods

    before = state()
    with planted(ALL, "subject"):
        assert all(now != then for now, then in zip(state(), before, strict=True))
    assert state() == before


def test_a_run_says_which_of_all_planted_faults_acted() -> None:
    place = Place(Subject("eager", "cpu"), Subject("inductor", "cpu")).at("ir")
    report = examine(Task(place=place, canary=ALL), text_of(QUICK))
    assert (report.verdict, report.fired) == ("wrong", (QUICK,))
    assert examine(Task(place=place, fresh=True), text_of(QUICK)).fired == ()


@pytest.mark.parametrize(
    ("shape", "stride", "is_broadcast", "is_permuted"),
    [
        ((4, 5), (5, 1), False, False),
        ((4, 5), (1, 4), False, True),
        ((4, 5), (0, 1), True, False),
        ((1, 5), (0, 1), False, False),
        ((4, 1), (1, 9), False, False),
    ],
)
def test_layouts_are_told_apart(
    shape: tuple[int, ...], stride: tuple[int, ...], is_broadcast: bool, is_permuted: bool
) -> None:
    t = torch.empty_strided(shape, stride)
    assert (known(t), broadcast(t), permuted(t)) == (True, is_broadcast, is_permuted)


class Box:
    """What inductor lowers, as far as sizes go."""

    def __init__(self, *size: int):
        self.size = size

    def get_size(self) -> tuple[int, ...]:
        return self.size


def test_arguments_of_lowerings_change_only_where_they_are_to() -> None:
    a, b, c, wide = Box(2), Box(2), Box(2), Box(3)
    assert last_two_exchanged([a, b, c], 0) == ([a, c, b], 0)
    assert last_two_exchanged([a, b], 0) is None
    assert last_two_exchanged([a, b, wide], 0) is None
    assert sides_exchanged(a, [-1, -2, 3, 4]) == (a, [-2, -1, 3, 4], 0)
    assert sides_exchanged(a, [0, 2]) is None
    assert one_step_back(a, b, 0, 1, 8, 2) == (a, b, 0, 0, 7, 2)
    assert one_step_back(a, b, 0, 1, 8, 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", RARE)
def test_a_fault_turns_its_program_wrong_no_other_acts_and_without_it_the_program_agrees(
    name: str, device: str
) -> None:
    """On the CPU before code is built, where each of them acts already."""
    if device == "cuda" and (not torch.cuda.is_available() or name in UNREACHED_ON_GPU):
        pytest.skip("no CUDA device, or the fault cannot act there")
    place = Place(Subject("eager", device), Subject("inductor", device))
    task = Task(place=place.at("ir") if device == "cpu" else place, fresh=True)
    planted_, benign = (examine(replace(task, canary=canary), text_of(name)) for canary in (ALL, ""))
    assert (planted_.verdict, planted_.fired) == ("wrong", (name,))
    own = has_slice_scatter() and name in ("layout_of_select_scatter", "layout_of_diagonal_scatter")
    assert benign.verdict == ("wrong" if own else "agree"), benign.rejected  # torch's own fault
    assert planted_.stage == benign.stage == task.place.subject.stage
