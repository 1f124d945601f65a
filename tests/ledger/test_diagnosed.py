"""Which version of the diagnosis looked at a finding, and what is kept of an older one."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.ledger.diagnosed import DIAGNOSER, EARLIER, NO_TIME, VERSION, diagnosed_by, is_current, keep_earlier
from tests.ledger.found import RELU, finding

BARE = finding(RELU)
OLD = replace(
    BARE, diagnosis={"culprit": "aten.exp"}, stages={"eager": "agree"}, attachments={"a.py": "1", "b.py": "2"}
)
NEW = replace(BARE, diagnosis={VERSION: str(DIAGNOSER)}, attachments={"a.py": "1", "b.py": "3"})


def test_a_diagnosis_without_a_version_is_of_the_first() -> None:
    assert [diagnosed_by(f) for f in (BARE, OLD, NEW)] == [0, 1, DIAGNOSER]
    assert [is_current(f) for f in (BARE, OLD, NEW)] == [False, False, True]


def test_a_diagnosis_that_was_cut_short_is_not_current() -> None:
    assert not is_current(replace(NEW, diagnosis=NEW.diagnosis | {"bisector": f"not run: {NO_TIME}"}))


def test_nothing_that_an_older_version_said_is_lost() -> None:
    kept = keep_earlier(NEW, OLD)
    assert {"a.py": "1", "b.py": "3"}.items() <= kept.items()
    for part in ("Version 1", "culprit: aten.exp", "eager: agree", "==== b.py\n2"):
        assert part in kept[EARLIER]
    assert "==== a.py" not in kept[EARLIER]
    assert keep_earlier(NEW, BARE) == NEW.attachments
    again = keep_earlier(NEW, replace(NEW, attachments=kept))
    assert again[EARLIER] == kept[EARLIER]
