"""The version of the diagnosis that a finding has, and the diagnosis of an older version."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.judgement.verdict import UNDECIDED, Finding

# 1: stages, ablations of the program compiled in full, the bisector; a fallback to ATen that removed the difference
# 2: switches of memory, layout, passes and fusion before the operator, at the cheapest stage, confirmed by a full
#    compile; excluded causes; a side for every class; the traceback of an exception.
DIAGNOSER = 2
VERSION = "diagnoser"  # the line of a diagnosis that holds the version
EARLIER, TRACEBACK = "earlier_diagnosis.txt", "traceback.txt"  # attachments
NO_TIME = "no time was left; `backfuzz diagnose` runs it"
NO_MORE = f"{UNDECIDED}: it shows no more"  # the side of a finding that no longer reproduces
TOO_LONG = "the {seconds:.0f} s that a diagnosis may take were spent"


def diagnosed_by(finding: Finding) -> int:
    """The version of the diagnosis that a finding has; 0 where it has none."""
    return int(finding.diagnosis.get(VERSION, str(min(1, len(finding.diagnosis)))).partition(",")[0])


def version_line(before: Finding, decided: str) -> str:
    """The line VERSION of a new diagnosis, with the cause (`decided`, see `cause.Cause`) that the one before named."""
    if diagnosed_by(before) == DIAGNOSER:
        return before.diagnosis[VERSION]
    return f"{DIAGNOSER}{f', {_AFTER}{decided}' if before.diagnosis and decided else ''}"


_AFTER = "before it: "


def decided_before(finding: Finding) -> str:
    """The cause that the diagnosis before the present one named; "" where unknown."""
    return finding.diagnosis.get(VERSION, "").partition(_AFTER)[2]


def is_current(finding: Finding) -> bool:
    """Whether the present version diagnosed the finding within its time, or cannot because the finding no longer
    reproduces."""
    if finding.diagnosis.get("side", "").startswith(NO_MORE):
        return True
    return diagnosed_by(finding) >= DIAGNOSER and not any(text.endswith(NO_TIME) for text in finding.diagnosis.values())


def shows_no_more(finding: Finding, torch: str, device: str) -> Finding:
    """The finding, marked as no longer reproducing on the release and device where it was found, so that this version
    cannot diagnose it. Another fault of its cause, or the rounding model, may hide it; its older diagnosis stays."""
    side = f"{NO_MORE} on torch {torch}, {device}, where it was found"
    return replace(finding, diagnosis=finding.diagnosis | {"side": side})


def keep_earlier(finding: Finding, before: Finding) -> dict[str, str]:
    """A new diagnosis' attachments, with those parts of the one before that the new one does not replace."""
    if diagnosed_by(before) in (0, DIAGNOSER):  # no diagnosis before, or the same version again
        return {
            name: before.attachments[name] for name in [EARLIER] if name in before.attachments
        } | finding.attachments
    lines = [f"Version {diagnosed_by(before)} of the diagnosis said:"]
    for table in (before.diagnosis, before.stages, before.ablation):
        lines += ["", *(f"{name}: {text}" for name, text in table.items())]
    for name, text in before.attachments.items():
        if finding.attachments.get(name) != text:
            lines += ["", f"==== {name}", text]
    return finding.attachments | {EARLIER: "\n".join(lines)}
