"""A type of device is one row: what the rows say, and that nothing else names a type."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fuzzer.judgement.trial import parse_subject
from fuzzer.language.devices import DEVICES, HOST, accelerator, device_row, devices_with_code, is_device, synchronise
from fuzzer.language.routes import acts
from fuzzer.language.settings import SETTINGS
from fuzzer.workers.server import HIDDEN, WORKER_ENVIRONMENT

ROOT = Path(__file__).parents[2]
ACCELERATORS = [name for name in DEVICES if name != HOST.type]
# Where else the name of a type may stand, and why.
EXCEPTIONS = {
    "fuzzer/language/devices.py": "the rows",
    "fuzzer/judgement/planted/runtime.py": "a fault planted in memory that only CUDA's array interface hands out",
}


def named(path: Path) -> Iterator[str]:
    """The places where a module's code names a type of accelerator: words in its strings, but for docstrings and the
    examples of commands; `torch.cuda`; `tensor.is_cuda`."""
    types = "|".join(ACCELERATORS)
    text = path.read_text()
    if not re.search(types, text, re.IGNORECASE):
        return  # and no tree of it is needed
    nodes = list(ast.walk(ast.parse(text)))
    bodies = [node.body for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    told = {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}
    told |= {node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "example"}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
            if re.search(rf"(?<![a-z])({types})(?![a-z])", node.value, re.IGNORECASE):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Attribute) and re.fullmatch(rf"({types})|is_({types})|__({types})_\w+", node.attr):
            inside = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in ACCELERATORS
            if not inside:  # a field of ours
                yield f"{path.relative_to(ROOT)}:{node.lineno}: .{node.attr}"


def test_no_type_of_accelerator_is_named_outside_its_row() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(named(path))
        for package in ("fuzzer", "minimizer")
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert not [line for name, lines in found.items() if name not in EXCEPTIONS for line in lines]
    assert all(found[name] for name in EXCEPTIONS), "an exception that none needs"


@pytest.mark.parametrize(
    ("text", "known"),
    [("cpu", True), ("cuda", True), ("cuda:3", True), ("xpu", True), ("xpu:0", True),
     ("cpu:0", False), ("cuda:", False), ("cuda:x", False), ("moon", False), ("", False)],
)  # fmt: skip
def test_a_device_is_named_by_its_type_and_a_number(text: str, known: bool) -> None:
    assert is_device(text) is known
    if known:
        assert parse_subject(f"inductor@{text}", "cpu").device == text


def test_the_accelerator_among_devices_is_found() -> None:
    assert device_row("cuda:1") is device_row(torch.device("cuda")) is DEVICES["cuda"]
    assert accelerator(["cpu", "xpu:1"]) is DEVICES["xpu"]
    assert accelerator(["cpu", "cpu"]) is None
    with pytest.raises(KeyError):
        device_row("moon")


def test_every_type_is_one_that_torch_knows_with_the_switches_of_its_row() -> None:
    for name, row in DEVICES.items():
        assert row.type == name == torch.device(name).type
        assert callable(torch.get_device_module(name).device_count)
        for switch in row.tf32:
            assert isinstance(operator.attrgetter(switch)(torch), bool)
        assert row.code in ("cpp", "triton")
        assert bool(row.memcheck) == bool(row.uncached)
        assert dict(row.environment).items() <= WORKER_ENVIRONMENT.items()
        assert set(row.hidden) <= set(HIDDEN)


def test_settings_of_triton_act_on_every_accelerator_that_triton_writes_for() -> None:
    assert devices_with_code("cpp") == (HOST.type,)
    known = {setting.name: setting for setting in SETTINGS}
    for name in ACCELERATORS:
        acting = {s.name for s in SETTINGS if s.name.startswith("inductor.triton.") and acts(s, name, "autograd")}
        assert len(acting) > 8
        assert ("inductor.triton.cudagraphs" in acting) == DEVICES[name].graphs
        assert not acts(known["inductor.cpp.simdlen"], name, "autograd")


def test_the_cpu_is_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr("torch.accelerator.synchronize", waited.append)
    for device in ("cpu", torch.device("cpu"), "xpu:1"):
        synchronise(device)
    assert waited == ["xpu:1"]
