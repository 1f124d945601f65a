"""Guided campaigns: what is chosen, that it is logged, and that the log gives the same programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fuzzer import commands
from fuzzer.campaign.corpus import resume_corpus
from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.plan import Plan
from fuzzer.campaign.schedule import restore_drawing_settings
from fuzzer.coverage.structure import LOOPS
from fuzzer.generation.knobs import Knobs
from fuzzer.guidance import CODE, candidates
from fuzzer.guidance.arms import ARMS, CandidateSource
from fuzzer.guidance.candidates import (
    CANDIDATES,
    CandidateSpec,
    Choice,
    LoggedChoice,
    explore_logged,
)
from fuzzer.guidance.cost import MIN_PROGRAMS
from fuzzer.guidance.novelty import FeatureCounts
from fuzzer.guidance.parents import BuiltCorpus, CountingCorpus
from fuzzer.guidance.rarest import explore_rarest
from fuzzer.guidance.schedule import (
    CREDITS_FILE,
    LOG_FILE,
    ByCode,
    FromLog,
    Guided,
    guided,
    read_log,
    restore_guidance,
)
from fuzzer.judgement.trial import Place, Subject
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.errors import UsageError
from fuzzer.language.text import show
from fuzzer.trial.draw import draw_program
from fuzzer.trial.sift import SiftedReport
from fuzzer.workers.messages import Report, Task
from tests.guidance.eager import EAGER, texts


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("fuzzer.campaign.loop.require_canaries", lambda *_: None)
    return Plan(EAGER, 2, programs=6, db=tmp_path / "ledger.db", folder=tmp_path / "own")


def campaign(plan: Plan, arm: str, say: Callable[[str], None] = print) -> Campaign:
    """A campaign under an arm, with a new corpus."""
    return Campaign(plan, say, lambda own: guided(plan.task, own, plan.explored, {"torch": "2.13.0"}, ARMS[arm]))


@pytest.mark.parametrize("arm", ["trace", "mutation", "price"])
def test_a_log_gives_the_very_programs_again(plan: Plan, monkeypatch: pytest.MonkeyPatch, arm: str) -> None:
    monkeypatch.setattr(CandidateSource, "_mutates", lambda self: arm == "mutation" and len(self.corpus.kept) > 1)
    found = texts(monkeypatch)
    plan = replace(plan, programs=8)
    said: list[str] = []
    campaign(plan, arm, said.append).run()
    chosen = sorted(found)
    found.clear()
    (log,) = plan.folder.glob(f"campaigns/*/{LOG_FILE}")
    rows = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert sorted(row["index"] for row in rows) == list(range(8))
    assert all(row["class"] for row in rows)
    ended = [row for row in rows if row["novelty"]]  # of one in which its worker died the text alone is known
    assert len(ended) > 4
    assert all(len(row["novelty"]) == CANDIDATES and row["cpu"] > 0 for row in ended)
    assert all("text" in row for row in rows if row not in ended)
    assert max(row["new"] for row in rows) > 0
    credits = json.loads(log.with_name(CREDITS_FILE).read_text())
    assert sum(c["new"] > 0 for c in credits["op"].values()) > 5
    assert bool(credits["mutator"]) == (arm == "mutation")
    assert any("features, " in line and "programs kept" in line for line in said)
    assert any("knobs" in row for row in rows) == any("mutator" in row for row in rows) == (arm == "mutation")
    task, again = read_log(log, Task(place=EAGER.place, features=True))
    assert task == EAGER
    Campaign(replace(plan, task=task, programs=len(again)), print, lambda own: FromLog(again)).run()
    assert sorted(found) == [text for text in chosen if text]


def empty(folder: Path) -> CountingCorpus:
    return CountingCorpus(folder / "corpus", {"torch": "2.13.0"}).start()


class Asked:
    """A pool that only notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def submit(self, *given: Any, behind: bool) -> None:
        assert behind, "what triage asks for goes first"
        self.asked.append(given)


def test_what_ran_can_be_run_again_and_what_was_refused_is_left_out(tmp_path: Path) -> None:
    schedule, pool = Guided(EAGER, tmp_path, empty(tmp_path), ARMS["mutation"]), Asked()
    text = show(draw_program(EAGER, 4, 1))
    died = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    for n in range(4):
        schedule.submit(pool, EAGER, n)  # type: ignore[arg-type]
    turned = Knobs(nodes=0.0, family="loss")
    schedule.pending[2] = (CandidateSpec(), CandidateSpec(turned))
    schedule.pending[3] = (CandidateSpec(mutator="resize", parent=text, donor=text),)
    schedule.learn(0, Report(text, (died,)))
    schedule.learn(1, Choice("", rejected="every one", scores=(None, None)))
    schedule.learn(2, Choice(text, scores=(1.0, 2.0), candidate=1))
    schedule.learn(3, Choice(text, scores=(1.0,)))
    task, found = read_log(tmp_path / LOG_FILE, EAGER)
    assert task == EAGER
    assert found == [LoggedChoice(0, text=text), LoggedChoice(2, 1, turned), LoggedChoice(3, text=text)]
    rows = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert rows[0]["guidance"]["mutation"] == ARMS["mutation"].mutation
    assert [row.get("mutator") for row in rows[1:]] == [None, None, None, "resize"]
    again = Asked()
    FromLog(found).submit(again, EAGER, 1)  # type: ignore[arg-type]
    assert again.asked == [(explore_logged, EAGER, found[1])]


# ---------------------------------------------------------------- by code

CODED = Task(Place(Subject("eager"), Subject("inductor")), seed=4, routes=("autograd",), staged=0.5, final=False)


def by_code(folder: Path, task: Task = CODED) -> ByCode:
    schedule = guided(task, folder / "log", folder / "corpus", {"torch": "2.13.0"}, ARMS[CODE])
    assert isinstance(schedule, ByCode)
    return schedule


def told(text: str, stage: str, loops: set[int], **more: Any) -> SiftedReport:
    features, seconds = {LOOPS: frozenset(loops)}, {"cpu": 2.0, "stage": 0.5}
    return SiftedReport(text, stage=stage, features=features, seconds=seconds, **more)


def asked_of(schedule: ByCode, *numbers: int) -> Any:
    """What a worker would be asked for these numbers."""
    pool: Any = Asked()
    pool.deadline = 90.0
    schedule.submit(pool, CODED, *numbers)
    ((function, task, asked, programs),) = pool.asked
    assert (function, task.staged, task.features, programs) == (explore_rarest, 0.0, True, len(numbers))
    return asked


def test_only_loops_of_programs_that_were_built_are_counted(tmp_path: Path) -> None:
    schedule, text = by_code(tmp_path), show(draw_program(CODED, 1))
    asked = asked_of(schedule, 0, 1)
    assert (asked.batch.numbers, asked.batch.deadline, asked.share) == ((0, 1), 90.0, 0.5)
    schedule.learn(0, told(text, "ir", {1, 2}))
    schedule.learn(1, told(text, "", {2, 3}))
    counts = FeatureCounts(asked_of(schedule, 2, 3).counts)
    assert [counts[n] for n in (1, 2, 3)] == [0, 1, 1]


def test_what_building_takes_is_learned_from_what_was_built(tmp_path: Path) -> None:
    schedule, text = by_code(tmp_path), show(draw_program(CODED, 1))
    for n in range(2 * MIN_PROGRAMS):
        asked_of(schedule, n)
        schedule.learn(n, told(text, "ir" if n % 2 else "", set(range(9))))
    assert asked_of(schedule, 99).cost == pytest.approx((1.5, 0.0))


def test_a_log_of_what_was_built_says_what_to_build_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, text = by_code(tmp_path), show(draw_program(CODED, 1))
    asked_of(schedule, 0, 1, 2, 3)
    died = Verdict(Signature("worker_survives", "crashes", "backward", "SIGSEGV"), "")
    schedule.learn(0, told(text, "ir", {1}, rarity=0.25))
    schedule.learn(1, told(text, "", {2}, rarity=0.5, candidate=2))
    schedule.learn(2, Report(text, (died,)))
    schedule.learn(3, SiftedReport("", rejected="refused"))
    rows = [json.loads(line) for line in (tmp_path / "log" / LOG_FILE).read_text().splitlines()]
    assert [row.get("rarity") for row in rows[1:]] == [0.25, 0.5, None, None]
    task, found = read_log(tmp_path / "log" / LOG_FILE, replace(CODED, staged=0.9))
    assert task == replace(CODED, staged=0.0)
    assert found == [LoggedChoice(0, stage="ir"), LoggedChoice(1, 2), LoggedChoice(2, text=text), LoggedChoice(3)]
    ran: list[str] = []
    monkeypatch.setattr(candidates, "report_program", lambda program, task, log: _noted(ran, task))
    for one in found[:3]:
        explore_logged(task, one)
    assert ran == ["inductor:ir", "inductor", "inductor"]


def _noted(ran: list[str], task: Task) -> Report:
    ran.append(task.place.subject.backend)
    return Report("")


def test_a_resumed_campaign_knows_what_was_built(tmp_path: Path) -> None:
    schedule, text = by_code(tmp_path), show(draw_program(CODED, 1))
    asked_of(schedule, 0, 1)
    schedule.learn(0, told(text, "", {5}))
    schedule.close()
    _, state = resume_corpus(tmp_path / "corpus", {"torch": "2.13.0"}, BuiltCorpus)
    assert restore_guidance(state) == ARMS[CODE]
    task = restore_drawing_settings(Task(place=CODED.place), state)
    onward = guided(task, tmp_path / "more", tmp_path / "corpus", {"torch": "2.13.0"}, ARMS[CODE], resume=True)
    assert isinstance(onward, ByCode)
    asked = asked_of(onward, 0)
    assert (asked.batch.numbers, asked.share) == ((1,), 0.5)
    assert FeatureCounts(asked.counts)[5] == 1


@pytest.mark.slow
def test_a_campaign_by_code_builds_a_share_and_its_log_gives_the_same_programs(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    take = Campaign._take

    def taken(self: Campaign, number: int, report: Report, log: Any) -> None:
        take(self, number, report, log)
        seen.append((report.text, report.stage))

    monkeypatch.setattr(Campaign, "_take", taken)
    plan = replace(plan, task=CODED, programs=12, batch=6)
    campaign(plan, CODE).run()
    chosen = sorted(seen)
    assert {stage for _, stage in chosen} == {"ir", ""}
    seen.clear()
    (log,) = plan.folder.glob(f"campaigns/*/{LOG_FILE}")
    task, again = read_log(log, CODED)
    Campaign(replace(plan, task=task, programs=len(again)), print, lambda own: FromLog(again)).run()
    assert sorted(seen) == chosen


def test_a_log_keeps_settings_and_limits(tmp_path: Path) -> None:
    limits = replace(EAGER.limits, dtypes=("f32", "c64"))
    task = replace(EAGER, fixed=(("inductor.max_fusion_size", 4),), limits=limits)
    Guided(task, tmp_path, empty(tmp_path), ARMS["trace"])
    assert read_log(tmp_path / LOG_FILE, Task(place=EAGER.place, features=True)) == (task, [])


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"index": 3}\n')
    with pytest.raises(UsageError, match="not a log of choices"):
        read_log(tmp_path / "x", EAGER)
    Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"])
    with pytest.raises(UsageError, match="drawn for cpu, not cuda"):
        read_log(tmp_path / LOG_FILE, Task(place=Place(Subject("eager", "cuda"), Subject("inductor", "cuda"))))


def test_again_and_resume_exclude_each_other(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands.main, ["fuzz", "--resume", "--again", str(tmp_path / LOG_FILE), "--device", "cpu"]
    )
    assert done.exit_code == 2
    assert "take one of them" in done.output


def test_a_corpus_that_lacks_what_choices_brought_is_refused_in_one_line(tmp_path: Path) -> None:
    state = Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"]).source.state()
    del state["price"]
    with pytest.raises(UsageError, match="an older backfuzz's, without 'price'; fuzz without --resume begins anew"):
        Guided(EAGER, tmp_path, empty(tmp_path), ARMS["trace"], state={"next": 3, "offers": state})
