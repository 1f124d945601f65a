"""Programs around which a campaign looks: where they are read from, and whose turn it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fuzzer.campaign.parents import Parents, by_ops, parents_in, shipped_parents
from fuzzer.language.errors import UsageError
from fuzzer.language.text import parse

ROOT = Path(__file__).parents[2]


def text(op: str, seed: int = 0) -> str:
    return f"""program(1)
route("autograd")
x0 = leaf(f32[3], seed={seed})
v0 = {op}(x0)
backward(v0, cotangent(f32[3]))
"""


def test_programs_of_the_same_ops_are_of_one_cause() -> None:
    found = by_ops(parse(text(op, seed)) for op, seed in [("exp", 1), ("sin", 1), ("exp", 2), ("exp", 1)])
    assert {name: len(texts) for name, texts in found.causes.items()} == {"exp": 2, "sin": 1}


def test_each_round_gives_every_cause_its_turn_and_depends_on_seed_and_number_alone() -> None:
    parents = Parents({"a": ("a0",), "b": tuple(f"b{n}" for n in range(40)), "c": ("c0", "c1")})
    drawn = [parents.of(3, number) for number in range(300)]
    assert Counter(cause for cause, _ in drawn) == {"a": 100, "b": 100, "c": 100}
    assert all(len({cause for cause, _ in drawn[turn : turn + 3]}) == 3 for turn in range(0, 300, 3))
    assert len({chosen for cause, chosen in drawn if cause == "b"}) > 30
    assert drawn == [parents.of(3, number) for number in range(300)] != [parents.of(4, number) for number in range(300)]
    assert all(chosen[0] == cause for cause, chosen in drawn)


def test_parents_are_read_from_files_folders_and_ledgers(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "one.prog").write_text(text("exp"))
    (tmp_path / "below" / "two.prog").write_text(text("sin"))
    assert list(parents_in(tmp_path / "one.prog").causes) == ["exp"]
    both = parents_in(tmp_path)
    assert sorted(both.causes) == ["exp", "sin"]
    ledger = parents_in(ROOT / "findings.db")
    assert all(name.startswith("F") and texts for name, texts in ledger.causes.items())
    assert any("unfold" in chosen for chosen in ledger.causes["F1d9e8ad"])
    assert sum(map(len, ledger.causes.values())) > len(ledger.causes) > 200
    joined = ledger | both | both
    assert joined.causes == {**ledger.causes, **both.causes}


def test_they_are_kept_beside_a_corpus(tmp_path: Path) -> None:
    parents = by_ops([parse(text("exp")), parse(text("sin", 4))])
    parents.write(tmp_path)
    assert Parents.read(tmp_path) == parents
    with pytest.raises(UsageError, match="no parents to go on with"):
        Parents.read(tmp_path / "none")


def test_those_that_are_shipped_are_the_reported_faults_torchs_samples_and_the_ledgers_faults() -> None:
    causes = shipped_parents().causes
    kinds = Counter(name.partition("/")[0] for name in causes if "/" in name)
    assert {name for name in causes if "/" not in name} == set(parents_in(ROOT / "findings.db").causes)
    reported = {f"reach/{path.stem}": parse(path.read_text()) for path in (ROOT / "corpus" / "reach").glob("*.prog")}
    assert {name: parse(*causes[name]) for name in causes if name.startswith("reach/")} == reported
    assert kinds["opinfo"] > 400
    ops = {
        node.op
        for name, texts in causes.items()
        if name.startswith("opinfo/")
        for t in texts
        for node in parse(t).nodes
    }
    assert len(ops) > 400
