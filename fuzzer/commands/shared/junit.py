"""Replayed programs as JUnit XML, which CI systems read: the part of the format that its schemas have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from xml.etree import ElementTree

from fuzzer.commands.shared.replayed import Replayed

# What XML 1.0 cannot hold, not even escaped (its section 2.2).
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(found: Sequence[Replayed], properties: Mapping[str, str], started: str) -> bytes:
    """A suite with a case for each program: one that shows another class than wanted failed, one that could not run is
    an error.

    properties   of the run.  started   when, in ISO 8601, without a zone.
    """
    failures = sum(one.ran and not one.passed for one in found)
    counts = {"tests": len(found), "failures": failures, "errors": sum(not one.ran for one in found), "skipped": 0}
    told = {name: str(count) for name, count in counts.items()} | {"time": f"{sum(one.seconds for one in found):.3f}"}
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {"name": "backfuzz", **told, "timestamp": started})
    listed = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        ElementTree.SubElement(listed, "property", {"name": name, "value": _text(value)})
    for one in found:
        _case(suite, one)
    ElementTree.indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root) + b"\n"


def _case(suite: ElementTree.Element, one: Replayed) -> None:
    path = PurePath(one.program)
    folder = ".".join(part for part in path.parent.parts if part not in ("/", "..")) or "backfuzz"
    case = {"classname": _text(folder), "name": _text(path.name), "time": f"{one.seconds:.3f}"}
    element = ElementTree.SubElement(suite, "testcase", case)
    if not one.passed:
        kind = "failure" if one.ran else "error"
        trouble = ElementTree.SubElement(element, kind, {"message": _text(one.head), "type": one.shown})
        trouble.text = _text("\n".join([f"{one.program}: {one.head}", *one.evidence]))
    if one.stderr:
        ElementTree.SubElement(element, "system-err").text = _text(one.stderr)


def _text(text: str) -> str:
    return _NO_CHARACTER.sub("?", text)
