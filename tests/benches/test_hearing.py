"""A fault in a known part of inductor is heard by every stage that has this part, and cannot act at those without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from benches.hearing import Heard, at_level, canary, figures, listen
from benches.parts import LEVELS, PARTS, rows_on

from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.text import parse
from fuzzer.stages import STAGES
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here

TASK = Task(Place(Subject("eager"), Subject("inductor")))
WRONG = Verdict(Signature("gradients_agree", "wrong", "backward", "scattered"), "x0.grad[2]: compiled 0, eager 1")
# For the quick tests.
FEW = (
    "saved_values_exchanged",
    "index_from_the_end_not_wrapped",
    "outer_loops_shared_across_iterations",
    "mask_of_indices_for_doubles",
)


def test_every_part_has_two_faults_or_is_one_of_three_passes() -> None:
    parts = [row.part for row in PARTS.values()]
    assert all(parts.count(part) >= 2 for part in parts if not part.startswith("pass "))
    assert len({part for part in parts if part.startswith("pass ")}) == 3
    assert [row.part for row in rows_on("cpu").values()].count("Triton") == 0
    assert [row.part for row in rows_on("cuda:1").values()].count("C++") == 0


def test_every_program_is_a_program() -> None:
    assert all(parse(row.program).outputs for row in PARTS.values())


def heard(name: str, levels: tuple[str, ...]) -> Heard:
    planted = {level: examine(at_level(TASK, level, canary(name)), PARTS[name].program) for level in levels}
    return Heard(name, PARTS[name], planted, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_stages_hear_what_they_have_and_nothing_acts_in_what_they_have_not(name: str) -> None:
    assert heard(name, tuple(STAGES)).wrongly() == []


def test_what_is_not_as_the_table_says_is_told() -> None:
    silent, right = Report("program(1)"), Report("program(1)", (WRONG,), fired=("view_from_the_start",))
    row, name = PARTS["view_from_the_start"], "view_from_the_start"

    def told(graph: Report, ir: Report, benign: Report) -> list[str]:
        return Heard(name, row, {"graph": graph, "ir": ir}, {"graph": benign}).wrongly()

    assert told(silent, right, silent) == []
    assert "at graph: wrong" in told(right, right, silent)[0]
    assert "at ir: agree" in told(silent, silent, silent)[0]
    assert "it must be heard" in told(silent, replace(right, fired=()), silent)[0]
    assert "not planted: wrong" in told(silent, right, right)[0]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", PARTS)
def test_a_fault_is_heard_where_it_must_be_and_silent_where_it_cannot_be(name: str, device: str) -> None:
    """On the CPU at the last stage; `scripts/bench hearing` asks every stage and the full compile."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if name not in rows_on(device):
        pytest.skip("another device's code generator")
    task, here = replace(TASK, place=Place(Subject("eager", device), Subject("inductor", device))), Here()
    (found,) = listen(task, [name], ("ir",) if device == "cpu" else LEVELS, here)  # type: ignore[arg-type]
    assert found.wrongly() == []


def test_the_figures_count_by_part() -> None:
    agree, wrong = Report("program(1)"), Report("program(1)", (WRONG,))
    benign = {"graph": agree, "ir": wrong}
    found = [
        Heard("tanh_linear", PARTS["tanh_linear"], {"graph": wrong, "ir": wrong}, benign),
        Heard("view_from_the_start", PARTS["view_from_the_start"], {"graph": agree, "ir": wrong}, benign),
        Heard("view_row_by_row", PARTS["view_row_by_row"], {"graph": agree, "ir": agree}, {}),
    ]
    told = figures(found)
    assert told["heard"]["decomposition"] == {"graph": "1 of 1", "ir": "1 of 1"}
    assert told["heard"]["wrapper"] == {"graph": "0 of 2", "ir": "1 of 2"}
    assert (told["faults"], told["benign_silent"], told["benign"]) == (3, 2, 4)
    assert told["unexpected"]
