"""The bench of other people's libraries: its cases, one that torch alone can run, and the figures of the rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benches import libraries
from benches.libraries import bare, checked, measure_libraries, shown, summary
from benches.library_cases import CASES, Call, Case, build

from fuzzer.language.errors import UsageError

OWN = {case.name: case for case in CASES if case.library == "torch"}


def row(case: str, outcome: str, **others: Any) -> dict[str, Any]:
    found = {"fallback": False, "error": 1.5, "detail": "", "bare_failed": ""}
    found |= {"bare_seconds": 2.5, "check_seconds": 3.5, "bare_cpu_seconds": 2.0, "check_cpu_seconds": 3.0}
    return {"case": case, "outcome": outcome} | found | others


def test_there_are_cases_enough_and_no_two_of_one_name() -> None:
    assert len(CASES) == len({str(case) for case in CASES}) >= 44
    assert len({case.library for case in CASES}) >= 16


@pytest.mark.parametrize("case", OWN.values(), ids=str)
def test_torchs_own_cases_run_in_eager_and_are_the_same_each_time(case: Case) -> None:
    first, second = (_tensors(build(case)) for _ in range(2))
    assert first
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _tensors(call: Call) -> list[torch.Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        outputs = torch.utils._pytree.tree_leaves(call.function(*call.args, **call.kwargs))
    return [x for x in outputs if isinstance(x, torch.Tensor)]


@pytest.mark.slow
def test_a_bare_call_counts_the_gradients_of_both_sides_and_leaves_none() -> None:
    call = build(OWN["function-of-ones-own"])
    found = bare(call)
    assert found["gradients"] == [2, 2]
    assert found["seconds"] > 0
    assert found["cpu_seconds"] > 0
    assert all(x.grad is None for x in call.args)


@pytest.mark.slow
def test_the_error_of_a_compiled_tensor_is_told_in_units_of_eagers() -> None:
    x = torch.linspace(0.1, 2, 7, requires_grad=True)
    found = checked(Call(lambda x: (x.sin() * 3).sum(), (x,)))
    assert found["outcome"] == "agrees"
    assert 0 < found["error"] < 4


def test_a_check_tells_a_verdict_a_refusal_and_an_exception_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call(torch.sin, (torch.ones(2),))
    for error, outcome in ((UsageError("no"), "refused"), (KeyError("no"), "raised")):

        def refuse(*args: Any, error: Exception = error, **kwargs: Any) -> None:
            raise error

        monkeypatch.setattr(libraries.backfuzz, "check", refuse)
        found = checked(call)
        assert found["outcome"] == outcome
        assert "no" in found["detail"]


def test_the_figures_add_up_and_a_refusal_has_no_ratio() -> None:
    rows = [
        row("a/one", "agrees"),
        row("a/two", "agrees", fallback=True, check_cpu_seconds=5.0),
        row("b/three", "differs", error=4.5, detail="x.grad\n is wrong"),
        row("b/four", "refused", detail="it cannot be judged"),
    ]
    assert summary(rows) == {
        "cases": 4, "libraries": 2, "verdicts": 3, "without_fallback": 2, "differs": 1,
        "largest_error": 4.5, "median_ratio": 1.5,
    }  # fmt: skip
    assert shown(rows[1]).split() == ["a/two", "agrees,", "fallback", "2.5", "3.5", "2.0", "5.0", "2.5"]
    assert shown(rows[2]).endswith("x.grad is wrong")
    assert shown(rows[3]).split()[:4] == ["b/four", "refused", "2.5", "3.5"]


def test_a_library_that_cannot_be_installed_leaves_a_row_that_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(libraries, "install", lambda folder, wanted: {"entmax": "ERROR: no such release"})
    figures = measure_libraries([case for case in CASES if case.library == "entmax"], tmp_path, 60)
    assert {row["outcome"] for row in figures["rows"]} == {"not installed"}
    assert figures["verdicts"] == 0


def test_no_environment_is_made_in_a_folder_that_holds_other_things(tmp_path: Any) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="no virtual environment"):
        libraries.install(tmp_path, [])
