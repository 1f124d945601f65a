"""Sorting: the first stage that shows a suspect, and the statements that it needs there."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.campaign.suspects.sort import LEGAL, STAGE, core_of, is_sortable, keep_differing, places, sort
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Comparison, Signature, Verdict
from fuzzer.language.infer import infer
from fuzzer.language.text import parse, show
from fuzzer.workers.messages import Task
from minimizer.rewrite import Types
from tests.campaign.fakes import OTHER, SIGNATURE

DOUBLED = Signature("gradients_agree", "wrong", "backward", "constant-ratio")
LONG = """program(1)
route("autograd")
x0 = leaf(f32[4], seed=1)
x1 = leaf(f32[4], seed=2)
v0 = tanh(x0)
v1 = mul(v0, x0)
v2 = exp(x1)
backward(v1, cotangent(f32[4], seed=3))
backward(v2, cotangent(f32[4], seed=4))
"""


def test_stages_come_in_the_order_of_the_compiler_and_its_own_place_where_nothing_is_built() -> None:
    def backends(backend: str) -> list[str]:
        return [str(place.subject) for place in places(Place(Subject("eager"), Subject(backend, "cpu", 2)))]

    before = ["eager@cpu/2", "aot_eager@cpu/2", "aot_eager_decomp_partition@cpu/2"]
    assert backends("inductor") == [*before, "inductor:graph@cpu/2", "inductor:ir@cpu/2"]
    assert backends("aot_eager") == before[:2]
    assert backends("flag_gems") == ["flag_gems@cpu/2"]


def test_what_only_code_shows_or_ends_the_worker_is_not_sorted() -> None:
    assert is_sortable(SIGNATURE, Place())
    assert not is_sortable(OTHER, Place())
    assert not is_sortable(replace(SIGNATURE, verdict="nondeterministic"), Place())
    assert not is_sortable(replace(SIGNATURE, oracle="settings_agree"), Place())


def test_a_suspect_is_cut_to_what_it_needs_at_the_first_stage_that_shows_it() -> None:
    report = sort(Task(canary="gradients_doubled"), (LONG, DOUBLED, 60.0))
    core = core_of(report, DOUBLED)
    assert core is not None
    assert (core.stage, len(core.program.nodes)) == ("eager", 1)
    assert core.verdict.comparisons
    assert core.before.startswith("x")


def test_what_shows_at_no_stage_has_no_core() -> None:
    report = sort(Task(place=Place(Subject("eager"), Subject("aot_eager"))), (LONG, DOUBLED, 60.0))
    assert (report.text, report.notes) == (LONG, {})
    assert core_of(report, DOUBLED) is None
    assert not {STAGE, LEGAL} & {*report.notes}


def test_the_first_cut_keeps_the_outputs_that_depend_on_the_differing_tensors() -> None:
    program = parse(LONG)
    types = Types(infer(program))

    def kept(name: str) -> list[str]:
        verdict = Verdict(DOUBLED, "", (Comparison(name, (0,), 1.0, 2.0, 1.0, 0.1, 4, 4),))
        return [show(cut) for cut in keep_differing(verdict)(program, types)]

    [of_leaf], [of_output] = kept("x0.grad"), kept("v2")
    assert [node.op for node in parse(of_leaf).nodes] == ["tanh", "mul"]
    assert [node.op for node in parse(of_output).nodes] == ["exp"]
    assert list(keep_differing(Verdict(DOUBLED, ""))(program, types)) == []
