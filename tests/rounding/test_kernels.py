"""One frozen row for each ATen kernel, and nothing about a kernel anywhere else."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
import torch

from fuzzer.rounding import kernels
from fuzzer.rounding.kernels import KERNELS, UNNAMED, assembled, kernel, named
from fuzzer.rounding.kernels.row import COMPOUND, EXACT, PRIMITIVE, Kernel
from fuzzer.rounding.trace import Ref, Step

FOLDER = Path(kernels.__file__).parent
READERS = sorted(path for path in FOLDER.parent.glob("*.py") if path.name != "__init__.py")
TABLES = sorted(path for path in FOLDER.glob("*.py") if path.name not in ("__init__.py", "row.py", "bounds.py"))
YOUNG = {"_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward"}  # not in every release


def step(op: Any, *args: Any, dtype: torch.dtype = torch.float32) -> Step:
    """A call of an op on tensors of one element, and on scalars."""
    refs = [Ref(0, dtype, (1,), (1,), 0) if a is ... else a for a in args]
    return Step(op, tuple(refs), {}, Ref(1, dtype, (1,), (1,), 0), ())


# ---------------------------------------------------------------- rows


def test_a_row_is_frozen() -> None:
    for field in fields(Kernel):
        with pytest.raises(FrozenInstanceError):
            setattr(KERNELS["exp"], field.name, None)


def test_each_name_stands_once() -> None:
    written = Counter(name for path in TABLES for name in names_in(table_of(path)))
    assert [name for name, count in written.items() if count > 1] == []
    assert {name for name in written if name in KERNELS} == set(KERNELS)


def test_every_row_is_of_an_operation_of_torch_under_its_name() -> None:
    assert [name for name in KERNELS if not hasattr(torch.ops.aten, name) and name not in YOUNG] == []
    assert all(row.name == name for name, row in KERNELS.items())


def test_every_row_states_something_or_says_why_not() -> None:
    for row in KERNELS.values():
        states = Kernel(row.name, unstated=row.unstated) != row
        assert states == (not row.unstated), row.name


def test_a_kernel_that_no_row_names_is_compound() -> None:
    assert named("something_that_torch_does_not_have") is UNNAMED
    assert Kernel("") == UNNAMED
    assert UNNAMED.kind is COMPOUND


def test_an_operation_in_place_has_the_row_of_the_one_that_is_not() -> None:
    assert kernel(step(torch.ops.aten.exp_.default, ...)) is KERNELS["exp"]


def test_a_call_may_be_of_another_kind_than_its_kernel() -> None:
    rule = KERNELS["add"].kind_of
    assert rule is not None
    assert rule(step(torch.ops.aten.add.Tensor, ..., ...)) is PRIMITIVE
    assert rule(step(torch.ops.aten.add.Tensor, ..., ..., 2)) is COMPOUND
    rule = KERNELS["abs"].kind_of
    assert rule is not None
    assert rule(step(torch.ops.aten.abs.default, ...)) is EXACT
    assert rule(step(torch.ops.aten.abs.default, ..., dtype=torch.complex64)) is COMPOUND


def test_a_second_row_of_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="exp has two rows"):
        assembled({"functions": (Kernel("exp"),), "moves": (Kernel("exp"),)})


# ---------------------------------------------------------------- nothing elsewhere


def table_of(path: Path) -> ast.expr:
    """The expression that a module's TABLE is."""
    found = [
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TABLE"
    ]
    assert len(found) == 1, path
    return found[0]


def names_in(table: ast.expr) -> Iterator[str]:
    """The names of its rows: the first argument of each `Kernel` and `each`."""
    for node in ast.walk(table):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Kernel", "each"):
            yield from ast.literal_eval(node.args[0]).split()


def test_only_the_rows_are_found_by_a_steps_name() -> None:
    """Where kernels are recorded and replayed, `.name` is read of a schema's argument and by `name_of` alone; `deaf`
    tells it."""
    allowed = {"argument.name", "op._schema.name", "step.op._schema.name"}
    read = {
        (path.name, ast.unparse(node))
        for path in READERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "name"
    }
    assert {(path, what) for path, what in read if what not in allowed} == {("deaf.py", "self.step.name")}
    assert {path for path, what in read if what in allowed - {"argument.name"}} == {"trace.py"}


def test_no_kernel_is_named_outside_its_row() -> None:
    told = [(path.name, word) for path in READERS for text in texts_of(path) for word in text.split()]
    assert [(name, word) for name, word in told if word in KERNELS] == []


def texts_of(path: Path) -> Iterator[str]:
    """Every text in a module that is not documentation."""
    tree = ast.parse(path.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
