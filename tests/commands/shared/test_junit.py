"""Replayed programs as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from fuzzer.commands.shared.junit import junit
from fuzzer.commands.shared.replayed import Replayed
from fuzzer.judgement.verdict import Verdict
from tests.commands.calls import FINDING

FOUND = [
    Replayed("corpus/seeds/a.prog", "agree", seconds=1.25),
    Replayed("b.prog", "wrong", verdicts=(Verdict(FINDING.signature, "x0 < 1 & a \x1b[0m\0 sign"),), seconds=2.0),
    Replayed("../c.prog", "rejected", why="no op 'x'", stderr="a native stack"),
    Replayed("d.prog", "unreadable", why="line 1"),
    Replayed("e.prog", "wrong", wanted=("wrong", "agree")),
]


def test_what_differs_failed_and_what_could_not_run_is_an_error() -> None:
    root = ElementTree.fromstring(junit(FOUND, {"torch": "2.13.0"}, "2026-01-02T03:04:05"))
    [suite] = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert dict(suite.attrib) == {
        "name": "backfuzz",
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "0",
        "time": "3.250",
        "timestamp": "2026-01-02T03:04:05",
    }
    assert [(p.get("name"), p.get("value")) for p in suite.iter("property")] == [("torch", "2.13.0")]
    cases = list(suite.iter("testcase"))
    assert [(c.get("classname"), c.get("name"), c.get("time")) for c in cases[:3]] == [
        ("corpus.seeds", "a.prog", "1.250"),
        ("backfuzz", "b.prog", "2.000"),
        ("backfuzz", "c.prog", "0.000"),
    ]
    assert [[child.tag for child in case] for case in cases] == [
        [],
        ["failure"],
        ["error", "system-err"],
        ["error"],
        [],
    ]


def test_a_failure_tells_the_verdict_whatever_characters_it_has() -> None:
    told = ElementTree.fromstring(junit(FOUND, {}, "")).find(".//failure")
    assert told is not None
    assert (told.get("type"), told.get("message")) == ("wrong", "wrong")
    assert told.text == f"b.prog: wrong\n  {FINDING.signature}\n    x0 < 1 & a ?[0m? sign"
