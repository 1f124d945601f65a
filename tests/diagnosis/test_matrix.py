"""Findings on a release of torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fuzzer.diagnosis.matrix import (
    ask_of,
    every_python,
    find_python,
    release_of,
    run_there,
    together,
    where_live,
)
from fuzzer.judgement.verdict import Finding, Natural, Signature
from fuzzer.ledger.faults import GONE, SHOWS, Fault, State
from tests.diagnosis.cases import finding

FAULT = Fault("F1", "t", "wrong", "", "", "", "2026", 1, 1, State("new"), ("2.13.0 cpu", "2.11.0 cpu"), ("2.15.0 cpu",))


def environment(folder: Path, release: str, script: str) -> Path:
    """A fake environment of a release, whose Python does what this shell script does."""
    python = folder / f".venv-{release}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def row(name: str, verdict: str, *signatures: object, rejected: str = "") -> dict[str, object]:
    told = [{"signature": str(s), "detail": ""} for s in signatures]
    return {"program": name, "class": verdict, "rejected": rejected, "verdicts": told}


def test_environments_are_found_where_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzer.ledger.checkout.ROOT", None)
    monkeypatch.chdir(tmp_path)
    assert (find_python("2.15.0"), every_python()) == (None, [])
    here = environment(tmp_path, "2.15.0", "echo 2.15.0+cpu")
    there = environment(tmp_path / "elsewhere", "2.11.0", "exit 1")
    assert find_python("2.15.0") == here
    assert find_python("2.11.0", [tmp_path / "elsewhere"]) == there
    monkeypatch.setattr("fuzzer.ledger.checkout.ROOT", tmp_path)
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


def test_what_another_release_words_otherwise_is_the_same(tmp_path: Path) -> None:
    raises = Signature("compile_does_not_raise", "raises", "backward", "AssertionError < run < call")
    raised = replace(finding(), signature=raises, detail="the backward raised AssertionError: expected size 2==2")
    elsewhere = replace(raises, pattern="AssertionError < assert_tensor_metadata < call")
    wrong = finding()
    others = replace(wrong, program=wrong.program.replace("seed=1", "seed=3"))
    rows = [row(raised.id, "raises", elsewhere), row(wrong.id, "wrong", replace(wrong.signature, pattern="nonfinite")),
            row(others.id, "wrong", replace(wrong.signature, direction="forward"))]  # fmt: skip
    there = environment(tmp_path, "2.15.0", f"cat {tmp_path}/rows")
    for detail, outcome in (("size 3==3", SHOWS), ("storage 3", "shows something else: raises")):
        rows[0]["verdicts"][0]["detail"] = f"the backward raised AssertionError: expected {detail}"  # type: ignore[index]
        (tmp_path / "rows").write_text(json.dumps(rows))
        told = run_there(there, [raised, wrong, others], tmp_path / "a.db")
        assert list(told.values()) == [outcome, SHOWS, "shows something else: wrong"]


def on(device: str, seed: int, **place: str) -> Finding:
    made = finding(f'program(1)\nroute("autograd")\nx0 = leaf(f32[{seed}], seed={seed})\nv0 = tanh(x0)\n'
                   f'backward(v0, cotangent(f32[{seed}], values="ones"))\n')  # fmt: skip
    return replace(made, place=made.place | {"device": device} | place)


def test_variants_are_asked_where_they_were_found_or_all_on_one_device() -> None:
    here, there, both = on("cpu", 2), on("cuda:0", 3), on("cuda", 4, against="eager@cpu")
    variants = {"F1": [there, both, here]}
    assert ask_of(variants) == {("F1", "cuda"): [there, both], ("F1", "cpu"): [here]}
    assert ask_of(variants, "cpu") == {("F1", "cpu"): [here, there]}  # both: there is no other device to compare with
    assert ask_of(variants, "cuda") == {("F1", "cuda"): [there, both, here]}


def test_a_fault_lives_where_one_of_its_variants_does_and_not_all_are_asked(tmp_path: Path) -> None:
    first, second, gone = on("cpu", 2), on("cuda", 3), on("cpu", 5)
    (tmp_path / first.id).write_text(json.dumps([row(first.id, "agree"), row(gone.id, "agree")]))
    (tmp_path / second.id).write_text(json.dumps([row(second.id, "wrong", second.signature)]))
    there = environment(tmp_path, "2.15.0", f'echo "$@" >> {tmp_path}/asked; cat {tmp_path}/$4')
    asked = {("F1", "cpu"): [first, second], ("F2", "cpu"): [gone]}
    found = where_live(there, asked, tmp_path / "a.db")
    assert found == {("F1", "cpu"): {first.id: GONE, second.id: SHOWS}, ("F2", "cpu"): {gone.id: GONE}}
    assert [together(outcomes) for outcomes in found.values()] == [SHOWS, GONE]
    calls = (tmp_path / "asked").read_text().splitlines()
    assert ["--device cpu" in line for line in calls] == [False, True]
    assert [line.split("replay ")[1].split(" --")[0] for line in calls] == [f"{first.id} {gone.id}", second.id]


def test_what_could_not_be_run_leaves_the_others_answer() -> None:
    assert together({"a": "not run: no op x", "b": GONE}) == GONE
    assert together({"a": GONE, "b": "shows something else: raises"}) == "shows something else: raises"
    assert together({"a": "not run: no op x"}) == "not run: no op x"


def test_where_the_minimal_program_does_not_show_it_the_natural_one_is_asked(tmp_path: Path) -> None:
    small = finding()
    grown = replace(small, natural=Natural(small.program.replace("seed=1", "seed=5"), small.signature, "0 for 0.1"))
    for name, verdict, told in (("minimal", "agree", ()), ("natural", "wrong", (small.signature,))):
        (tmp_path / name).write_text(json.dumps([row(grown.id, verdict, *told)]))
    script = f'case "$*" in *--natural*) cat {tmp_path}/natural;; *) cat {tmp_path}/minimal;; esac; exit 1'
    there = environment(tmp_path, "2.15.0", script)
    assert run_there(there, [grown], tmp_path / "a.db") == {grown.id: SHOWS}
    assert run_there(there, [small], tmp_path / "a.db") == {small.id: GONE}
