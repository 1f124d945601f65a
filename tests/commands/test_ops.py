"""`backfuzz ops`."""

from __future__ import annotations

import json

from tests.commands.calls import call


def test_ops_lists_every_operation() -> None:
    rows = json.loads(call("ops", "--json").stdout)
    assert sum(row["differentiable"] for row in rows) >= 90
    shown = call("ops").stdout
    assert f"{len(rows)} op(s)" in shown
    core = [row["name"] for row in rows if "core" in row["sets"]]
    assert {line.split()[1] for line in shown.splitlines() if " core " in line} == set(core)
    assert f"`core` ({len(core)} of which" in " ".join(call("fuzz", "--help").stdout.split())
