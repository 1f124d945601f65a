"""The class that a program's header expects: `# expect: CLASS`, on a line of its own. Plain values; no torch."""

from __future__ import annotations

from fuzzer.judgement.verdict import CLASSES, FINDINGS, UNSUPPORTED
from fuzzer.language.program import Program
from fuzzer.language.text import ParseError

_BEGINS, _ON = "expect:", "on torch "


def expected(program: Program, release: str = "") -> tuple[str, ...]:
    """The classes that a program may show on a release of torch; without a header `agree`. Raises ParseError.

    Clauses are separated by commas, and each begins with a class: `wrong`; `wrong there, agree where it is fixed`,
    which allows both; `agree, wrong on torch 2.11`, whose second clause replaces the others on that release (and on
    2.11.1).
    """
    lines = [(n, line.removeprefix(_BEGINS)) for n, line in enumerate(program.comment, 1) if line.startswith(_BEGINS)]
    number, told = lines[-1] if lines else (1, "agree")
    always, here = list[str](), list[str]()
    for clause in told.split(","):
        name, _, rest = clause.strip().partition(" ")
        if name not in CLASSES:
            raise ParseError(number, 1, f"expect: one of {', '.join(CLASSES)}, not {name!r}")
        if not rest.startswith(_ON):
            always.append(name)
        elif f"{release}.".startswith(f"{rest.removeprefix(_ON)}."):
            here.append(name)
    return tuple(here or always)


def as_expected(shown: str, wanted: tuple[str, ...]) -> bool:
    """Whether a class is one of the expected ones. A known fault may also show as `unsupported`."""
    return shown in wanted or (shown == UNSUPPORTED and any(name in FINDINGS for name in wanted))
