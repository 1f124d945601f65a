"""Options that several commands take."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fuzzer.commands import main
from fuzzer.commands.shared.options import DURATION, SIZE, TIME, Amount
from tests.commands.calls import call


def test_the_help_says_what_the_default_is() -> None:
    told = " ".join(CliRunner().invoke(main, ["fuzz", "--help"]).output.split())
    assert "Default: one a core, two with a GPU, fewer where RAM or GPU memory has less than a GiB for each" in told


@pytest.mark.parametrize(
    ("kind", "text", "amount"),
    [(DURATION, "14d", 14 * 86400), (DURATION, "1d12h", 129600), (DURATION, "90s", 90), (DURATION, "5", 300),
     (TIME, "90", 90), (TIME, "2m", 120), (SIZE, "1.5G", 1.5 * 2**30), (SIZE, "512m", 2**29), (SIZE, "100", 100)],
)  # fmt: skip
def test_amounts_have_units(kind: Amount, text: str, amount: float) -> None:
    assert kind.convert(text, None, None) == amount


@pytest.mark.parametrize("text", ["", "nan", "inf", "-3h", "12 parsecs", "h", "1h 2", "0", "1e9d"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration: a number and s, m, h, d"):
        DURATION.convert(text, None, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "1000000"), "1000000 is more than this machine can run: at most"),
        (("--minutes", "1", "--duration", "2h"), "say the same"),
        (("--until-plateau", "--unguided"), "goes with a campaign that keeps a corpus"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(options: tuple[str, ...], said: str) -> None:
    done = call("fuzz", "--device", "cpu", *options)
    assert (done.exit_code, said in done.output) == (2, True), done.output
