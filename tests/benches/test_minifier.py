"""The run of PyTorch's own minifier: what is counted in a repro, why there is none, and one real run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from benches import kept, minifier
from benches.minifier import (
    Ended,
    fault_class,
    files,
    innermost,
    minify,
    nodes,
    run_process,
    starts,
    without_switches,
    written,
)

from fuzzer.language.interpret import materialise, to_function
from fuzzer.language.text import parse

AFTER_AOT = """
import os
os.environ['TORCHDYNAMO_REPRO_AFTER'] = 'aot'
os.environ['TORCHDYNAMO_REPRO_LEVEL'] = '4'
os.environ['TORCH_LOGS'] = ''
import torch
from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('_tensor_constant0', torch.tensor(1.0))



    def forward(self, primals_1, tangents_1):
        _tensor_constant0 = self._tensor_constant0
        topk = torch.ops.aten.topk.default(primals_1, 2);  primals_1 = None
        getitem = topk[0]
        getitem_1 = topk[1];  topk = getitem_1 = None
        mul = torch.ops.aten.mul.Tensor(getitem, tangents_1);  getitem = tangents_1 = None
        add = torch.ops.aten.add.Tensor(mul, _tensor_constant0);  mul = _tensor_constant0 = None
        return (add,)

def load_args(reader):
    buf0 = reader.storage('0a1b', 16)
    reader.tensor(buf0, (4,), is_leaf=True)  # primals_1
    buf1 = reader.storage(None, 8)
    reader.tensor(buf1, (2,), is_leaf=True)  # tangents_1
load_args._version = 0
mod = Repro()
"""
AFTER_DYNAMO = """
class Repro(torch.nn.Module):
    def forward(self, L_x0_ : torch.Tensor, L_x1_ : torch.Tensor):
        l_x0_ = L_x0_
        v0 = torch.sin(l_x0_);  l_x0_ = None
        v1 = v0.T;  v0 = None
        v2 = v1 + L_x1_;  v1 = None
        return (v2,)
"""
SMALL = """
program(1)
settings({"inductor.cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
x0 = leaf(f32[4], seed=1)
v0 = sin(x0)
v1 = relu(v0)
v2 = sum(v1, dim=0)
backward(v2, cotangent(f32[()], seed=2))
"""


@pytest.mark.parametrize(("text", "count"), [(AFTER_AOT, 3), (AFTER_DYNAMO, 3)])
def test_operations_are_counted_and_nothing_else_of_a_graph(text: str, count: int) -> None:
    assert nodes(text) == count


def test_only_inputs_that_lie_in_files_are_counted_as_files() -> None:
    assert (files(AFTER_AOT), files(AFTER_DYNAMO)) == (1, 0)


def test_the_switches_are_taken_out_of_a_launcher_and_nothing_else() -> None:
    lost = set(AFTER_AOT.splitlines()) - set(without_switches(AFTER_AOT).splitlines())
    assert lost == {
        f"os.environ['TORCHDYNAMO_REPRO_{name}'] = '{value}'" for name, value in (("AFTER", "aot"), ("LEVEL", "4"))
    }


def test_the_reason_is_what_made_torch_pass_a_graph_by_else_the_last_exception() -> None:
    log = "E1121 06:49:46.308000 26004 torch/_dynamo/debug_utils.py:440] [0/0] "
    passed = (
        f"{log}which is likely an unrelated issue.\n{log}ValueError: expected 12\ntorch._dynamo.exc.OtherError: late\n"
    )
    assert Ended(2, passed, 1.0).reason == "passed by, the comparison raised ValueError: expected 12"
    assert Ended(2, passed.replace("unrelated", "x"), 1.0).reason == "OtherError: late"
    assert Ended(0, "both ran\n", 1.0).reason == "exit code 0, both ran"
    assert Ended(None, passed, 1.0).reason == "the deadline ended it"


def test_the_innermost_exception_is_what_a_repro_must_raise_again() -> None:
    told = "raises: the forward raised InductorError: CppCompileError: C++ compile error"
    assert innermost(told) == "CppCompileError: C++ compile error"


def test_past_the_deadline_a_process_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = "import time; time.sleep(3); open('late', 'w')"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    ended = run_process(["-c", parent], tmp_path / "run", 1.0)
    assert ended.code is None
    assert ended.seconds < 30
    time.sleep(3)
    assert not (tmp_path / "run" / "late").exists()


def test_a_process_sees_no_compiler_switch_but_those_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    code = "import os; print(sorted(name for name in os.environ if 'TORCH' in name))"
    added = minifier.switches("aot", 4)
    assert run_process(["-c", code], tmp_path / "run", 60.0, added).last == str(sorted(added))


def repro(path: Path, text: str) -> Path:
    path.write_text("import torch\n" + text)
    return path


FORWARD = """
class Repro(torch.nn.Module):
    def forward(self, L_x0_):
        return (L_x0_ * 2,)
mod = Repro()
def load_args(reader):
    buf0 = reader.storage(None, 16)
    reader.tensor(buf0, (4,), requires_grad=True, is_leaf=True)
load_args._version = 0
if __name__ == '__main__':
    from torch._dynamo.repro.after_dynamo import run_repro
"""


@pytest.mark.parametrize(
    ("factor", "verdict", "kept_"),
    [(2, "wrong", False), (3, "wrong", True), (3, "raises", False), (None, "raises", True)],
)
def test_the_oracles_look_at_a_repros_gradients(
    factor: int | None, verdict: str, kept_: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(module: torch.nn.Module, fullgraph: bool) -> Callable[..., tuple[torch.Tensor]]:
        def call(x: torch.Tensor) -> tuple[torch.Tensor]:
            if factor is None:
                raise RuntimeError("unknown exception")
            x = x.clone()
            x.register_hook(lambda grad: grad * factor / 2)
            return (x * 2,)

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    assert kept.check_kept(repro(tmp_path / "repro.py", FORWARD), verdict)["kept"] is kept_


STARTS = starts()


@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_big_says_what_is_wrong_with_it_and_runs_in_eager(name: str) -> None:
    program = STARTS[name]
    assert len(program.nodes) >= 20
    assert fault_class(program) in minifier.LEVELS
    assert len(to_function(program)(*materialise(program.leaves).values())) == len(program.outputs)
    compile(written(program, fault_class(program), "cpu"), name, "exec")


@pytest.mark.slow
def test_a_row_says_what_the_minifier_left(tmp_path: Path) -> None:
    row = minify(parse(SMALL), "raises", tmp_path, "dynamo", 240.0, level=2)
    text = (tmp_path / "small" / "repro.py").read_text()
    assert (row.there, row.launched, row.repro) == (True, True, True)
    assert row.theirs
    assert row.ours
    assert row.nodes == nodes(text) >= 1
    assert row.lines == len(text.splitlines()) > 10
    assert row.seconds > 0


def test_a_program_without_a_fault_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minifier, "run_process", lambda *_: Ended(0, '{"kept": false, "how": "agree"}\n', 1.0))
    row = minify(parse(SMALL), "raises", tmp_path, "aot", 1.0)
    assert (row.there, row.repro, row.note) == (False, False, "no fault here: agree")
