"""A finding as a standalone script, a pure function of the Finding.

The script imports torch and the standard library only. Its exit code is 1 while the fault exists, 0 when it is gone and
2 where it could not run (no such device, setting or operation), or where the machine is another than the one on which
it showed the fault, and so cannot tell.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from fuzzer.export.checks import CHECKS, check_lines, compares_values
from fuzzer.export.inputs import inputs
from fuzzer.export.loops import MODULE, eager_loops_wrongly, plain_loops
from fuzzer.export.machine import ONE_THREAD, PERTURBED, Machine
from fuzzer.export.sides import Sides
from fuzzer.judgement.verdict import BOTH, CHOICE, EAGER, EAGER_DIES, Finding, Signature
from fuzzer.language import tuning
from fuzzer.language.errors import UsageError
from fuzzer.language.interpret import python_value
from fuzzer.language.private import CONFIGS
from fuzzer.language.program import Program, Value, canonical
from fuzzer.language.regions import ambient_settings
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import write_function
from fuzzer.language.settings import ONE_CONFIG
from fuzzer.language.text import parse
from fuzzer.ledger.title import MOST, title


class ExportError(UsageError):
    """A finding that has no form as a script; the message says why."""


def repro(
    finding: Finding,
    drawn: bool = False,
    name: str = "",
    alone: bool = True,
    machine: Machine | None = None,
    fixed: Sequence[str] = (),
) -> str:
    """A standalone Python script that shows the finding. Raises ExportError, UnknownOp or UnknownRecipe.

    drawn    whether normal values come from torch.randn and layouts from views: as people write them, with other
             numbers than the trial's.
    name     the finding's name in the script; by default its id, which differs for its natural program.
    alone    whether a fault of eager is shown without a compiler, where the evidence says how.
    machine  where the script showed the fault. The script says so, and on another machine it does not call what it
             does not show gone.
    fixed    lines that make the process like a worker's: `machine.PERTURBED`, `machine.ONE_THREAD`.
    """
    program = _plainly_named(parse(finding.program))
    sides = Sides(finding, program, drawn)
    if program.route.name not in ROUTES:
        raise ExportError(f"no script for route {program.route.name!r} yet; it knows {', '.join(ROUTES)}")
    route = ROUTES[program.route.name]
    needed = dict((*program.settings, *route.settings, *ambient_settings(program)))
    config = needed.pop(ONE_CONFIG, tuning.ALL)
    looped = eager_loops_wrongly(finding, program)  # the trial's eager ran plain Python
    body = write_function(program, control="control.") if looped else write_function(program)
    outside = route.script.write(program)  # of the compiled function: the backward, and the regions around it
    functional = ", torch.nn.functional as F" if re.search(r"\bF\.", "\n".join([*body, *outside])) else ""
    check = _ended(check_lines(sides, alone), machine is not None)
    if not looped and "compile" not in "\n".join([*body, *outside, *check]):
        needed = {name: value for name, value in needed.items() if not name.startswith(_OF_COMPILED)}
    settings = [f"{_setting(name)} = {_value(value)}" for name, value in needed.items()]
    configs = sorted({name.rpartition(".config.")[0] + ".config" for name in settings})
    child = any("subprocess" in line for line in check)
    clib = "ctypes, " * (PERTURBED in fixed)
    imports = [f"import {clib}os{', subprocess' if child else ''}, sys, torch{functional}"]
    tuned = tuning.IMPORTS if config != tuning.ALL else ()
    imports += [f"import {name}" for name in sorted({*configs, *tuned, *route.script.imports})]
    imports += ["import flag_gems"] if sides.gems else []
    imports += MODULE if looped else []
    parts = [
        [*_header(finding, name or finding.id, machine), *imports, _EXIT_2_ON_ERROR, *sides.needs, *fixed, *settings],
        *([tuning.write(config)] if tuned else []),
        *inputs(sides),
        body,
        *([plain_loops(program)] if looped else []),
        outside,
        *([_GEMS] if sides.gems else []),
        *([_PARTS] if sides.complex and compares_values(finding.signature) else []),
        machine.ending(ONE_THREAD not in fixed) if machine is not None else [],
        check,
    ]
    parts = [part for part in parts if part]
    return "\n\n".join("\n".join(part).replace("\n\n\n", "\n\n") for part in parts) + "\n"


_OF_COMPILED = ("inductor.", "functorch.")  # settings that nothing reads where no compiler runs


def _plainly_named(program: Program) -> Program:
    """The program under names that do not clash with the script's own."""
    names = [leaf.name for leaf in program.leaves] + [name for node in program.nodes for name in node.outs]
    return program if all(re.fullmatch(r"[xv]\d+", name) for name in names) else canonical(program)


# An uncaught exception would end Python with 1, which means that the fault exists.
_EXIT_2_ON_ERROR = "sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(2))"
_PARTS = [
    "def parts(t):  # real and imaginary ones along a last dimension",
    "    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t",
]
_GEMS = ["def in_flag_gems(call, *args):", "    with flag_gems.use_gems():", "        return call(*args)"]


def _setting(name: str) -> str:
    prefix, _, key = name.partition(".")
    if prefix not in CONFIGS:
        raise ExportError(f"no setting {name!r}: a name starts with {', '.join(CONFIGS)}")
    return f"{CONFIGS[prefix]}.{key}"


def _value(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) and value.isidentifier() else python_value(value)


def _ended(check: list[str], by_end: bool) -> list[str]:
    """The lines of a check, whose last is `sys.exit(int(CONDITION))`, ended by the script's `end` instead."""
    *lines, last = check
    told = re.fullmatch(r"sys\.exit\(int\((.*)\)\)", last)
    if told is None:
        raise ValueError(f"a check must end in sys.exit(int(...)), not in {last!r}")
    return [*lines, f"end({told[1]})"] if by_end else check


def _header(finding: Finding, name: str, machine: Machine | None) -> list[str]:
    """The script's first lines: its title, and where it showed the fault, else where that was found."""
    place = finding.place
    found = ", ".join([*([f"torch {place['torch']}"] if "torch" in place else []), place.get("device", "cpu")])
    where = f"Found on {found}" if machine is None else f"Shows on {machine}"
    return [
        f"# backfuzz {name}: {one_line(title(finding), MOST)}",
        f"# {where}. Exits 1 while it shows, 0 when gone, 2 where that cannot be told.",
    ]


# The headline of a finding by its class; its oracle's in `CHECKS` goes first.
_TITLES = {
    "raises": "raises, eager does not",
    "crashes": "crash",
    "hangs": "does not end",
    "eager-suspect": "eager's result is outside rounding",
    "nonfinite-differs": "result is finite on one side alone",
    "rounding-sensitive": "result differs beyond consistent rounding",
    "narrowing-sensitive": "a rounding to half precision is dropped",
    "nondeterministic": "two runs on equal inputs differ",
    "signed-zero": "zeros of another sign than eager's",
}


def headline(finding: Finding) -> str:
    """A finding in one line: the side, its error, the direction."""
    signature = finding.signature
    backend = "eager" if finding.side == EAGER_DIES else finding.place.get("backend", "inductor")
    wrong = f"wrong {'gradient' if signature.direction == 'backward' else 'result'}"
    if finding.side in (EAGER, BOTH):
        return f"[eager{f', {backend}' if finding.side == BOTH else ''}] {wrong}"
    if finding.side == CHOICE:
        return f"[{backend}] another subgradient than eager's"
    where = f", {signature.direction}" if signature.direction and signature.verdict != "wrong" else ""
    return f"[{backend}] {_title(signature, wrong)}{where}"


def _title(signature: Signature, wrong: str) -> str:
    own = CHECKS[signature.oracle].title if signature.oracle in CHECKS else None
    if own:
        return own(signature)
    if signature.verdict == "costly":
        return f"takes far more {signature.pattern} than its size explains"
    return wrong if signature.verdict == "wrong" else _TITLES.get(signature.verdict, signature.verdict)


def plainly(detail: str) -> str:
    """An oracle's detail in words that need no knowledge of floors and references."""
    return re.sub(r", floor [^;]*", "", detail).replace("the reference's", "eager's")


def one_line(text: str, width: int = 300) -> str:
    """The text without line breaks, cut to `width` characters."""
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" ...")
