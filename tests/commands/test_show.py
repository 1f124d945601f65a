"""`backfuzz show`."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.commands.calls import FINDING, RELU, call


def test_show_prints_the_minimal_program_and_the_evidence(db: Path) -> None:
    text = call("show", FINDING.id[:4], "--db", db).stdout
    for part in (RELU, FINDING.detail, "reproduced 3 of 3", "inductor.max_fusion_size=1: agree", torch.__version__):
        assert part in text
    assert json.loads(call("show", FINDING.id, "--db", db, "--json").stdout)["stages"] == FINDING.stages
