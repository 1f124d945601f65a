"""Guidances compared by real faults: what runs brought is read from their rows, and a run that was cut off goes on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benches.__main__ import main
from benches.guidance import Moment, Run, guidance_summary, picture, run_all
from click.testing import CliRunner

from fuzzer.language.errors import UsageError


def row(seconds: float, cpu: float, told: int, **severities: int) -> dict[str, Any]:
    return {"seconds": seconds, "exploration_cpu_seconds": cpu, "triage_cpu_seconds": cpu / 4, "programs": int(cpu),
            "told": told, "severities": severities}  # fmt: skip


def write(run: Run, campaign: str, *rows: dict[str, Any], cut: str = "") -> None:
    folder = run.folder / ".backfuzz" / "campaigns" / campaign
    folder.mkdir(parents=True)
    (folder / "heartbeat.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + cut)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Of cells one run, of around one that was cut off and went on."""
    cells, around = (Run(arm, 1, tmp_path / f"{arm}-1") for arm in ("cells", "around"))
    write(cells, "a", row(60, 40, 1), row(120, 80, 2, S1=1))
    write(around, "a", row(60, 40, 2, S4=1), cut='{"seconds": 9')
    write(around, "b", row(30, 20, 0), row(60, 40, 3, S2=1, S4=1), row(240, 160, 4, S2=2))
    return [cells, around]


def test_what_a_run_brought_is_added_up_over_its_campaigns(runs: list[Run]) -> None:
    assert [run.minutes() for run in runs] == [2.0, 5.0]
    assert runs[1].moments()[-3:] == [
        Moment(75.0, 60, 2, {"S4": 1}),  # the second campaign has told none again yet
        Moment(100.0, 80, 4, {"S2": 1, "S4": 2}),  # the first campaign's fault, and three keys
        Moment(250.0, 200, 5, {"S2": 2, "S4": 1}),
    ]
    figures = guidance_summary(runs)
    assert figures["common_cpu_hours"] == round(100 / 3600, 2)
    assert figures["arms"]["cells"]["keys"] == 2
    assert figures["arms"]["around"]["keys"] == 5
    assert figures["arms"]["around"]["keys_at_common"] == 4
    assert (figures["runs"]["around 1"]["severe"], figures["runs"]["around 1"]["others"]) == (2, 1)


def test_a_run_goes_on_where_it_was_and_one_that_has_its_minutes_does_not(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ran(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        asked.append((command[4:], how["cwd"]))
        return subprocess.CompletedProcess(command, int(len(asked) > 2))

    monkeypatch.setattr(subprocess, "run", ran)
    fresh = Run("mixture", 3, runs[0].folder.with_name("mixture-3"))
    (runs[0].folder / ".backfuzz" / "corpus").mkdir()
    run_all([*runs, fresh], 4.0, "1m", 2, 1)
    assert [folder for _, folder in asked] == [runs[0].folder, fresh.folder]
    (onward, _), (begun, _) = asked
    assert "--resume" in onward
    assert onward[onward.index("--minutes") + 1] == "2.00"
    assert begun[: begun.index("--staged")] == ["backfuzz", "fuzz", "--guidance", "mixture", "--seed", "3"]
    assert begun[begun.index("--minutes") + 1] == "4.00"
    with pytest.raises(UsageError, match=r"cells 1 ended with 1; .*log.txt says why"):
        run_all(runs, 4.0, "1m", 2, 1)


def test_the_command_tells_and_draws(runs: list[Run], tmp_path: Path) -> None:
    svg = tmp_path / "curves.svg"
    arguments = ["guidance", "--report", "--folder", str(tmp_path), "--seeds", "1", "--svg", str(svg), "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.output)["runs"]) == {"cells 1", "around 1"}
    assert svg.read_text() == picture(runs)
    assert "severe-around-1" in svg.read_text()


def test_an_empty_folder_and_an_unknown_guidance_are_refused(tmp_path: Path) -> None:
    nothing = CliRunner().invoke(main, ["guidance", "--report", "--folder", str(tmp_path)])
    unknown = CliRunner().invoke(main, ["guidance", "--report", "--arms", "luck"])
    assert "no run of these arms has a row" in str(nothing.exception)
    assert "no guidance 'luck'" in str(unknown.exception)
