"""The documentation builds into a site without a warning (a link that leads nowhere is one) and has every option."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from fuzzer.commands import main

pytest.importorskip("sphinx", reason="the extra `docs` is not installed: scripts/test installs it")

ROOT = Path(__file__).parent.parent


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What scripts/docs does, of any folder and into any folder."""
    [line] = [line for line in (ROOT / "scripts" / "docs").read_text().splitlines() if "-m sphinx" in line]
    options = [word for word in line.partition("-m sphinx ")[2].split(" -c ")[0].split() if word.startswith("-")]
    assert "-W" in options
    command = [sys.executable, "-m", "sphinx", *options, "-c", ROOT / "docs", "-d", out / "doctrees", source, out]
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning_and_every_document_is_a_page(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    documents = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert not [str(page) for page in documents if not (tmp_path / page).exists()]
    options = (tmp_path / "docs" / "reference" / "options.html").read_text()
    for name in main.modules:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                assert f'id="cmdoption-backfuzz-{name}-{option.lstrip("-")}"' in options, (name, option)
    python = (tmp_path / "docs" / "reference" / "python.html").read_text()
    assert 'id="backfuzz.check"' in python
    reach, measurements = ((tmp_path / "docs" / f"{name}.html").read_text() for name in ("reach", "measurements"))
    assert "pytorch/pytorch/issues/193279" in reach
    assert "faults are confirmed, live on torch" in measurements


def test_links_that_lead_nowhere_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[one](nowhere.md)\n\n[two](index.md#lost)\n")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "WARNING" in line and "'nowhere.md'" in line], done.stderr
    assert [line for line in done.stderr.splitlines() if "WARNING" in line and "'lost'" in line], done.stderr
