"""By which version of the diagnosis a finding was diagnosed, and what an older one said."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.judgement.verdict import UNDECIDED, Finding

# 1: stages, ablations of the built program, the bisector; what a fallback to ATen made vanish was convicted.
# 2: switches of memory, layout, passes and fusion before the operator, at the cheapest stage, proved on the built
#    program; what is excluded; a side for every class; the traceback of what raised.
DIAGNOSER = 2
VERSION = "diagnoser"  # the line of a diagnosis that says it
EARLIER, TRACEBACK = "earlier_diagnosis.txt", "traceback.txt"  # attachments
NO_TIME = "no time was left; `backfuzz diagnose` runs it"
NO_MORE = f"{UNDECIDED}: it shows no more"  # how the side is told of what is gone where it was found
TOO_LONG = "the {seconds:.0f} s that a diagnosis may take were spent"


def diagnosed_by(finding: Finding) -> int:
    """The version that a finding was diagnosed by; 0 where it was not."""
    return int(finding.diagnosis.get(VERSION, str(min(1, len(finding.diagnosis)))).partition(",")[0])


def version_line(before: Finding, decided: str) -> str:
    """The line VERSION of a new diagnosis; `decided` by what the one before was (`cause.Cause`)."""
    if diagnosed_by(before) == DIAGNOSER:
        return before.diagnosis[VERSION]
    return f"{DIAGNOSER}{f', {_AFTER}{decided}' if before.diagnosis and decided else ''}"


_AFTER = "before it: "


def decided_before(finding: Finding) -> str:
    """What decided a finding by the version before the one that diagnosed it; "" where that is not known."""
    return finding.diagnosis.get(VERSION, "").partition(_AFTER)[2]


def is_current(finding: Finding) -> bool:
    """Whether this version diagnosed it, and was given the time; or cannot, as it shows no more."""
    if finding.diagnosis.get("side", "").startswith(NO_MORE):
        return True
    return diagnosed_by(finding) >= DIAGNOSER and not any(text.endswith(NO_TIME) for text in finding.diagnosis.values())


def shows_no_more(finding: Finding, torch: str, device: str) -> Finding:
    """The finding, which this version could not diagnose, told to be gone where it was found: a release and a device.
    Another fault of its cause, or the rounding model, may have hidden it; what is known of it stays."""
    side = f"{NO_MORE} on torch {torch}, {device}, where it was found"
    return replace(finding, diagnosis=finding.diagnosis | {"side": side})


def keep_earlier(finding: Finding, before: Finding) -> dict[str, str]:
    """A new diagnosis' attachments, with all that the one before said that is not said again."""
    if diagnosed_by(before) in (0, DIAGNOSER):  # nothing was said, or the same is said again
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
