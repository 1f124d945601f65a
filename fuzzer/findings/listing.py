"""How faults are listed: what comes first, what stands apart, and the short names of what is told of them."""

from __future__ import annotations

from collections.abc import Sequence

from fuzzer.findings.faults import Fault
from fuzzer.judgement.verdict import CLASSES, UNSUPPORTED


def by_promise(faults: Sequence[Fault]) -> tuple[list[Fault], list[Fault]]:
    """What torch promises, and what it does not."""
    return [f for f in faults if f.verdict != UNSUPPORTED], [f for f in faults if f.verdict == UNSUPPORTED]


def urgency(fault: Fault) -> tuple[int, bool, int]:
    """What a person should look at first: the worst class, what nobody has looked at, what was met most often."""
    return CLASSES.index(fault.verdict), fault.state.name != "new", -fault.occurrences


def devices(fault: Fault) -> list[str]:
    """The devices on which it was seen to live."""
    return sorted({place.split(" ")[1] for place in (*fault.lives_on, *fault.gone_on)})


def releases(fault: Fault) -> list[str]:
    """The releases on which it lives."""
    return sorted({place.split(" ")[0] for place in fault.lives_on})


def short_issue(url: str) -> str:
    """`pytorch#180164` for an issue or pull request on GitHub; any other text as it is."""
    parts = url.split("/")
    return f"{parts[4]}#{parts[6]}" if url.startswith("https://github.com/") and len(parts) == 7 else url


def short_title(fault: Fault) -> str:
    """A fault's title, with the short name of torch.nn.functional."""
    return fault.title.replace("torch.nn.functional.", "F.")
