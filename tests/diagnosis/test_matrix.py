"""Findings on a release of torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.diagnosis.matrix import Span, every_python, find_python, moved, release_of, run_there, span
from fuzzer.findings.faults import GONE, SHOWS, Fault, State
from fuzzer.judgement.verdict import Natural, Signature
from tests.diagnosis.cases import finding
from tests.diagnosis.test_releases import environment

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu", "2.11.0 cpu"), ("2.15.0 cpu",))


def row(name: str, verdict: str, *signatures: object, rejected: str = "") -> dict[str, object]:
    told = [{"signature": str(s), "detail": ""} for s in signatures]
    return {"program": name, "class": verdict, "rejected": rejected, "verdicts": told}


def test_environments_are_found_where_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.findings.checkout.ROOT", None)
    monkeypatch.chdir(tmp_path)
    assert (find_python("2.15.0"), every_python()) == (None, [])
    here = environment(tmp_path, "2.15.0", "echo 2.15.0+cpu")
    there = environment(tmp_path / "elsewhere", "2.11.0", "exit 1")
    assert find_python("2.15.0") == here
    assert find_python("2.11.0", [tmp_path / "elsewhere"]) == there
    monkeypatch.setattr("fuzzer.findings.checkout.ROOT", tmp_path)
    assert every_python() == [here]
    assert (release_of(here), release_of(there), release_of(tmp_path / "none")) == ("2.15.0+cpu", "", "")


def test_every_finding_has_an_outcome_and_one_that_cannot_run_stops_no_other(tmp_path: Path) -> None:
    first = finding()
    other = Signature("metadata_agrees", "wrong", "backward", "dtype")
    programs = [replace(first, program=first.program.replace("seed=1", f"seed={i}")) for i in range(4)]
    ids = [f.id for f in programs]
    rows = [row(ids[0], "wrong", first.signature), row(ids[1], "agree"), row(ids[2], "wrong", other),
            row(ids[3], "rejected", rejected="no op x")]  # fmt: skip
    (tmp_path / "rows").write_text(json.dumps(rows))
    script = f'case "$*" in *--json*) cat {tmp_path}/rows;; esac; exit 1'
    told = run_there(environment(tmp_path, "2.15.0", script), programs, tmp_path / "a.db")
    assert list(told.values()) == [SHOWS, GONE, "shows something else: wrong", "not run: no op x"]
    dead = run_there(environment(tmp_path, "2.9", "echo no torch >&2; exit 3"), programs[:1], tmp_path / "a.db")
    assert dead == {ids[0]: "not run: no torch"}


def test_where_the_minimal_program_does_not_show_it_the_natural_one_is_asked(tmp_path: Path) -> None:
    small = finding()
    grown = replace(small, natural=Natural(small.program.replace("seed=1", "seed=5"), small.signature, "0 for 0.1"))
    for name, verdict, told in (("minimal", "agree", ()), ("natural", "wrong", (small.signature,))):
        (tmp_path / name).write_text(json.dumps([row(grown.id, verdict, *told)]))
    script = f'case "$*" in *--natural*) cat {tmp_path}/natural;; *) cat {tmp_path}/minimal;; esac; exit 1'
    there = environment(tmp_path, "2.15.0", script)
    assert run_there(there, [grown], tmp_path / "a.db") == {grown.id: SHOWS}
    assert run_there(there, [small], tmp_path / "a.db") == {small.id: GONE}


def test_a_span_is_of_one_device_in_the_order_of_releases() -> None:
    assert span(FAULT, "cpu") == Span("2.11.0", "2.13.0", "2.15.0")
    assert span(FAULT, "cuda") == Span()
    early = replace(FAULT, lives_on=("2.9.1 cpu", "2.13.0 cpu"), gone_on=("2.8.0 cpu",))
    assert span(early, "cpu") == Span("2.9.1", "2.13.0", "")


FIXED = replace(FAULT, state=State("fixed", "u", "", "2.15.0"))


@pytest.mark.parametrize(
    ("fault", "release", "outcome", "state"),
    [
        (FAULT, "2.15.0+cpu", GONE, State("fixed", fixed_in="2.15.0+cpu")),
        (FAULT, "2.13.0", GONE, None),  # it showed there once: perhaps not every time
        (FAULT, "2.15.0", SHOWS, None),
        (FAULT, "2.15.0", "not run: x", None),
        (replace(FAULT, lives_on=("2.11.0 cuda",)), "2.15.0", GONE, None),  # of another device nothing is known
        (replace(FAULT, state=State("not-a-fault", note="x")), "2.15.0", GONE, None),
        (FIXED, "2.16.0", SHOWS, State("confirmed", "u", "came back on 2.16.0")),
        (FIXED, "2.13.0", SHOWS, None),  # before it was fixed
        (FIXED, "2.16.0", GONE, None),
    ],
)
def test_a_state_moves_where_a_newer_release_says_so(
    fault: Fault, release: str, outcome: str, state: State | None
) -> None:
    assert moved(fault, release, "cpu", outcome) == state
