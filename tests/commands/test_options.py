"""Options that several commands take."""

from __future__ import annotations

from click.testing import CliRunner

from fuzzer.commands import main


def test_the_help_says_what_the_default_is() -> None:
    told = " ".join(CliRunner().invoke(main, ["fuzz", "--help"]).output.split())
    assert "Default: one a core, two with a GPU, fewer where RAM or GPU memory has less than a GiB for each" in told
