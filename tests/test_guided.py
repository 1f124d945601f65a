"""Guided campaigns: what is chosen, that it is logged, and that the log gives the same programs."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import cli
from fuzzer.campaign import Campaign, Plan
from fuzzer.corpus import Corpus
from fuzzer.execution import guide, watch
from fuzzer.execution.guide import CANDIDATES, Chosen, Offer, explore_again, explore_heard, explore_rarest
from fuzzer.execution.messages import Place, Report, Subject, Trial, UsageError
from fuzzer.execution.worker import Refused, Task, draw, explore, settled, sketch
from fuzzer.frontier import PLACES, Seen
from fuzzer.guidance import ARMS, Offers
from fuzzer.knobs import Knobs
from fuzzer.program import Program
from fuzzer.schedule import CREDITS, LOG, Again, Fresh, Guided, read_log
from fuzzer.text import parse, show
from fuzzer.verdict import Signature, Verdict
from fuzzer.vocabulary import SETS

EAGER = Task(place=Place(Subject("eager", "cpu"), Subject("eager", "cpu")), seed=11, routes=("autograd", "vjp"))


FRESH = (Offer(),) * CANDIDATES


def test_the_rarest_of_the_candidates_is_compiled() -> None:
    report = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    assert len(report.scores) == CANDIDATES
    ran = [score for score in report.scores if score is not None]
    assert report.scores[report.candidate] == max(ran) or report.redrawn
    assert report.text == show(draw(EAGER, 3, report.candidate))
    assert report.features["operand"]
    assert report.features["edge"]


def test_what_was_met_often_is_chosen_no_more() -> None:
    fresh = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    seen = Seen()
    for _ in range(50):
        seen.add(fresh.features)
    other = explore_rarest(EAGER, (3, seen.packed(), FRESH))
    assert other.scores[fresh.candidate] < fresh.scores[fresh.candidate]  # type: ignore[operator]
    assert other.candidate != fresh.candidate


def test_the_choice_depends_on_the_task_and_the_counts_alone() -> None:
    seen = Seen()
    seen.counts[:] = bytes(i % 7 for i in range(PLACES))
    once, twice = (explore_rarest(EAGER, (5, seen.packed(), FRESH)) for _ in range(2))
    assert (once.text, once.scores, once.features) == (twice.text, twice.scores, twice.features)


def test_a_candidate_in_whose_gradients_no_fault_could_show_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    best = explore_rarest(EAGER, (3, Seen().packed(), FRESH)).candidate
    deaf = show(draw(EAGER, 3, best))
    monkeypatch.setattr(guide, "is_heard", lambda trial, journal: show(trial.program) != deaf)
    report = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    assert report.candidate != best
    assert report.redrawn == 1
    monkeypatch.setattr(guide, "is_heard", lambda trial, journal: False)
    assert explore_rarest(EAGER, (3, Seen().packed(), FRESH)).candidate == best, "the rarest all the same"


def test_a_blind_campaign_can_be_watched_without_changing_its_programs() -> None:
    for n in range(6):
        watched, plain = explore_heard(EAGER, (n, Seen().packed())), explore(EAGER, n)
        assert (watched.text, watched.redrawn, watched.rejected) == (plain.text, plain.redrawn, plain.rejected)
        assert watched.features or watched.rejected
        assert watched.rejected or watched.text == show(draw(EAGER, n, watched.candidate))


def test_a_program_of_which_every_candidate_is_refused_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("it raised")

    monkeypatch.setattr(guide, "sketch", refuse)
    report = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    assert (report.verdict, report.rejected, report.scores) == ("rejected", "it raised", (None,) * CANDIDATES)


def test_candidates_are_only_recorded_and_the_chosen_one_runs_again_unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def once(trial: Trial, *rest: Any) -> Trial:
        ran.append(show(trial.program))
        return settled(trial, *rest)

    monkeypatch.setattr(guide, "settled", once)
    report = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    assert (report.verdict, ran) == ("agree", [report.text])

    def refuse(*_: Any) -> Any:
        raise Refused("it raised")

    monkeypatch.setattr(guide, "settled", refuse)
    again = explore_rarest(EAGER, (3, Seen().packed(), FRESH))
    assert (again.verdict, again.rejected, again.text) == ("rejected", "it raised", report.text)


def test_candidates_run_on_the_cpu_and_the_chosen_one_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = replace(EAGER, place=Place(Subject("eager", "cpu:0"), Subject("eager", "cpu:0")))
    ran: list[tuple[str, str]] = []
    refused = ""

    def on(program: Program, task: Task, journal: Any) -> Trial:
        ran.append((task.place.reference.device, show(program)))
        if ran[-1] == ("cpu:0", refused):
            raise Refused("it raised")
        return sketch(program, task, journal)

    monkeypatch.setattr(guide, "sketch", on)
    best = explore_rarest(elsewhere, (3, Seen().packed(), FRESH))
    assert (best.verdict, [device for device, _ in ran]) == ("agree", ["cpu"] * CANDIDATES + ["cpu:0"])
    assert ran[-1][1] == best.text == show(draw(elsewhere, 3, best.candidate))
    refused = best.text
    second = explore_rarest(elsewhere, (3, Seen().packed(), FRESH))
    assert (second.verdict, second.candidate != best.candidate) == ("agree", True)

    def nowhere(program: Program, task: Task, journal: Any) -> Trial:
        if task.place.reference.device != "cpu":
            raise Refused("it raised")
        return sketch(program, task, journal)

    monkeypatch.setattr(guide, "sketch", nowhere)
    last = explore_rarest(elsewhere, (3, Seen().packed(), FRESH))
    assert (last.rejected, last.text) == ("it raised", show(draw(elsewhere, 3, last.candidate)))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.ring", lambda *_: None)
    return Plan(EAGER, 2, programs=6, db=tmp_path / "ledger.db", folder=tmp_path / "own", guidance=ARMS["trace"])


def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of the campaigns that follow, as they are counted."""
    found: list[str] = []
    before = Campaign._take

    def take(self: Campaign, *given: Any) -> Report:
        report = before(self, *given)
        found.append(report.text)
        return report

    monkeypatch.setattr(Campaign, "_take", take)
    return found


@pytest.mark.parametrize("arm", ["trace", "mutation", "price"])
def test_a_log_gives_the_very_programs_again(plan: Plan, monkeypatch: pytest.MonkeyPatch, arm: str) -> None:
    monkeypatch.setattr(Offers, "_mutates", lambda self: arm == "mutation" and len(self.corpus.kept) > 1)
    found = texts(monkeypatch)
    plan = replace(plan, guidance=ARMS[arm], programs=8)
    said: list[str] = []
    Campaign(plan, said.append).run()
    chosen = sorted(found)
    found.clear()
    (log,) = plan.folder.glob(f"campaigns/*/{LOG}")
    rows = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert sorted(row["index"] for row in rows) == list(range(8))
    assert all(len(row["novelty"]) == CANDIDATES and row["class"] for row in rows)
    assert rows[0]["new"] > 0
    assert all(row["cpu"] > 0 for row in rows)
    credits = json.loads(log.with_name(CREDITS).read_text())
    assert sum(c["new"] > 0 for c in credits["op"].values()) > 5
    assert bool(credits["mutator"]) == (arm == "mutation")
    assert any("features, " in line and "programs kept" in line for line in said)
    assert any("knobs" in row for row in rows) == any("mutator" in row for row in rows) == (arm == "mutation")
    task, again = read_log(log, Task(place=EAGER.place))
    assert task == EAGER
    Campaign(replace(plan, task=task, guidance=None, again=tuple(again)), print).run()
    assert sorted(found) == [text for text in chosen if text]


def test_unguided_programs_are_those_of_their_numbers(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    found = texts(monkeypatch)
    Campaign(replace(plan, guidance=None), print).run()
    assert sorted(found) == sorted(explore(EAGER, n).text for n in range(6))
    assert not list(plan.folder.glob(f"campaigns/*/{LOG}"))


def empty(folder: Path) -> Corpus:
    return Corpus(folder / "corpus", {"torch": "2.13.0"}).start()


class Asked:
    """A pool that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any) -> None:
        self.asked.append(given)


def test_what_ran_can_be_run_again_and_what_was_refused_is_left_out(tmp_path: Path) -> None:
    schedule, pool = Guided(EAGER, tmp_path, empty(tmp_path), ARMS["mutation"]), Asked()
    text = show(draw(EAGER, 4, 1))
    died = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    for n in range(4):
        schedule.submit(pool, EAGER, n)  # type: ignore[arg-type]
    turned = Knobs(nodes=0.0, family="loss")
    schedule.pending[2] = (Offer(), Offer(turned))
    schedule.pending[3] = (Offer(mutator="resize", parent=text, donor=text),)
    schedule.learn(0, Report(text, (died,)))
    schedule.learn(1, Report("", rejected="every one", scores=(None, None)))
    schedule.learn(2, Report(text, scores=(1.0, 2.0), candidate=1))
    schedule.learn(3, Report(text, scores=(1.0,)))
    task, found = read_log(tmp_path / LOG, EAGER)
    assert task == EAGER
    assert found == [Chosen(0, text=text), Chosen(2, 1, turned), Chosen(3, text=text)]
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert rows[0]["guidance"]["mutation"] == ARMS["mutation"].mutation
    assert [row.get("mutator") for row in rows[1:]] == [None, None, None, "resize"]
    again, fresh = Asked(), Asked()
    Again(found).submit(again, EAGER, 1)  # type: ignore[arg-type]
    assert again.asked == [(explore_again, EAGER, found[1])]
    Fresh().submit(fresh, EAGER, 9)  # type: ignore[arg-type]
    assert fresh.asked == [(explore, EAGER, 9)]


PARENT = """program(1)
route("autograd")
x0 = leaf(f32[4, 6], seed=1)
v0 = exp(x0)
v1 = softmax(v0, dim=1)
backward(v1, cotangent(f32[4, 6], seed=2))
"""


def bred(mutator: str) -> Offer:
    return Offer(mutator=mutator, parent=PARENT, donor=PARENT)


def test_mutants_compete_with_fresh_programs_and_run_again_from_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = (bred("append_reduction"), bred("toggle_requires_grad"), Offer(Knobs(nodes=0.0)), bred("havoc"))
    report, again = (explore_rarest(EAGER, (3, Seen().packed(), offers)) for _ in range(2))
    assert (report.text, report.scores) == (again.text, again.scores)
    assert [score is None for score in report.scores] == [False, True, False, False], "no gradient is left"
    assert [one.refused for one in report.tried] == [False, True, False, False]
    assert {"exp", "softmax"} <= set(report.tried[0].ops)
    assert all(one.seconds > 0 for one in report.tried)
    for n in (0, 2):
        alone = explore_rarest(EAGER, (3, Seen().packed(), (*offers[:n], offers[n])))
        assert alone.scores[n] == report.scores[n], "each is made by itself"
    monkeypatch.setattr(guide, "is_heard", lambda trial, journal: True)
    for n in (0, 2, 3):
        favoured = tuple(replace(offer, weight=100.0 if n == i else 1.0) for i, offer in enumerate(offers))
        assert explore_rarest(EAGER, (3, Seen().packed(), favoured)).candidate == n
    mutant = explore_rarest(EAGER, (3, Seen().packed(), offers[:1]))
    assert len(parse(mutant.text).nodes) == 3
    assert explore_again(EAGER, Chosen(3, text=mutant.text)).text == mutant.text


def test_code_from_a_cache_shows_nothing_and_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant may be compiled to the very graphs of its parent: AOTAutograd then hands inductor no graph."""
    hooks: list[Any] = []

    def hooked(hook: Any) -> contextlib.AbstractContextManager[None]:
        hooks.append(hook)
        return contextlib.nullcontext()

    monkeypatch.setattr(watch, "inner_graphs", hooked)
    monkeypatch.setattr(watch, "output_code", hooked)
    with watch.watched("autograd", lambda: "forward") as seen:
        hooks[1]("def call(args): ...")
    assert not any(seen.words().values())


def test_a_mutant_is_such_a_program_as_the_campaign_draws() -> None:
    fixed = (("inductor.max_fusion_size", 4),)
    report = explore_rarest(replace(EAGER, fixed=fixed), (3, Seen().packed(), (bred("append_reduction"),)))
    assert parse(report.text).settings == fixed
    few = replace(EAGER, ops=("exp", "softmax", *SETS["core"]))
    grown = [explore_rarest(few, (n, Seen().packed(), (bred("insert_node"),))) for n in range(8)]
    texts = [report.text for report in grown if not report.rejected]
    assert len(texts) > 3
    assert all(node.op in few.ops for text in texts for node in parse(text).nodes)
    alone = replace(EAGER, routes=("autograd",))
    for n in range(4):
        refused = explore_rarest(alone, (n, Seen().packed(), (bred("reroute"),))).rejected
        assert refused == "reroute made no other program"


def test_a_log_keeps_settings_and_limits(tmp_path: Path) -> None:
    limits = replace(EAGER.limits, dtypes=("f32", "c64"))
    task = replace(EAGER, fixed=(("inductor.max_fusion_size", 4),), limits=limits)
    Guided(task, tmp_path, empty(tmp_path))
    assert read_log(tmp_path / LOG, Task(place=EAGER.place)) == (task, [])


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"index": 3}\n')
    with pytest.raises(UsageError, match="not a log of choices"):
        read_log(tmp_path / "x", EAGER)
    Guided(EAGER, tmp_path, empty(tmp_path))
    with pytest.raises(UsageError, match="drawn for cpu, not cuda"):
        read_log(tmp_path / LOG, Task(place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda"))))


def test_again_and_resume_exclude_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["fuzz", "--resume", "--again", str(tmp_path / LOG), "--device", "cpu"])
    assert done.exit_code == 2
    assert "take one of them" in done.output


def test_features_prints_words(tmp_path: Path) -> None:
    path = tmp_path / "one.prog"
    path.write_text('program(1)\nroute("autograd")\nx0 = leaf(f32[4])\nv0 = exp(x0)\nbackward(v0, cotangent(f32[4]))\n')
    assert parse(path.read_text())
    done = CliRunner().invoke(cli.main, ["features", str(path), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "  operand   forward exp 0: f32 rank 1 contiguous\n" in done.output
    assert "  edge      saved exp > mul 1: contiguous\n" in done.output


def test_a_corpus_that_lacks_what_choices_brought_is_refused_in_one_line(tmp_path: Path) -> None:
    state = Guided(EAGER, tmp_path, empty(tmp_path)).offers.state()
    del state["price"]
    with pytest.raises(UsageError, match="an older backfuzz's, without 'price'; fuzz without --resume begins anew"):
        Guided(EAGER, tmp_path, empty(tmp_path), state={"next": 3, "offers": state})
