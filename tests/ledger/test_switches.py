"""What can be switched off, and which of it convicts."""

from __future__ import annotations

import pytest

from fuzzer.diagnosis.ablation import STAGES
from fuzzer.language.settings import default, exists
from fuzzer.ledger.switches import GROUPS, SWITCHES, Switch, convicting, gone

ALL = (*SWITCHES, *GROUPS)


@pytest.mark.parametrize("switch", ALL, ids=lambda switch: switch.name)
def test_a_switch_is_a_setting_of_torch_or_a_part_and_acts_at_a_stage(switch: Switch) -> None:
    assert switch.stage in STAGES
    assert bool(switch.setting) != bool(switch.part)
    if switch.setting:
        assert exists(switch.setting)
        assert type(default(switch.setting)) in (type(switch.value), str)


def test_names_are_those_of_single_changes() -> None:
    names = [switch.name for switch in ALL]
    assert {"functorch.donated_buffer=False", "outer-loop fusion off", "inductor.max_fusion_size=1"} <= set(names)
    assert len(names) == len(set(names))


def test_the_first_kind_that_vanishes_convicts_with_all_of_its_own() -> None:
    both = {"inductor.inplace_buffers=False": "agree", "functorch.donated_buffer=False": "agree"}
    told = convicting({**both, "inductor.max_fusion_size=1": "agree", "inductor.shape_padding=False": "wrong"})
    assert [switch.name for switch in told] == ["functorch.donated_buffer=False", "inductor.inplace_buffers=False"]
    assert convicting({"inductor.max_fusion_size=1": "rejected", "aten.exp.default left to ATen": "agree"}) == []


def test_gone_is_what_agrees_or_shows_only_what_the_change_brings() -> None:
    assert [gone(seen) for seen in ("agree", "gone: wrong", "wrong", "not run: x", "'off' already")] == [True] * 2 + [
        False
    ] * 3
