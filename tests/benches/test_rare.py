"""Rare faults: each turns its own program wrong, says so, and leaves the program alone where it is not planted."""

from __future__ import annotations

from collections.abc import Iterator
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
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool

CORPUS = Path(__file__).parents[2] / "corpus" / "rare"
QUICK = "tanh_of_a_broadcast_gradient"  # compiled in the quick tests, for all
UNBUILDABLE = ("mask_of_indices_for_doubles",)
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
    place = Place(Subject("eager", "cpu"), Subject("inductor", "cpu"))
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


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def found(request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, str], Report]]:
    """Every program with all faults planted, and with none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    task = Task(place=Place(Subject("eager", request.param), Subject("inductor", request.param)), fresh=True)
    with Pool(2, [request.param]) as pool:
        asked = {
            (name, canary): pool.submit(examine, replace(task, canary=canary), text_of(name))
            for name in (PLANTS if request.param == "cpu" else RARE.keys() - UNREACHED_ON_GPU)
            for canary in (ALL, "")
        }
        yield {key: pool.result(future, task) for key, future in asked.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first waits for all
@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_turns_its_program_wrong_and_no_other_acts(name: str, found: dict[tuple[str, str], Report]) -> None:
    if (name, ALL) not in found:
        pytest.skip("it cannot act on this device")
    shown = "raises" if name in UNBUILDABLE else "wrong"
    assert (found[name, ALL].verdict, found[name, ALL].fired) == (shown, (name,))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTS)
def test_without_the_fault_its_program_agrees(name: str, found: dict[tuple[str, str], Report]) -> None:
    if (name, "") not in found:
        pytest.skip("it cannot act on this device")
    own = has_slice_scatter() and name in ("layout_of_select_scatter", "layout_of_diagonal_scatter")
    assert found[name, ""].verdict == ("wrong" if own else "agree"), found[name, ""].rejected  # torch's own fault
