"""Where experiments run: at the cheapest stage, and what convicts there once more of the built program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fuzzer.judgement.verdict import Finding, Verdict
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from tests.diagnosis.cases import PROGRAM, SIGNATURE, FakePool, finding, run, wrong_if


def test_changes_are_asked_at_the_first_stage_that_shows_it_and_what_convicts_of_the_built_program(quick: None) -> None:
    asked: list[tuple[str, bool]] = []

    def rule(task: Task, settings: dict[str, Any]) -> bool:
        off = settings.get("functorch.donated_buffer") is False
        asked.append((task.place.subject.backend, off))
        return task.place.subject.backend in ("inductor:ir", "inductor") and not off

    found = run(wrong_if(rule))
    assert [backend for backend, off in asked if off] == ["inductor:ir", "inductor"]
    assert found.diagnosis["culprit"].startswith("donated buffers")
    assert "built: functorch.donated_buffer=False: agree" in found.diagnosis["excludes"]


def test_what_the_built_program_acquits_is_no_culprit(quick: None) -> None:
    def rule(task: Task, settings: dict[str, Any]) -> bool:
        off = settings.get("functorch.donated_buffer") is False
        return task.place.subject.backend == "inductor" or (task.place.subject.backend == "inductor:ir" and not off)

    found = run(wrong_if(rule))
    assert found.ablation["functorch.donated_buffer=False"] == "wrong"
    assert not found.diagnosis["culprit"].startswith("donated")


def test_functionalization_is_asked_of_outputs_alone(quick: None) -> None:
    program = PROGRAM.replace("v0 = tanh(x0)\nbackward(v0", "v0 = tanh(x0)\nv1 = square_(v0)\nbackward(v1")
    assert program != PROGRAM
    outputs = replace(SIGNATURE, oracle="outputs_agree", direction="forward")
    wrong = Verdict(SIGNATURE, "it is wrong"), Verdict(outputs, "it is wrong")

    def diagnosis(tensors: str) -> Finding:
        def answer(function: Any, task: Task, what: Any) -> Report:
            if function is not examine:
                return Report(what, notes={"tensors": tensors})
            late = task.place.subject.backend != "eager"
            return Report(what, wrong[: 1 if task.lacking else 2] if late else ())

        return run(FakePool(answer), finding(program, outputs if "v1" in tensors else SIGNATURE))

    assert diagnosis("v1, x0.grad").diagnosis["culprit"].startswith("functionalization of writes in place")
    assert "only gradients differ" in diagnosis("x0.grad").ablation["functionalization off"]


def test_a_stage_that_shows_something_else_is_not_the_one_where_changes_are_asked(quick: None) -> None:
    other = Verdict(replace(SIGNATURE, oracle="metadata_agrees"), "it is another")
    asked: set[str] = set()

    def answer(function: Any, task: Task, what: Any) -> Report:
        if function is not examine or task.place.subject.backend == "eager":
            return Report(what)
        if "donated_buffer" in what:
            asked.add(task.place.subject.backend)
        early = task.place.subject.backend == "aot_eager"
        return Report(what, (other if early else Verdict(SIGNATURE, "it is wrong"),))

    found = run(FakePool(answer))
    assert found.diagnosis["stage"].startswith("aot_eager is the first")
    assert found.diagnosis["excludes"].endswith("Asked at aot_eager_decomp_partition")
    assert not asked  # what acts later
