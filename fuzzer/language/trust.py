"""Limits on texts that strangers may have written: settings whose names or values start programs or name paths and
networks, sizes that no machine should allocate, characters that a terminal obeys. No torch."""

from __future__ import annotations

import re

from fuzzer.language.program import Shape, Value, extent

MOST_CHARACTERS = 4 * 2**20  # the largest text in the corpus has 6000
MOST_ELEMENTS = 2**28  # of a leaf's storage: 2 GiB in float64, where a worker has 12 GiB
MOST_INTEGER = 2**63  # torch's own

# Parts of names of settings that start programs, or make torch read, write, load or send the file that the value names.
_NAMES = re.compile(
    r"(^|\.)_|(^|[._])(dir|path|root|home|folder|file|files|url|cxx|compiler|command|remote|upload|tar|lib|libs|library|log|logpath|"
    r"logging|dump|repro|override|class|hook|metadata|package|trace|worker|subproc|"
    r"serialized|cross|embed|save|load|profile|pass)([._]|$)|compile_threads$"
)
_WORD = re.compile(r"[\w,.:+-]*", re.ASCII)  # a string that is no path, no flag, and not two words
# All control characters except tab, line feed and carriage return; Unicode's marks of direction and of line ends.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def why_refused(name: str, value: Value) -> str:
    """Why a text may not contain this setting; "" where it may."""
    _, _, key = name.partition(".")
    if _NAMES.search(key):
        return f"the setting {name} names programs, paths or networks, which no program's text may"
    if isinstance(value, str) and not (_WORD.fullmatch(value) and not value.startswith("-")):
        return f"the setting {name} has the value {value!r}: a text's is a number, True, False, None or a word"
    if isinstance(value, tuple) and not all(isinstance(part, bool | int | float) for part in value):
        return f"the setting {name} has the value {value!r}: a tuple holds numbers alone"
    return ""


def too_large(shape: Shape, stride: Shape, offset: int) -> bool:
    """Whether a storage has more elements than any machine should allocate for a leaf."""
    return extent(shape, stride, offset) > MOST_ELEMENTS or any(size > MOST_ELEMENTS for size in shape)


def control_character(text: str) -> re.Match[str] | None:
    """The first character that a terminal would obey, or that hides the end of a line."""
    return _CONTROL.search(text)


def harmless(text: str) -> str:
    """The text with such characters written out: \\x1b."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
