"""Compiler settings: refused by name where they do not exist, restored after use, and with an effect in training."""

from __future__ import annotations

import functools
import random
import re
from typing import Any

import pytest
import torch

from fuzzer.interpret import cotangents, function, materialise
from fuzzer.private import config_module, reset_compiler
from fuzzer.program import Attributes, Program, Value
from fuzzer.routes import autograd
from fuzzer.settings import SETTINGS, Setting, UnknownSetting, default, draw, exists, in_force, parse_assignment
from fuzzer.text import parse

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
def test_a_setting_of_the_table_exists_and_its_values_differ_from_the_default(setting: Setting) -> None:
    values = [v for v in setting.values if v != default(setting.name)]
    assert values
    with in_force(((setting.name, values[0]),)):
        assert value_of(setting.name) == values[0]


def test_settings_are_drawn_for_the_device_in_order_and_from_the_table() -> None:
    table = {s.name: s for s in SETTINGS}
    drawn = {device: [draw(random.Random(n), device) for n in range(300)] for device in ("cpu", "cuda")}
    for device, found in drawn.items():
        assert 0.4 < sum(not s for s in found) / 300 < 0.6
        for settings in found:
            assert list(settings) == sorted(settings)
            assert len(settings) <= 3
            assert all(value in table[name].values for name, value in settings)
            assert all(device in table[name].devices for name, _ in settings)
    only = {name for s in drawn["cuda"] for name, _ in s} - {name for s in drawn["cpu"] for name, _ in s}
    assert any(name.startswith("inductor.triton.") for name in only)


# ---------------------------------------------------------------- the effect of each setting on generated code

HEAD = 'program(1)\nroute("autograd")\n'
# Small training programs that between them show what settings do.
SHOWING = {
    "pointwise and reductions": """x0 = leaf(f32[16, 70])
x1 = leaf(f32[16, 70])
v0 = mul(x0, x1)
v1 = exp(v0)
v2 = sum(v1, dim=1)
v3 = sin(v1)
v4 = cos(v3)
v5 = sum(v4, dim=0)
backward(v2, cotangent(f32[16]))
backward(v5, cotangent(f32[70]))
""",
    "softmax in bfloat16": """x0 = leaf(bf16[8, 64])
v0 = gelu(x0)
v1 = softmax(v0, dim=1)
v2 = mul(v1, v0)
v3 = tanh(v2)
backward(v3, cotangent(bf16[8, 64]))
""",
    "cat of views": """x0 = leaf(f32[6, 8])
x1 = leaf(f32[6, 8])
v0 = exp(x0)
v1 = sin(x1)
v2 = cat([v0, v1, x0], dim=1)
v3 = narrow(v2, dim=1, start=4, length=12)
v4 = mul(v3, v3)
backward(v4, cotangent(f32[6, 12]))
""",
    "transposed": """x0 = leaf(f32[20, 30])
x1 = leaf(f32[30, 20])
v0 = transpose(x0, dim0=0, dim1=1)
v1 = add(v0, x1)
v2 = exp(v1)
v3 = transpose(v2, dim0=0, dim1=1)
v4 = mul(v3, x0)
backward(v4, cotangent(f32[20, 30]))
""",
    "scatter": """x0 = leaf(f32[9, 7])
x1 = leaf(i64[5], values=below(9))
x2 = leaf(f32[5, 7])
v0 = index_select(x0, x1, dim=0)
v1 = mul(v0, v0)
v2 = index_add(x0, x1, x2, dim=0)
v3 = exp(v2)
backward(v1, cotangent(f32[5, 7]))
backward(v3, cotangent(f32[9, 7]))
""",
    "matmuls": """x0 = leaf(f32[12, 10])
x1 = leaf(f32[10, 14])
x2 = leaf(f32[14, 6])
v0 = mm(x0, x1)
v1 = relu(v0)
v2 = mm(v1, x2)
v3 = sigmoid(v2)
v4 = mul(v3, v2)
backward(v4, cotangent(f32[12, 6]))
""",
    "a chain": """x0 = leaf(f32[33])
v0 = exp(x0)
v1 = sin(v0)
v2 = mul(v1, v0)
v3 = tanh(v2)
v4 = mul(v3, v1)
v5 = cos(v4)
v6 = mul(v5, v2)
backward(v6, cotangent(f32[33]))
""",
    "small sums": """x0 = leaf(f32[10, 4])
x1 = leaf(f32[10, 4])
v0 = sum(x0, dim=1)
v1 = mul(x0, x1)
v2 = sum(v1, dim=1)
v3 = mul(v2, v0)
backward(v3, cotangent(f32[10]))
""",
    "images": """x0 = leaf(f32[2, 3, 9, 9])
x1 = leaf(f32[4, 3, 3, 3])
v0 = conv2d(x0, x1)
v1 = relu(v0)
v2 = max_pool2d(v1, kernel_size=(2, 2))
v3 = mul(v2, v2)
backward(v3, cotangent(f32[2, 4, 3, 3]))
""",
    "one constant scattered": """x0 = leaf(f32[40, 8])
x1 = leaf(i64[40], values=below(8))
v0 = cross_entropy(x0, x1)
backward(v0, cotangent(f32[()]))
""",
    "wide and transposed": """x0 = leaf(f32[64, 64])
x1 = leaf(f32[64, 64], stride=(1, 64))
v0 = add(x0, x1)
v1 = exp(v0)
v2 = sum(v1, dim=0)
v3 = add_scalar(v1, other=1.0)
backward(v2, cotangent(f32[64]))
backward(v3, cotangent(f32[64, 64]))
""",
    "long rows": """x0 = leaf(f32[100, 333])
x1 = leaf(f32[333, 100])
v0 = transpose(x1, dim0=0, dim1=1)
v1 = mul(x0, v0)
v2 = mm(v1, x1)
v3 = exp(v2)
v4 = amax(v3, dim=(0,))
backward(v4, cotangent(f32[100]))
backward(v3, cotangent(f32[100, 100]))
""",
}


def generated(program: Program, settings: Attributes, monkeypatch: pytest.MonkeyPatch) -> str:
    """The code that inductor writes for forward and backward, not compiled by the C++ compiler."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.graph import GraphLowering

    written: list[str] = []
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda self, *a, **k: lambda *given: None)
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(written.append))
    reset_compiler()
    torch.manual_seed(0)
    with in_force((*settings, ("inductor.force_disable_caches", True))):
        autograd(
            program,
            function(program),
            materialise(program.leaves),
            cotangents(program),
            lambda f: torch.compile(f, fullgraph=True, dynamic=False),
            lambda name: None,
        )
    # names of temporary files, hashes and counters are no effect
    return re.sub(r"/tmp/\S+|[0-9a-z]{40,}|# AOT ID.*", "", "\n".join(written))


def effects(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """For each CPU setting the programs whose code it changes."""
    programs = {name: parse(HEAD + text) for name, text in SHOWING.items()}
    plain = {name: generated(p, (), monkeypatch) for name, p in programs.items()}
    assert plain == {name: generated(p, (), monkeypatch) for name, p in programs.items()}
    found: dict[str, list[str]] = {}
    for setting in SETTINGS:
        if "cpu" in setting.devices:
            found[setting.name] = [
                name
                for name, p in programs.items()
                if any(generated(p, ((setting.name, v),), monkeypatch) != plain[name] for v in setting.values)
            ]
    return found


@pytest.mark.slow
def test_at_least_twelve_settings_change_the_generated_code_of_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = effects(monkeypatch)
    visible = [name for name, programs in found.items() if programs]
    print("without a visible effect:", sorted(set(found) - set(visible)))
    assert len(visible) >= 12, found
    assert "inductor.max_fusion_size" in visible
