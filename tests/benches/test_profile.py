"""The bench that says where a program's CPU time goes."""

from __future__ import annotations

import pytest
from benches import profile
from benches.profile import OURS, PHASES, Stopwatch, Timed, profile_summary, timing

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.routes import ANY_BACKEND
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import Pool
from tests.benches.here import Here

EAGER = Task(Place(Subject("eager"), Subject("eager")), seed=1, routes=("autograd", "vjp"))


def test_time_counts_for_the_innermost_phase_and_child_processes_for_the_kernels() -> None:
    now, children = [0.0], [0.0]
    watch = Stopwatch(lambda: now[0], lambda: children[0])

    def passes(seconds: float, compiling: float = 0.0) -> None:
        now[0] += seconds
        children[0] += compiling

    passes(1)
    watch.enter("run")
    passes(2)
    for name in ("dynamo", "build_guards", "backend_compile", "inductor_compile", "GraphLowering.run", "compile_file"):
        watch.enter_told(name)
        passes(4, compiling=0.5 if name == "compile_file" else 0.0)
    for _ in range(6):
        watch.leave()
    passes(8)
    watch.leave()
    passes(16)
    watch.leave()
    assert watch.seconds == {"other": 17, "run": 10, "dynamo": 8, "aot": 4, "inductor": 8, "kernels": 4.5}


def test_a_function_that_raises_leaves_its_phase() -> None:
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError):
        watch.wrapped(lambda: 1 / 0, "run")()
    assert watch.inside == ["other"]


def test_functions_are_as_they_were_when_the_bench_is_done() -> None:
    before = [getattr(module, name) for module, name, _ in OURS]
    with timing(Stopwatch()):
        assert all(getattr(module, name) is not f for (module, name, _), f in zip(OURS, before, strict=True))
    assert [getattr(module, name) for module, name, _ in OURS] == before
    assert {phase for _, _, phase in OURS} | set(profile.TOLD.values()) <= set(PHASES)


def test_every_phase_of_ours_is_seen_where_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "Pool", Here)
    figures = profile.measure_profile(EAGER, 4, 1)
    assert figures["programs"] == 4
    ours = ("generation", "trace", "features", "eager", "run", "oracles", "main")
    assert all(figures["phases"][name] > 0 for name in ours)
    assert all(figures["phases"][name] == 0 for name in ("dynamo", "aot", "inductor"))
    assert sum(figures["shares"].values()) == pytest.approx(1, abs=0.01)
    assert figures["cpu_seconds_per_program"] == pytest.approx(sum(figures["phases"].values()), rel=0.01)


def test_the_same_programs_are_measured_again_under_another_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "Pool", Here)
    figures = profile.measure_profile(EAGER, 3, 1, (("functorch.cse", False),))
    assert figures["beside"]["settings"] == {"functorch.cse": False}
    assert figures["beside"]["programs"] == figures["programs"] == 3
    assert set(figures["beside"]["phases"]) == set(figures["phases"])


def test_what_was_rejected_does_not_count() -> None:
    figures = profile_summary(
        [Timed("a", phases={"run": 3.0}), Timed("", rejected="no", phases={"run": 5.0}), Report("")], 1.0
    )
    assert (figures["programs"], figures["cpu_seconds_per_program"]) == (1, 4.0)
    assert (figures["phases"]["run"], figures["shares"]["main"]) == (3.0, 0.25)


@pytest.mark.slow
def test_a_compile_shows_every_phase() -> None:
    with Pool(1, ["cpu"]) as pool:
        reports = profile.explored(pool, Task(routes=ANY_BACKEND), range(2))
    spent = profile_summary(reports, 0.0)["phases"]
    assert all(spent[name] > 0 for name in PHASES)
    assert spent["kernels"] > spent["dynamo"] > spent["messages"]
