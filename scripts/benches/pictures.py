"""Pictures for documents: the panel of a campaign as it was drawn last, and the report of a ledger in a browser."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from unittest import mock

import click
from rich.console import Console

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.state import State
from fuzzer.campaign.told import view
from fuzzer.campaign.told.panel import CampaignPanel
from fuzzer.commands import main
from fuzzer.language.errors import NoMachine

_COLUMNS, _LINES = 100, 30  # of the terminal
_EVERY = 2.0  # seconds between two drawings
_PAGE = "1000,720"  # pixels of the report that are shown
_PALETTE = 64  # colours: a third of the file
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def panel_svg(campaign: Campaign, pace: view.Pace) -> str:
    """What a terminal would show of the campaign now."""
    console = Console(record=True, width=_COLUMNS, height=_LINES, file=io.StringIO(), force_terminal=True)
    console.print(CampaignPanel(campaign, pace))
    return console.export_svg(title="backfuzz fuzz")


def photograph_campaign(arguments: tuple[str, ...], svg: Path) -> None:
    """Run `backfuzz fuzz` in a folder of its own; the picture is drawn again while it explores: the last one stays."""

    class Drawn(view.Lines):
        drawn = 0.0

        def update(self, campaign: Campaign) -> None:
            super().update(campaign)
            explores = campaign.totals.programs and campaign.course.state is State.EXPLORING
            if explores and time.monotonic() - self.drawn > _EVERY:
                self.drawn = time.monotonic()
                svg.write_text(panel_svg(campaign, self.pace))

    shown = mock.patch.multiple(view, Lines=Drawn, Live=Drawn)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), shown:
        try:
            main(["fuzz", *arguments], prog_name="backfuzz")
        except SystemExit as ended:  # the command's own way to end; whatever went wrong is told already
            if ended.code:
                raise


def photograph_report(db: Path, png: Path) -> None:
    """The top of a ledger's report as a browser shows it. Raises NoMachine where there is none."""
    from PIL import Image

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise NoMachine(f"no browser for the picture of the report: none of {', '.join(_BROWSERS)} is a command")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        main(["report", "--db", str(db), "--out", str(page)], standalone_mode=False)
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", page.as_uri(),
                   f"--user-data-dir={folder}/profile", f"--window-size={_PAGE}", f"--screenshot={png}"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    Image.open(png).convert("RGB").quantize(_PALETTE).save(png, optimize=True)


@click.command("pictures")
@click.option("--minutes", default="3", show_default=True, help="How long the campaign runs.")
@click.option("--seed", default="1", show_default=True, help="The seed of the campaign.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--backend", default="inductor", show_default=True, help="The backend on trial.")
@click.option("--workers", default="2", show_default=True, help="Processes.")
@click.option(
    "--db",
    type=click.Path(path_type=Path, exists=True),
    default=Path("findings.db"),
    show_default=True,
    help="The ledger of the report; the campaign knows its faults.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/pictures"),
    show_default=True,
    help="The folder for campaign.svg and report.png.",
)
def pictures_command(minutes: str, seed: str, device: str, backend: str, workers: str, db: Path, out: Path) -> None:
    """How do a running campaign and a report look? Draws campaign.svg and report.png anew; needs Chromium."""
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    photograph_report(db, out / "report.png")
    wanted = {"--minutes": minutes, "--seed": seed, "--device": device, "--backend": backend}
    wanted |= {"--workers": workers, "--known": str(db.resolve())}
    photograph_campaign(tuple(text for pair in wanted.items() for text in pair), out / "campaign.svg")
    click.echo(f"{out}: " + ", ".join(f"{path.name} {path.stat().st_size // 1024} kB" for path in out.iterdir()))
