"""The page: self-contained, well-formed, and readable in a browser as narrow as a phone."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import xml.etree.ElementTree as Xml
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from fuzzer.export import page as pages
from fuzzer.export.gather import Contents, of_campaign, of_ledger
from fuzzer.export.page import page
from tests.export.reported import HOSTILE, NATURAL, RAISES, TWO_OPS, WRONG, filled

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Contents]:
    """A ledger, and its campaign."""
    folder = tmp_path_factory.mktemp("page")
    with filled(folder / "findings.db") as store:
        return of_ledger(store, folder), of_campaign(store, "c1", folder)


@pytest.fixture(scope="module")
def text(contents: tuple[Contents, Contents]) -> str:
    return page(contents[0], "now")


def tree(text: str) -> Xml.Element:
    assert text.startswith("<!DOCTYPE html>\n")
    return Xml.fromstring(text.partition("\n")[2])


def said(text: str) -> str:
    return " ".join("".join(tree(text).itertext()).split())


def test_it_is_well_formed_and_each_open_fault_has_its_program_evidence_and_releases(
    text: str, contents: tuple[Contents, Contents]
) -> None:
    shown = {node.get("id"): " ".join("".join(node.itertext()).split()) for node in tree(text).iter("details")}
    for fault in contents[0].open:
        assert fault.title in shown[fault.id]
        assert " ".join(contents[0].findings[fault.id].program.split()) in shown[fault.id]
    wrong = shown[contents[0].open[0].id]
    evidence = ("x0.grad[0]", "inductor's code for x", "first bad 2.13.0", "fixed in 2.15.0", "pytorch#180164")
    for part in (*evidence, WRONG.id, "the wrong sum is the right one times n / (n - k)", "1.53846 (20/13)"):
        assert part in wrong
    natural, minimal = (wrong.index(" ".join(program.split())) for program in (NATURAL, TWO_OPS))
    assert natural < wrong.index("x0.grad: compiled 0.5") < minimal < wrong.index("x0.grad[0]")
    assert "no time" not in wrong  # what was not run is left out
    assert "1 of what torch does not promise" in said(text)


def test_it_needs_no_other_file_and_runs_nothing(text: str) -> None:
    elements = "script|link|iframe|object|embed|img|image|video|audio|form"
    fetched = rf"""\b(?:src|srcset|data|action|poster)\s*=\s*["']|@import|url\((?!#)|<(?:{elements})\b"""
    outside = re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)
    assert not re.findall(fetched, outside)
    links = set(re.findall(r'href="([^#"][^"]*)"', outside))
    assert links == {"https://github.com/pytorch/pytorch/issues/180164"}


def test_what_programs_and_people_wrote_is_shown_as_it_stands(text: str) -> None:
    assert HOSTILE not in text
    assert html.escape(HOSTILE, quote=False) in text or HOSTILE in said(text)
    assert " ".join(TWO_OPS.split()) in said(text)


def test_an_issue_that_is_no_web_address_is_no_link(contents: tuple[Contents, Contents]) -> None:
    ledger = contents[0]
    fault = replace(ledger.open[0], state=replace(ledger.open[0].state, issue="javascript:alert(1)"))
    made = page(replace(ledger, faults=[fault]), "now")
    assert "javascript:alert(1)" in said(made)
    assert 'href="javascript' not in made


def test_beyond_some_faults_the_others_have_a_line_each(
    contents: tuple[Contents, Contents], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_SHOWN", 1)
    made = said(page(contents[0], "now"))
    assert "1 more open fault(s), a line each" in made
    assert contents[0].open[1].id in made
    assert f"finding {RAISES.id}" not in made


def test_a_campaign_tells_its_own(contents: tuple[Contents, Contents]) -> None:
    made = said(page(contents[1], "now"))
    assert made.startswith("Campaign c1")
    assert "1 open fault(s), 0 closed, 0 of what torch" in made
    assert "slice_scatter" in made


def test_an_empty_ledger_has_a_page() -> None:
    assert "No open faults." in said(page(Contents("nothing", (), {}), "now"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_chromium_shows_it_without_complaint_and_on_a_phone_nothing_sticks_out(text: str, tmp_path: Path) -> None:
    opened = text.replace('<details class="fault"', '<details open="" class="fault"')
    outer = f"""<!DOCTYPE html><iframe width="360" height="640" srcdoc="{html.escape(opened)}"></iframe><p></p><script>
    const frame = document.querySelector("iframe");
    frame.onload = () => {{ const d = frame.contentDocument, seen = s => d.querySelectorAll(s).length;
      document.querySelector("p").textContent = "seen " + [d.documentElement.scrollWidth, seen("details.fault"),
        seen("svg"), [...d.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().height > 50).length] }};
    </script>"""
    path = tmp_path / "outer.html"
    path.write_text(outer)
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--enable-logging=stderr", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"<p>seen ([\d,]+)</p>", done.stdout)
    assert found, done.stderr
    width, faults, drawn, high = map(int, found.group(1).split(","))
    assert (width <= 360, faults, drawn, high) == (True, 2, 4, 4)
    assert "CONSOLE" not in done.stderr
