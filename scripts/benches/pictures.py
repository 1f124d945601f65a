"""Pictures for documents: a campaign's panel as it was drawn last, and a ledger's triage screen, on a small and on a
large terminal; the report of a ledger in a browser, wide and on a phone."""

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
from rich.console import Console, RenderableType

from fuzzer.campaign.loop import Campaign
from fuzzer.campaign.state import State
from fuzzer.campaign.told import view
from fuzzer.campaign.told.panel import CampaignPanel
from fuzzer.commands import main
from fuzzer.commands.shared.screen import Screen
from fuzzer.language.errors import NoMachine
from fuzzer.ledger.store import open_store

TERMINALS = ((80, 24), (120, 40))  # columns and lines
DOWN = 12  # the row that is chosen on the triage screen
_EVERY = 2.0  # seconds between two drawings
_PAGES = {"report": (1000, 720), "report-phone": (390, 844)}  # pixels of the report that are shown
_PALETTE = 64  # colours: a third of the file
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def terminal_svg(shown: RenderableType, columns: int, lines: int, title: str) -> str:
    """What a terminal of this size would show."""
    console = Console(record=True, width=columns, height=lines, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    return console.export_svg(title=title)


def panel_svg(campaign: Campaign, pace: view.Pace, columns: int, lines: int) -> str:
    """What a terminal would show of the campaign now."""
    return terminal_svg(CampaignPanel(campaign, pace), columns, lines, "backfuzz fuzz")


def triage_svg(db: Path, columns: int, lines: int) -> str:
    """What a terminal shows once a person has moved down the triage screen."""
    with open_store(db, create=False) as store:
        screen = Screen(store, lambda _: "", lambda: "", "")
        screen.move(DOWN)
        return terminal_svg(screen.shown(lines, columns), columns, lines, "backfuzz triage")


def svg_of(name: str, columns: int, lines: int) -> str:
    """The name of the file of a terminal's picture."""
    return f"{name}-{columns}x{lines}.svg"


def photograph_campaign(arguments: tuple[str, ...], out: Path) -> None:
    """Run `backfuzz fuzz` in a folder of its own; the pictures are drawn again while it explores: the last stay."""

    class Drawn(view.Lines):
        drawn = 0.0

        def update(self, campaign: Campaign) -> None:
            super().update(campaign)
            explores = campaign.totals.programs and campaign.course.state is State.EXPLORING
            if explores and time.monotonic() - self.drawn > _EVERY:
                self.drawn = time.monotonic()
                for size in TERMINALS:
                    (out / svg_of("campaign", *size)).write_text(panel_svg(campaign, self.pace, *size))

    shown = mock.patch.multiple(view, Lines=Drawn, Live=Drawn)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), shown:
        try:
            main(["fuzz", *arguments], prog_name="backfuzz")
        except SystemExit as ended:  # the command's own way to end; whatever went wrong is told already
            if ended.code:
                raise


def photograph_report(db: Path, out: Path) -> None:
    """The top of a ledger's report as a browser shows it. Raises NoMachine where there is none."""
    from PIL import Image

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise NoMachine(f"no browser for the pictures of the report: none of {', '.join(_BROWSERS)} is a command")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        main(["report", "--db", str(db), "--out", str(page)], standalone_mode=False)
        for name, (wide, high) in _PAGES.items():
            # a window is at least 500 pixels wide: a phone is a frame in one
            frame = Path(folder) / f"frame-{name}.html"
            frame.write_text(
                f'<body style="margin:0"><iframe src="{page.name}" width={wide} height={high} frameborder=0>'
            )
            png, window = out / f"{name}.png", f"--window-size={max(wide, 500)},{high}"
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", frame.as_uri(),
                       f"--user-data-dir={folder}/profile", window, f"--screenshot={png}"]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            seen = Image.open(png).convert("RGB").crop((0, 0, wide, high))
            seen.quantize(_PALETTE).save(png, optimize=True)


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
    help="The folder of the pictures.",
)
def pictures_command(minutes: str, seed: str, device: str, backend: str, workers: str, db: Path, out: Path) -> None:
    """How do a running campaign, the triage screen and a report look? Draws all pictures anew; needs Chromium."""
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    photograph_report(db, out)
    for size in TERMINALS:
        (out / svg_of("triage", *size)).write_text(triage_svg(db, *size))
    wanted = {"--minutes": minutes, "--seed": seed, "--device": device, "--backend": backend}
    wanted |= {"--workers": workers, "--known": str(db.resolve())}
    photograph_campaign(tuple(text for pair in wanted.items() for text in pair), out)
    click.echo(f"{out}: " + ", ".join(f"{path.name} {path.stat().st_size // 1024} kB" for path in out.iterdir()))
