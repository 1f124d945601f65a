"""Compiler settings: refused by name where they do not exist, restored after use, and with an effect in training."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest

from fuzzer.language.devices import DEVICES
from fuzzer.language.private import config_module
from fuzzer.language.program import Attributes, Value
from fuzzer.language.routes import ROUTES, acts
from fuzzer.language.settings import (
    SETTINGS,
    Setting,
    UnknownSetting,
    default,
    draw_settings,
    exists,
    in_force,
    parse_assignment,
)

UNKNOWN = [
    ("frob.max_fusion_size", "no setting 'frob.max_fusion_size': a name starts with inductor., functorch., dynamo."),
    ("inductor", "no setting 'inductor'"),
    ("inductor.", "no setting 'inductor.'"),
    ("inductor.cpp.", "has no setting 'inductor.cpp.'"),
    ("inductor.frob", "this torch has no setting 'inductor.frob' (no 'frob' in torch._inductor.config)"),
    ("inductor.cpp.frob", "this torch has no setting 'inductor.cpp.frob' (no 'frob' in"),
]


@pytest.mark.parametrize(("name", "words"), UNKNOWN)
def test_an_unknown_setting_is_refused_by_name(name: str, words: str) -> None:
    with pytest.raises(UnknownSetting) as caught:
        default(name)
    assert words in str(caught.value)
    assert not exists(name)
    with pytest.raises(UnknownSetting), in_force(((name, 1),)):
        pass
    with pytest.raises(UnknownSetting):
        parse_assignment(f"{name}=1")


ASSIGNMENTS: list[tuple[str, tuple[str, Value]]] = [
    ("inductor.max_fusion_size=4", ("inductor.max_fusion_size", 4)),
    (" inductor.max_fusion_size = 4 ", ("inductor.max_fusion_size", 4)),
    ("functorch.cse=False", ("functorch.cse", False)),
    ("inductor.cpp.inject_relu_bug_TESTING_ONLY=accuracy", ("inductor.cpp.inject_relu_bug_TESTING_ONLY", "accuracy")),
    ('inductor.cpp.inject_relu_bug_TESTING_ONLY="accuracy"', ("inductor.cpp.inject_relu_bug_TESTING_ONLY", "accuracy")),
    ("inductor.cpp.simdlen=None", ("inductor.cpp.simdlen", None)),
]


@pytest.mark.parametrize(("text", "expected"), ASSIGNMENTS)
def test_an_assignment_of_the_command_line_is_read(text: str, expected: tuple[str, Value]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["inductor.max_fusion_size", "", "="])
def test_an_assignment_without_value_or_name_is_refused(text: str) -> None:
    with pytest.raises(UnknownSetting):
        parse_assignment(text)


REFUSED = ["inductor.max_fusion_size=many", "functorch.cse=2.5", "inductor.max_fusion_size=None",
           "inductor.max_fusion_size=[1]"]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_a_value_that_the_setting_cannot_hold_is_refused_with_its_type(text: str) -> None:
    with pytest.raises(UnknownSetting, match=f"{text.partition('=')[0]} is"):
        parse_assignment(text)
    name, _, value = text.partition("=")
    with pytest.raises(UnknownSetting, match=name), in_force(((name, {"None": None}.get(value, value)),)):
        pass


def value_of(name: str) -> Any:
    prefix, _, rest = name.partition(".")
    return functools.reduce(getattr, rest.split("."), config_module(prefix))


IN_FORCE: Attributes = (("functorch.cse", False), ("inductor.cpp.simdlen", 1), ("inductor.max_fusion_size", 3))


def test_settings_are_in_force_for_a_while_and_restored() -> None:
    before = [value_of(name) for name, _ in IN_FORCE]
    assert before != [value for _, value in IN_FORCE]
    with in_force(IN_FORCE):
        assert [value_of(name) for name, _ in IN_FORCE] == [value for _, value in IN_FORCE]
        with in_force((("inductor.max_fusion_size", 9),)):
            assert value_of("inductor.max_fusion_size") == 9
        assert value_of("inductor.max_fusion_size") == 3
    assert [value_of(name) for name, _ in IN_FORCE] == before
    with pytest.raises(ZeroDivisionError), in_force(IN_FORCE):
        _ = 1 / 0
    assert [value_of(name) for name, _ in IN_FORCE] == before


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_a_setting_of_the_table_takes_its_values_one_of_which_is_not_the_default(setting: Setting) -> None:
    if not exists(setting.name):
        pytest.skip("this torch has no such setting")
    assert any(v != default(setting.name) for v in setting.values)
    for value in setting.values:
        with in_force((*setting.needs, (setting.name, value))):
            assert value_of(setting.name) == value


def test_the_table_names_a_setting_once_known_devices_and_routes_and_says_why_it_draws_one_nowhere() -> None:
    assert len({s.name for s in SETTINGS}) == len(SETTINGS)
    for setting in SETTINGS:
        assert set(setting.devices) <= set(DEVICES)
        assert any(spec.takes(setting) for spec in ROUTES.values())
        assert setting.devices or setting.note
    # every one is drawn in torch 2.13, whatever the running one is
    assert sum(exists(s.name) for s in SETTINGS) > 0.9 * len(SETTINGS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("route", ROUTES)
def test_settings_are_drawn_for_device_and_route_with_what_they_need(device: str, route: str) -> None:
    table = {s.name: s for s in SETTINGS}
    acting = [s for s in SETTINGS if acts(s, device, route)]
    own = {s.name for s in acting if s.always}
    drawn = [draw_settings(random.Random(n), acting) for n in range(2000)]
    assert 0.45 < sum({name for name, _ in settings} <= own for settings in drawn) / 2000 < 0.55
    for settings in drawn:
        assert list(settings) == sorted(settings)
        needed = {need for name, _ in settings if name in table for need, _ in table[name].needs}
        chosen = [name for name, _ in settings if name not in needed | own]
        assert len(chosen) <= 3
        assert all(table[name] in acting for name in chosen)
        assert all(value in table[name].values for name, value in settings if name in chosen)
        assert needed <= {name for name, _ in settings}
    names = {name for settings in drawn for name, _ in settings}
    assert names >= {s.name for s in acting if exists(s.name)}
