"""What is asked of a script's tensors."""

from __future__ import annotations

import sys
from pathlib import Path

from fuzzer.diagnosis.look import look

SIDES = """import sys, torch
sys.excepthook = None
eager = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
exact = eager.double()
compiled = eager.clone()
compiled[1, 0] = {value}
sys.exit(1)
"""


def script(folder: Path, text: str) -> str:
    path = folder / "repro.py"
    path.write_text(text)
    return str(path)


def test_the_worst_element_and_both_comparisons_are_told(tmp_path: Path) -> None:
    hook = sys.excepthook
    [row] = look(script(tmp_path, SIDES.format(value="float('nan')")))
    assert sys.excepthook is hook
    assert (row["index"], row["eager"], row["off"], row["total"]) == ([1, 0], 3.0, 1, 4)
    assert row["compiled"] != row["compiled"]
    assert "Mismatched elements: 1 / 4" in row["close"]
    assert row["same"] is False


def test_what_is_close_is_called_close(tmp_path: Path) -> None:
    [row] = look(script(tmp_path, SIDES.format(value="3.0000002")))
    assert (row["close"], row["same"], row["index"]) == ("", True, [1, 0])
    nan = SIDES.format(value="3.0").replace("4.0", "float('nan')")
    assert look(script(tmp_path, nan))[0]["close"] == "", "NaN on both sides is no difference"


def test_of_several_tensors_each_is_told_that_all_runs_have(tmp_path: Path) -> None:
    text = SIDES.format(value="0.0").replace(
        "sys.exit(1)", "compiled, eager, exact = ({'v0': t, 'x0.grad': None} for t in (compiled, eager, exact))"
    )
    [row] = look(script(tmp_path, text))
    assert row["name"] == "v0"


def test_a_script_that_compares_no_tensors_has_nothing_to_tell(tmp_path: Path) -> None:
    assert look(script(tmp_path, "print('both ran')")) == []


def test_without_a_compiler_eager_is_held_against_what_it_ought_to_be(tmp_path: Path) -> None:
    text = SIDES.format(value="7.0").replace("compiled", "contiguous")
    [row] = look(script(tmp_path, text))
    assert (row["against"], row["eager"], row["compiled"]) == ("contiguous inputs", 3.0, 7.0)
    assert "Mismatched elements: 1 / 4" in row["close"]
    [row] = look(script(tmp_path, text.replace("contiguous", "unused").replace("exact = eager", "exact = 2 * eager")))
    assert (row["against"], row["compiled"]) == ("float64", 8.0)
    [row] = look(script(tmp_path, text.replace("contiguous", "differences").replace("exact", "unused")))
    assert (row["against"], row["compiled"]) == ("a central difference in float64", 7.0)


def test_where_a_compiler_runs_too_torchs_control_flow_is_held_against_plain_python(tmp_path: Path) -> None:
    text = SIDES.format(value="3.0").replace("sys.exit", "plain = eager + 1\nsys.exit")
    [row] = look(script(tmp_path, text))
    assert (row["against"], row["eager"] + 1) == ("plain Python", row["compiled"])
    assert row["close"]
