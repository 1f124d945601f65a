"""A ledger to report on, small but with something of everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fuzzer.judgement.verdict import Natural, Signature
from fuzzer.ledger.faults import State
from fuzzer.ledger.store import CampaignRecord, Store, open_store
from tests.ledger.found import REGIONS, RELU, TWO_OPS, WORST, finding
from tests.ledger.varied import SHAPES, scope

HOSTILE = '<script>alert("1")</script> & <b>'  # what a page must show as it stands
POINTS = [
    {"seconds": s, "programs": s // 2, "new": {}, "features": {"edge": 9 * s, "operand": s}} for s in (10, 20, 40)
]
CAMPAIGN = CampaignRecord("c1", "backfuzz fuzz --seed 7", 7, "2026-01-01T10:00:00+00:00", 40.0,
                          {"programs": 20, "programs_per_s": 0.5, "detectable_share": 0.99, "findings": {"wrong": 1},
                           "progress": POINTS}, {"torch": "2.13.0+cpu", "device": "cpu"})  # fmt: skip
SHOWN = Signature("gradients_agree", "wrong", "backward", "scattered")
NATURAL = TWO_OPS.replace('values="integers", ', "")
WRONG = finding(TWO_OPS, comparisons=(WORST,), detail=HOSTILE, campaign="c1", created="2026-01-01T10:00:30+00:00",
                natural=Natural(NATURAL, SHOWN, "x0.grad: compiled 0.5"),
                diagnosis={"culprit": "inductor's code for x", "bisector": "not run: no time"})  # fmt: skip
RAISES = replace(finding(REGIONS, "raises", created="2026-01-02T10:00:00+00:00"),
                 signature=Signature("compile_does_not_raise", "raises", "forward", "KeyError < body"))  # fmt: skip
APART = finding(RELU, unsupported="setting x", created="2026-01-03T10:00:00+00:00")


def filled(path: Path) -> Store:
    """The ledger in a file: one open fault of a campaign and one other, and one that torch does not promise."""
    store = open_store(path)
    for found in (WRONG, RAISES, APART):
        store.add(found)
    store.add_campaign(CAMPAIGN)
    fault = store.fault_of(WRONG.id).id
    store.triage(fault, State("known", "https://github.com/pytorch/pytorch/issues/180164"), "2026-01-04", "me")
    store.set_scope(scope(*SHAPES, finding=WRONG.id))
    store.note_life(fault, "2.15.0", "cpu", "gone", "2026-01-04")
    return store
