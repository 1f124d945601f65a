"""show / parse: the one text format of a Program (`.prog`).

Python syntax, parsed with `ast` and never executed. `show(parse(text)) == text` for every canonical text.
The grammar stands in corpus/README.md.
"""

from __future__ import annotations

import ast
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzzer.language.errors import UsageError
from fuzzer.language.program import (
    DTYPES,
    NORMAL,
    Argument,
    Attributes,
    Cotangent,
    Dtype,
    Leaf,
    Node,
    Output,
    Program,
    ProgramError,
    Recipe,
    Region,
    Route,
    Shape,
    Statement,
    Value,
    canonical,
    contiguous,
)
from fuzzer.language.trust import (
    MOST_CHARACTERS,
    MOST_ELEMENTS,
    MOST_INTEGER,
    control_character,
    too_large,
    why_refused,
)

_VERSION = 1


class ParseError(UsageError):
    """A text that is no program. The message gives line, column and the expected syntax."""

    def __init__(self, line: int, column: int, expected: str):
        super().__init__(f"line {line}, column {column}: {expected}")
        self.line, self.column, self.expected = line, column, expected

    def __reduce__(self) -> tuple[type[ParseError], tuple[int, int, str]]:
        """For pickling by workers, which would make an exception from its message alone."""
        return ParseError, (self.line, self.column, self.expected)


# ---------------------------------------------------------------- show


def show(program: Program) -> str:
    """The canonical text of a program, its comment lines first. Names are kept as they are."""
    lines = [f"# {line}".rstrip() for line in program.comment]
    lines.append(f"program({_VERSION})")
    if program.settings:
        pairs = ", ".join(f"{_quote(key)}: {show_value(value)}" for key, value in sorted(program.settings))
        lines.append("settings({" + pairs + "})")
    lines.append(f"route({_join([_quote(program.route.name)], program.route.options)})")
    lines += [_show_leaf(leaf) for leaf in program.leaves]
    lines += _show_body(program.body, "")
    for output in program.outputs:
        if output.cotangent is None:
            lines.append(f"returns({output.value})")
        else:
            lines.append(f"backward({output.value}, {_show_cotangent(output.cotangent)})")
    return "\n".join(lines) + "\n"


def _print(program: Program, printer: Any, cycle: bool) -> None:
    printer.text(f'parse("""\\\n{show(program)}""")')


# For Hypothesis and IPython: print a program as a call that parses its text. `program.py` does not import this module.
Program._repr_pretty_ = _print  # type: ignore[attr-defined]


def identify(program: Program) -> str:
    """The id of a program: the first 12 hex digits of the SHA-256 of its canonical body."""
    return hashlib.sha256(show(canonical(program)).encode()).hexdigest()[:12]


def show_value(value: Value) -> str:
    if isinstance(value, Dtype):
        return value.name
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(show_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)  # floats print as inf, -inf, nan where not finite; parse knows these names


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def _join(parts: list[str], attrs: Attributes) -> str:
    return ", ".join(parts + [f"{key}={show_value(value)}" for key, value in attrs])


def _show_type(dtype: str, shape: Shape) -> str:
    return f"{dtype}[{', '.join(map(str, shape)) if shape else '()'}]"


def _show_recipe(recipe: Recipe) -> str:
    if not recipe.args:
        return _quote(recipe.name)
    if recipe.name == "data":
        return "data([" + ", ".join(map(show_value, recipe.args)) + "])"
    return f"{recipe.name}({', '.join(map(show_value, recipe.args))})"


def _fill(values: Recipe, seed: int) -> list[str]:
    parts = [] if values == NORMAL else [f"values={_show_recipe(values)}"]
    return parts + ([f"seed={seed}"] if seed else [])


def _show_leaf(leaf: Leaf) -> str:
    parts = [] if leaf.base is None else [leaf.base]
    parts.append(_show_type(leaf.dtype, leaf.shape))
    if leaf.stride != contiguous(leaf.shape):
        parts.append(f"stride={show_value(leaf.stride)}")
    if leaf.offset:
        parts.append(f"offset={leaf.offset}")
    if leaf.requires_grad != leaf.type.differentiable:
        parts.append(f"requires_grad={leaf.requires_grad}")
    if leaf.parameter:
        parts.append("parameter=True")
    if leaf.conj:
        parts.append("conj=True")
    if leaf.base is None:
        parts += _fill(leaf.values, leaf.seed)
    return f"{leaf.name} = {'leaf' if leaf.base is None else 'leaf_view'}({', '.join(parts)})"


def _show_cotangent(c: Cotangent) -> str:
    parts = [_show_type(c.dtype, c.shape)]
    if c.stride != contiguous(c.shape):
        parts.append(f"stride={show_value(c.stride)}")
    if c.offset:
        parts.append(f"offset={c.offset}")
    return f"cotangent({', '.join(parts + _fill(c.values, c.seed))})"


def _show_argument(arg: Argument) -> str:
    if isinstance(arg, tuple):
        return "[" + ", ".join(str(name) for name in arg) + "]"
    return str(arg)


def _show_body(body: tuple[Statement, ...], indent: str) -> list[str]:
    lines: list[str] = []
    for s in body:
        if isinstance(s, Node):
            lines.append(f"{indent}{', '.join(s.outs)} = {s.op}({_join(list(map(_show_argument, s.args)), s.attrs)})")
        else:
            lines.append(f"{indent}with {s.kind}({_join(list(s.args), s.attrs)}):")
            lines += _show_body(s.body, indent + "    ")
    return lines


# ---------------------------------------------------------------- parse


def parse(text: str) -> Program:
    """The program that a text describes. Raises `ParseError` (line, column, expected syntax)."""
    if len(text) > MOST_CHARACTERS:
        raise ParseError(1, 1, f"a text of {MOST_CHARACTERS} characters at most, not {len(text)}")
    if (found := control_character(text)) is not None:
        before = text[: found.start()]
        raise ParseError(before.count("\n") + 1, found.start() - before.rfind("\n"), f"plain text, not {found[0]!a}")
    try:
        return _parse(text)
    except (RecursionError, MemoryError):
        raise ParseError(1, 1, "a text that is nested less deeply") from None


def _parse(text: str) -> Program:
    try:
        with warnings.catch_warnings():  # Python's own warnings about strings
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(error.lineno or 1, error.offset or 1, f"Python syntax: {error.msg}") from None
    except ValueError as error:  # more digits than Python reads
        raise ParseError(1, 1, f"plain text: {error}") from None
    if "\\" in text:
        _check_strings(tree)
    parser = _Parser()
    for statement in tree.body:
        parser.statement(statement)
    if not parser.versioned:
        raise ParseError(1, 1, f"program({_VERSION}) as the first statement")
    comment = tuple(line[1:].strip() for line in _header(text))
    try:
        return Program(
            tuple(parser.leaves),
            tuple(parser.body),
            tuple(parser.outputs),
            parser.route,
            tuple(sorted(parser.settings.items())),
            comment,
        )
    except ProgramError as error:
        raise ParseError(*parser.places[error.part][error.number], str(error)) from None


def _check_strings(tree: ast.Module) -> None:
    """Raise ParseError where a string's escapes do not give plain text, since strings are printed."""
    for e in ast.walk(tree):
        if isinstance(e, ast.Constant) and isinstance(e.value, str) and control_character(e.value):
            raise _fail(e, f"a string of plain text, not {e.value!a}")


def _header(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#"):
            lines.append(line)
    return lines


def _fail(at: ast.AST, expected: str) -> ParseError:
    return ParseError(getattr(at, "lineno", 1), getattr(at, "col_offset", 0) + 1, "expected " + expected)


class _Parser:
    """Collects the parts of a program from the statements of a text, in order."""

    def __init__(self) -> None:
        self.versioned = False
        self.leaves: list[Leaf] = []
        self.body: list[Statement] = []
        self.outputs: list[Output] = []
        self.route = Route()
        self.settings: dict[str, Value] = {}
        # line and column of every statement, as ProgramError numbers them
        self.places: dict[str, list[tuple[int, int]]] = {"leaves": [], "nodes": [], "outputs": []}

    def note(self, part: str, at: ast.stmt | ast.expr) -> None:
        self.places[part].append((at.lineno, at.col_offset + 1))

    def statement(self, s: ast.stmt) -> None:
        if not self.versioned:
            self.version(s)
        elif isinstance(s, ast.Assign):
            self.assign(s)
        elif isinstance(s, ast.With):
            for inner in _assignments(s):
                self.note("nodes", inner)
            self.body.append(_region(s))
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            self.directive(s.value)
        else:
            raise _fail(s, "name = op(...), with region(...):, settings, route, returns or backward")

    def version(self, s: ast.stmt) -> None:
        if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and _called(s.value) == "program"):
            raise _fail(s, f"program({_VERSION}) as the first statement")
        found = [_value(a) for a in s.value.args]
        if found != [_VERSION]:
            raise _fail(s, f"program({_VERSION}); this backfuzz reads format {_VERSION}, the text says {found}")
        self.versioned = True

    def assign(self, s: ast.Assign) -> None:
        outs = _targets(s)
        call = _call(s.value)
        if _called(call) in ("leaf", "leaf_view"):
            if len(outs) != 1:
                raise _fail(s, "one name for a leaf")
            self.note("leaves", s)
            self.leaves.append(_leaf(outs[0], call))
        else:
            self.note("nodes", s)
            self.body.append(_node(outs, call))

    def directive(self, call: ast.Call) -> None:
        kinds: dict[str, Callable[[ast.Call], None]] = {
            "settings": self.read_settings,
            "route": self.read_route,
            "returns": self.read_returns,
            "backward": self.read_backward,
        }
        if _called(call) not in kinds:
            raise _fail(call, "settings, route, returns or backward")
        kinds[_called(call)](call)

    def read_settings(self, call: ast.Call) -> None:
        if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], ast.Dict):
            raise _fail(call, 'settings({"name": value, ...})')
        for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise _fail(key or call, "a setting's name in quotes")
            self.settings[key.value] = _value(value)
            if why := why_refused(key.value, self.settings[key.value]):
                raise ParseError(key.lineno, key.col_offset + 1, why)

    def read_route(self, call: ast.Call) -> None:
        name = [_value(a) for a in call.args]
        if len(name) != 1 or not isinstance(name[0], str):
            raise _fail(call, 'route("name", option=value, ...)')
        self.route = Route(name[0], _attributes(call))

    def read_returns(self, call: ast.Call) -> None:
        if len(call.args) != 1 or call.keywords:
            raise _fail(call, "returns(name)")
        self.note("outputs", call)
        self.outputs.append(Output(_name(call.args[0])))

    def read_backward(self, call: ast.Call) -> None:
        if len(call.args) != 2 or call.keywords:
            raise _fail(call, "backward(name, cotangent(...))")
        given = _call(call.args[1])
        if _called(given) != "cotangent":
            raise _fail(given, "cotangent(...)")
        fields = _fields(given, positional=1, allowed=("stride", "offset", "values", "seed"))
        dtype, shape = _type(given.args[0])
        cotangent = Cotangent(
            dtype,
            shape,
            _stride(fields, shape, given),
            _recipe(fields["values"]) if "values" in fields else NORMAL,
            _integer(fields, "seed"),
            _integer(fields, "offset"),
        )
        _check_size(given, cotangent.shape, cotangent.stride, cotangent.offset)
        self.note("outputs", call)
        self.outputs.append(Output(_name(call.args[0]), cotangent))


def _called(call: ast.Call) -> str:
    if not isinstance(call.func, ast.Name):
        raise _fail(call.func, "a plain name before the parenthesis")
    return call.func.id


def _call(e: ast.expr) -> ast.Call:
    if not isinstance(e, ast.Call):
        raise _fail(e, "a call, name(...)")
    return e


def _name(e: ast.expr) -> str:
    if not isinstance(e, ast.Name):
        raise _fail(e, "the name of a value")
    return e.id


def _targets(s: ast.Assign) -> tuple[str, ...]:
    if len(s.targets) != 1:
        raise _fail(s, "one assignment a line")
    target = s.targets[0]
    return tuple(map(_name, target.elts)) if isinstance(target, ast.Tuple) else (_name(target),)


def _type(e: ast.expr) -> tuple[str, Shape]:
    if not (isinstance(e, ast.Subscript) and isinstance(e.value, ast.Name) and e.value.id in DTYPES):
        raise _fail(e, f"a tensor type, dtype[sizes], with a dtype of {', '.join(DTYPES)}")
    sizes = _value(e.slice)
    shape = sizes if isinstance(sizes, tuple) else (sizes,)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise _fail(e.slice, "sizes as non-negative integers")
    return e.value.id, shape  # type: ignore[return-value]


def _fields(call: ast.Call, positional: int, allowed: tuple[str, ...]) -> dict[str, ast.expr]:
    if len(call.args) != positional:
        raise _fail(call, f"{positional} positional argument(s) for {_called(call)}, not {len(call.args)}")
    fields: dict[str, ast.expr] = {}
    for keyword in call.keywords:
        if keyword.arg not in allowed:
            raise _fail(keyword, f"one of {', '.join(allowed)} in {_called(call)}, not {keyword.arg}")
        fields[keyword.arg] = keyword.value
    return fields


def _integer(fields: dict[str, ast.expr], name: str) -> int:
    if name not in fields:
        return 0
    value = _value(fields[name])
    if type(value) is not int or value < 0:
        raise _fail(fields[name], f"a non-negative integer for {name}")
    return value


def _flag(fields: dict[str, ast.expr], name: str, default: bool) -> bool:
    value = _value(fields[name]) if name in fields else default
    if not isinstance(value, bool):
        raise _fail(fields[name], f"True or False for {name}")
    return value


def _stride(fields: dict[str, ast.expr], shape: Shape, at: ast.AST) -> Shape:
    if "stride" not in fields:
        return contiguous(shape)
    stride = _value(fields["stride"])
    if not (isinstance(stride, tuple) and len(stride) == len(shape) and all(type(s) is int and s >= 0 for s in stride)):
        raise _fail(at, f"a stride of {len(shape)} non-negative integers")
    return stride  # type: ignore[return-value]


def _check_size(at: ast.AST, shape: Shape, stride: Shape, offset: int) -> None:
    """Refuse before anything is allocated."""
    if too_large(shape, stride, offset):
        raise _fail(at, f"a storage of {MOST_ELEMENTS} elements at most")


def _leaf(name: str, call: ast.Call) -> Leaf:
    view = _called(call) == "leaf_view"
    fill = () if view else ("values", "seed")
    fields = _fields(call, 2 if view else 1, ("stride", "offset", "requires_grad", "parameter", "conj", *fill))
    dtype, shape = _type(call.args[-1])
    leaf = Leaf(name, dtype, shape, _stride(fields, shape, call), _integer(fields, "offset"))
    _check_size(call, leaf.shape, leaf.stride, leaf.offset)
    return replace(
        leaf,
        requires_grad=_flag(fields, "requires_grad", leaf.type.differentiable),
        parameter=_flag(fields, "parameter", False),
        conj=_flag(fields, "conj", False),
        values=_recipe(fields["values"]) if "values" in fields else NORMAL,
        seed=_integer(fields, "seed"),
        base=_name(call.args[0]) if view else None,
    )


def _recipe(e: ast.expr) -> Recipe:
    if isinstance(e, ast.Constant) and isinstance(e.value, str):
        return Recipe(e.value)
    if isinstance(e, ast.Call) and not e.keywords:
        args = e.args
        if _called(e) == "data":
            if len(args) != 1 or not isinstance(args[0], ast.List):
                raise _fail(e, "data([numbers])")
            args = args[0].elts
        numbers = tuple(map(_value, args))
        if not all(isinstance(number, int | float) for number in numbers):
            raise _fail(e, f"numbers for {_called(e)}")
        return Recipe(_called(e), numbers)
    raise _fail(e, 'a value recipe: "name", name(arguments) or data([numbers])')


def _argument(e: ast.expr) -> Argument:
    if isinstance(e, ast.Constant) and e.value is None:
        return None
    if isinstance(e, ast.List):
        return tuple(None if isinstance(x, ast.Constant) and x.value is None else _name(x) for x in e.elts)
    if not isinstance(e, ast.Name):
        raise _fail(e, "a value's name, a list of names or None; attributes are given by keyword")
    return e.id


def _node(outs: tuple[str, ...], call: ast.Call) -> Node:
    return Node(outs, _called(call), tuple(map(_argument, call.args)), _attributes(call))


def _assignments(s: ast.With) -> Iterator[ast.Assign]:
    """The assignments of a region in the order of `program.walk`."""
    for inner in s.body:
        if isinstance(inner, ast.With):
            yield from _assignments(inner)
        elif isinstance(inner, ast.Assign):
            yield inner


def _region(s: ast.With) -> Region:
    if len(s.items) != 1 or s.items[0].optional_vars is not None:
        raise _fail(s, "with region(...):")
    call = _call(s.items[0].context_expr)
    body: list[Statement] = []
    for inner in s.body:
        if isinstance(inner, ast.With):
            body.append(_region(inner))
        elif isinstance(inner, ast.Assign):
            body.append(_node(_targets(inner), _call(inner.value)))
        else:
            raise _fail(inner, "name = op(...) or a nested region")
    args = tuple(map(_name, call.args))
    found = Region(_called(call), _attributes(call), tuple(body), args)
    if found.args != args:
        raise _fail(s, "operands that the region reads, each once")
    return found


def _attributes(call: ast.Call) -> Attributes:
    pairs: list[tuple[str, Value]] = []
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _fail(keyword, "name=value, not **")
        pairs.append((keyword.arg, _value(keyword.value)))
    return tuple(pairs)


def _value(e: ast.expr) -> Value:
    if isinstance(e, ast.Constant) and (e.value is None or isinstance(e.value, bool | int | float | str)):
        if type(e.value) is int and e.value > MOST_INTEGER:
            raise _fail(e, "an integer of 64 bits")
        return e.value
    if isinstance(e, ast.Tuple | ast.List):
        return tuple(map(_value, e.elts))
    if isinstance(e, ast.Name) and e.id in DTYPES:
        return Dtype(e.id)
    if isinstance(e, ast.Name) and e.id in ("inf", "nan"):
        return math.inf if e.id == "inf" else math.nan
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        value = _value(e.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise _fail(e, f"a number, string, dtype, tuple, True, False or None (dtypes: {', '.join(DTYPES)})")
