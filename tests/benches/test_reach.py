"""The faults of corpus/reach: each has a program, a trigger that the program meets, and an entry; draws are counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benches import reach
from benches.__main__ import main
from benches.reach import Tally, reach_summary, tally
from benches.triggers import HEARING, TRIGGERS, triggered
from click.testing import CliRunner

from fuzzer.campaign.parents import Parents
from fuzzer.campaign.plan import AROUND
from fuzzer.judgement.verdict import Signature, Verdict
from fuzzer.language.infer import check_cotangents, infer
from fuzzer.language.text import parse, show
from fuzzer.trial.pipeline import record_reference
from fuzzer.workers.journal import Journal
from fuzzer.workers.messages import Report, Task
from tests.benches.here import Here

TEXTS = {path.stem: path.read_text() for path in sorted(reach.CORPUS.glob("*.prog"))}
HEARING_TEXTS = {path.stem: path.read_text() for path in sorted(reach.CORPUS.with_name("hearing").glob("*.prog"))}
THREADS = json.loads((reach.CORPUS / "threads.json").read_text())
PAGE = (Path(__file__).parents[2] / "docs" / "reach.md").read_text()

# What each report names as decisive, and the same program without it.
WITHOUT = {
    174074: ("data([0, 0])", "data([0])", "i64[2]", "i64[1]"),
    114464: ("v0 = clone(x0)", "v0 = neg(x0)"),
    113641: ("start=1, step=2", "start=1"),
    198131: ("v3 = add_scalar_(x1, other=1.0)", "v3 = add_scalar(x1, other=1.0)"),
    152425: ("v1 = expand(v0, size=(2,))", "v1 = expand(v0, size=(1,))", "dim=0, index=1", "dim=0, index=0",
             "cotangent(f32[2]", "cotangent(f32[1]", "x1 = leaf(f32[2]", "x1 = leaf(f32[1]"),
    198094: ("v1 = zero_(x0)", "v1 = neg(x0)"),
    198010: ("v1 = clone(v0)", "v1 = neg(v0)"),
    93363: (", stride=(2,)", ""),
    188084: ("accumulate=True", "accumulate=False"),
    174963: (", stride=(50, 1, 25, 5)", ""),
    195451: ("returns(v0)\n", ""),
    168358: ("include_self=False, ", ""),
    171493: ("f32[1, 1]", "f32[2, 1]"),
    96290: ('"inductor.cpp.threads": 2', '"inductor.cpp.threads": -1'),
    95189: ("bf16", "f16"),
    191861: ('settings({"inductor.cpp.threads": 2})\n', ""),
    187027: (", dynamic=True", ""),
    183082: ("v2 = t(v1)", "v2 = neg(v1)"),
    193661: (", stride=(3, 12, 1)", ""),
    193492: (", stride=(3, 12, 1)", ""),
    178964: (", stride=(1, 8)", ""),
    185543: ('values="ties"', 'values="normal"'),
    197089: ("e+30", "e+3"),
    183605: ("1e-09", "0.001"),
    113167: ("correction=4.9", "correction=1"),
    174016: ('values="zeros"', 'values="positive"'),
    183250: ("8193", "8192"),
    191499: ("i8[18]", "i32[18]"),
    143568: ("bool[4, 35]", "i32[4, 35]"),
    97758: ("f16", "f32"),
    196681: ("v1 = permute(v0, dims=(3, 2, 1, 0))", "v1 = reshape(v0, shape=(66, 66, 8, 1))"),
    179931: ("2049", "16"),
    185472: ("0.69921875", "0.6875"),
    187336: ("data([100.0])", "data([1.0])"),
    143648: ("n=0", "n=1"),
    185696: ("0.0, 0.5", "0.25, 0.5"),
    183606: ("-0.0", "0.25"),
    189799: ("value=0.0", "value=1.0"),
    143978: ("data([-0.5])", "data([0.5])"),
    186281: ("other=0", "other=1"),
    100466: ("v0 = ge(x0, x1)", "v0 = maximum(x0, x1)"),
    164486: ("i16", "f32"),
    184101: ("v0 = t(x0)", "v0 = neg(x0)"),
    171665: ("with checkpoint():\n    v2", "v2"),
    197888: ("stride=(960, 1, 240, 40, 4), ", ""),
    100987: ("kernel_size=3", "kernel_size=2"),
    94775: ("kernel_size=1", "kernel_size=2"),
    93384: ("dilation=(1, 2), ", ""),
    100793: ("pad=(-1, 0, 6, 6)", "pad=(1, 0, 6, 6)"),
    175154: ("scale_factor=1.3", "scale_factor=1.5"),
    93262: ("size=(1, 1)", "size=(2, 2)", "cotangent(f32[2, 8, 1, 1]", "cotangent(f32[2, 8, 2, 2]"),
    100794: ("x0 = leaf(f32[1, 1, 4, 4]", "x0 = leaf(f32[1, 1, 5, 5]"),
    93849: ("v1, v2 = kthvalue(v0, k=2)", "v1, v2 = kthvalue(x0, k=2)"),
    185509: ("v5 = where(x3, v3, v4)", "v5 = where(x3, v3, v3)"),
    171452: ("v0 = transpose(x0, dim0=1, dim1=2)", "v0 = reshape(x0, shape=(2, 8, 16))"),
    184026: ("output_padding=1, ", ""),
    171622: ("v2 = conv_transpose2d(v1, x2", "v2 = conv_transpose2d(x1, x2"),
    181618: ("v1 = sum(v0, dim=(3,))", "v1 = sum(x0, dim=(3,))"),
    181688: ("v3 = layer_norm(v2, ", "v3 = layer_norm(v1, "),
    181115: (", dynamic=True", ""),
    195320: ("dims=(0, 2, 3, 1)", "dims=(0, 1, 3, 2)"),
    144021: (", dynamic=True", ""),
    110832: ("x2 = leaf(f32[1, 2, 4, 16]", "x2 = leaf(f32[1, 2, 4, 8]"),
    193061: ('"inductor.triton.mix_order_reduction_non_strict_mode": True', '"inductor.max_fusion_size": 4'),
    164059: ("v1 = zero_(v0)", "v1 = neg(v0)"),
    188375: ("bf16", "f32"),
    190758: ('"functorch.activation_memory_budget": 0.0, ', ""),
    96693: ('route("accumulate")', 'route("autograd")'),
    97253: ('settings({"inductor.triton.cudagraphs": True})\n', ""),
    154036: ("    with jacrev(x0):", "    with jacfwd(x0):"),
    151196: ("    with jacfwd(x0):", "    with jacrev(x0):"),
    194706: ("f16", "f32"),
    153679: ("v5 = cat([v4, v3], dim=-1)", "v5 = cat([v4, x1], dim=-1)"),
    183017: ("v2 = sum(v1)", "v2 = prod_all(v1)"),
    193279: ('route("vjp")', 'route("autograd")'),
    91468: ("with hook(scale=2.0):", "with no_grad():"),
    190855: ("v0 = trace(x0)", "v0 = sum(x0)"),
    197090: ("v0 = quantile(x0, dim=1, q=0.25)", "v0 = amax(x0, dim=(1,))"),
    196596: ("beta=0.0", "beta=0.5"),
    197084: ("c64", "f32", "v1 = view_as_real(v0)", "v1 = neg(v0)"),
    188225: ("v3 = acosh(v2)", "v3 = neg(v2)", "v2 = log2(v1)", "v2 = neg(v1)"),
    190417: ("v0 = zeros_like(x0)", "v0 = ones_like(x0)"),
    184893: ("v0, v1 = min(x0, dim=0)", "v0, v1 = max(x0, dim=0)"),
    185517: ("margin=1.7", "margin=1.5"),
    151918: ("data([-1, 0])", "data([1, 0])"),
    97127: ("v0 = argmax(x0, dim=1)", "v0 = amax(x0, dim=(1,))"),
    97124: ("i32", "f32"),
    96487: ("i16", "i32"),
    105190: ("other=-10000.0", "other=10000.0"),
    175791: ("v0 = matmul(x0, x1)", "v0 = matmul(x1, x1)"),
    184088: ("v1 = expand_as(v0, x0)", "v1 = mul(v0, x0)"),
    197887: ("v1 = mul_scalar_(x0", "v1 = mul_scalar_(v0"),
    94960: ("v0 = select(x0, dim=2, index=0)", "v0 = select(x0, dim=1, index=0)"),
    101009: ("v3 = relu(x0)", "v3 = neg(x0)"),
}  # fmt: skip
WITHOUT_HEARING = {
    "186875": ("other=1.7", "other=1.75"),
    "186875_fmod": ("bf16", "f32"),
    "183083": ("other=3.14", "other=3.0"),
    "197895": ("data([1.0, 0.5, 6.0, 7.0])", "data([1.0, 0.5, 6.5, 6.0])", "data([0.1, 0.1, 0.2, 0.7])",
               "data([0.5, 0.25, 0.5, 1.5])"),
    "197895_div": ('rounding_mode="floor"', 'rounding_mode="trunc"'),
    "198133": ("0.9999999999999999, 0.99999999999999, 0.999999999", "0.9, 0.99, 0.999"),
    "187340": ("bf16", "f32"),
    "145466": ("data([0.01, 0.002, 0.005, 1.0])", "data([0.5, 0.25, 0.75, 1.0])"),
    "173793": ("e+37", "e+35"),
    "183901": ("other=1500000000", "other=1500000"),
    "195422": ("p=0.0", "p=0.5"),
    "197829": ("v1 = clone(v0)", "v1 = neg(v0)"),
    "190421": ("dtype=i32", "dtype=f64"),
    "190421_alias": ("v0 = zeros_like(x0)", "v0 = ones_like(x0)"),
    "104505": ("v0 = diagonal(x0)", "v0 = neg(x0)"),
    "188218": ("kernel_size=(0, 0)", "kernel_size=(1, 1)"),
}  # fmt: skip


def test_there_is_a_canonical_program_for_every_trigger_and_no_other() -> None:
    assert set(TEXTS) == set(TRIGGERS)
    assert all(show(parse(text)) == text for text in TEXTS.values())


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_program_names_its_thread_has_types_and_meets_its_own_trigger(name: str) -> None:
    program = parse(TEXTS[name])
    assert re.search(rf"^pytorch/pytorch (issue|pull request) {name.removeprefix('pytorch_')}\.$", program.comment[-1])
    check_cotangents(program, infer(program))
    assert name in triggered(program)


@pytest.mark.parametrize("number", WITHOUT)
def test_without_what_is_decisive_a_program_does_not_meet_its_trigger(number: int) -> None:
    name, changes = f"pytorch_{number}", WITHOUT[number]
    text = TEXTS[name]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    assert name not in triggered(parse(text))


@pytest.mark.parametrize("key", WITHOUT_HEARING)
def test_a_program_of_hearing_meets_its_trigger_only_with_what_is_decisive(key: str) -> None:
    name, changes = f"pytorch_{key}", WITHOUT_HEARING[key]
    text = HEARING_TEXTS[name]
    assert show(parse(text)) == text
    assert name in triggered(parse(text))
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    assert name not in triggered(parse(text))


def test_every_trigger_of_hearing_has_a_program() -> None:
    assert set(HEARING_TEXTS) == set(HEARING) == {f"pytorch_{key}" for key in WITHOUT_HEARING}


def test_every_trigger_is_tried_without_what_is_decisive() -> None:
    assert {f"pytorch_{number}" for number in WITHOUT} == set(TRIGGERS)


def test_every_fault_stands_in_the_list_once_and_each_that_a_program_holds_has_its_program() -> None:
    numbers = [thread["thread"] for thread in THREADS]
    assert len(numbers) == len(set(numbers)) >= 60
    said = {f"pytorch_{thread['thread']}" for thread in THREADS if "missing" not in thread}
    assert said == set(TRIGGERS)
    assert all(re.match("(partly|no): .", thread["missing"]) for thread in THREADS if "missing" in thread)


def test_the_counts_of_the_page_are_those_of_the_list() -> None:
    said = [thread for thread in THREADS if "missing" not in thread]
    partly = sum(thread["missing"].startswith("partly") for thread in THREADS if "missing" in thread)
    detected = [thread["on"] for thread in said if thread.get("shows") not in (None, "unsupported")]
    on = {name: sum(name in releases for releases in detected) for name in ("2.11", "2.13", "2.15")}
    others = sum(not on.keys() & set(releases) for releases in detected)
    met = [thread["met"] for thread in said if thread["met"]]
    text = " ".join(PAGE.split())
    for count in (
        f"A list of {len(THREADS)} faults",
        f"**{len(said)} faults can be expressed.**",
        f"**{partly} can be expressed in part.**",
        f"**{len(THREADS) - len(said) - partly} cannot.**",
        f"12,000 draws (torch 2.13.0, settings of the CPU) met {len(met)} of the {len(said)} triggers",
        f"{len(detected)} faults are detected: {on['2.11']} on 2.11, {on['2.13']} on 2.13, {on['2.15']} on 2.15; "
        f"{others} on other releases alone",
    ):
        assert count in text, count


def test_a_tally_is_of_its_draws_and_the_summary_adds_up() -> None:
    found = tally(Task(seed=3), [(number, None) for number in range(12)])
    assert isinstance(found, Tally)
    assert all(set(met) <= set(range(12)) for met in found.met.values())
    name = "pytorch_93363"
    figures = reach_summary([Tally("", met={name: (7, 3)}), Tally("", met={name: (40,)}, refused=2)], 1000)
    assert figures["rows"][name] == {"hits": 3, "first": 4, "per_million": 3000, "median": 231}
    assert (figures["draws"], figures["refused"], figures["met"], figures["under_20000"]) == (1000, 2, 1, 1)
    assert figures["median"] is None  # most triggers were not met at all


def test_the_bench_draws_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "Pool", Here)
    done = CliRunner().invoke(main, ["reach", "--draws", "10", "--workers", "1", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output)
    assert (figures["draws"], figures["triggers"], figures["died"]) == (10, len(TRIGGERS), 0)


def test_what_mutants_of_its_own_kind_meet_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a trigger's own program, and of any parent that meets the trigger itself."""
    name, other = "pytorch_93363", "pytorch_193279"
    parents = Parents({f"reach/{name}": (TEXTS[name],), "F1": (TEXTS[name],), f"reach/{other}": (TEXTS[other],)})
    monkeypatch.setattr(reach, "Pool", Here)
    monkeypatch.setattr(reach, "shipped_parents", lambda: parents)
    figures = reach.measure_reach(Task(seed=1), 30, 1, AROUND)
    assert figures["mutants"] > 20
    assert figures["rows"][name]["hits"] > 10
    assert 0 < figures["left_out"][name]["own"] < figures["rows"][name]["hits"], "F1 is another cause"
    assert figures["left_out"][name]["any"] == 0
    # another trigger may be met by chance, by a mutant of a parent that does not meet it
    assert figures["met_without_its_own_program"] == figures["met_without_any_parent_that_meets_it"] + 1


@pytest.mark.parametrize("name", sorted(TRIGGERS.keys() - {"pytorch_151918", "pytorch_197887"}))
def test_a_program_runs_in_eager(name: str) -> None:
    """But for two, which torch may refuse."""
    assert record_reference(parse(TEXTS[name]), Task(), Journal(None)).targets


def test_what_is_heard_is_told_by_program(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verdict(Signature("gradients_agree", "wrong", "backward", "scattered"), "x0.grad[2]: compiled 0, eager 1")
    reports = [Report("", (wrong,)), Report("", rejected="torch: no")]
    monkeypatch.setattr(reach, "Pool", Here)
    monkeypatch.setattr(reach, "examine_all", lambda pool, given: reports[: len(given)])
    figures = reach.hear("cpu", 1, (93363, 193279))
    assert figures == {"programs": 2, "wrong": 1, "rejected": 1, "rows": {
        "pytorch_193279": f"wrong: {wrong.signature}", "pytorch_93363": "rejected: torch: no"}}  # fmt: skip
