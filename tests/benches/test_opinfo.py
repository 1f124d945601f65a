"""The op tables against torch's own database of ops, and how many draws of each op are refused."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from benches import opinfo
from benches.opinfo import Coverage, NoDatabase, compiled, coverage, database, rejections, shows, wanted

from fuzzer.judgement.trial import Place, Subject
from fuzzer.language.ops import OPS, ops_by_family
from fuzzer.language.ops.excluded import EXCLUDED
from tests.benches.here import Here


@functools.cache
def entries() -> tuple[str, ...]:
    try:
        return tuple(wanted(database()))
    except NoDatabase as error:
        pytest.skip(str(error))


def found() -> Coverage:
    return coverage(list(entries()))


def test_every_entry_is_reached_or_excluded_or_missing_and_only_one_of_these() -> None:
    told = Counter([*found().reached, *found().excluded, *found().missing])
    assert set(told) == set(entries())
    assert set(told.values()) == {1}


def test_what_is_excluded_is_not_reached_and_has_a_reason() -> None:
    reached = {entry for spec in OPS.values() for entry in spec.entries}
    assert not reached & set(EXCLUDED)
    assert all(len(reason) > 20 for reason in EXCLUDED.values())


def test_nothing_is_missing_without_a_reason() -> None:
    assert not found().missing


def test_an_op_covers_no_entry_twice() -> None:
    for spec in OPS.values():
        assert len(set(spec.entries)) == len(spec.entries), spec.name


def test_few_draws_of_a_sample_of_ops_are_refused() -> None:
    names = sorted(OPS)[::12]
    refused = rejections(4, names)
    assert sum(map(len, refused.values())) <= 0.05 * 4 * len(names), refused
    assert all(len(reasons) <= 2 for reasons in refused.values()), refused


@pytest.mark.slow
def test_a_sample_of_ops_is_reached_by_programs_with_a_detectable_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One op of every family that has any through which a gradient flows; code is built by the script alone."""
    monkeypatch.setattr(opinfo, "Pool", Here)
    flowing = ([spec.name for spec in specs if spec.differentiable] for specs in ops_by_family().values())
    names = [names[-1] for names in flowing if names]
    place = Place(Subject("eager", "cpu"), Subject("aot_eager", "cpu"))
    tried: dict[str, list[str]] = {name: [] for name in names}
    shown = set()
    for name, _, report in compiled(names, place, workers=1):
        tried[name].append(report.rejected or report.verdict)
        if shows(report, name):
            shown.add(name)
    assert not {name: tried[name] for name in names if name not in shown}
