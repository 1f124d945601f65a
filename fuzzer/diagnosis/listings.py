"""Texts of inductor's graphs and code: shortened, searched, suspicious lines marked."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

MARK = "<== "
SHARED = "no view, yet its elements share memory (stride 0)"
LONGEST = 16_000  # characters kept of one file


def tidy_graph(text: str) -> str:
    """A graph's readable text without stack comments, empty lines and notes on freed values."""
    lines = (re.sub(r";  .* = None$", "", line.rstrip()) for line in text.splitlines())
    return _cut("\n".join(line for line in lines if line and not line.lstrip().startswith("#")))


def tidy_code(text: str) -> str:
    """Inductor's Python module without its imports and its benchmark."""
    body = re.split(r"^def get_args\(|^def benchmark_compiled_module\(", text, maxsplit=1, flags=re.MULTILINE)[0]
    start = re.search(r"^# Topologically Sorted|^\w+ = async_compile\.|^# kernel path|^async_compile\.wait", body, re.M)
    return _cut(re.sub(r"\n{3,}", "\n\n", body[start.start() if start else 0 :]).strip())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... {len(text) - LONGEST} characters more"


# ---------------------------------------------------------------- graphs

# name: "f32[4, 13, 33][33, 0, 1]" = torch.ops.aten.slice_scatter.default(...)
_NODE = re.compile(r'^\s+(?P<name>\w+)(?:: "(?P<type>[^"]*)")? = torch\.ops\.(?P<op>[\w.]+)\(')
_TYPE = re.compile(r"\w+(\[[^\]]*\])(\[[^\]]*\])?")


def node_op(graphs: Iterable[str], name: str) -> str:
    """The overload that the node of this name calls ("aten.mm.default"); "" where no graph has it."""
    calls = (m for graph in graphs for line in graph.splitlines() if (m := _NODE.match(line)))
    return next((_overload(m["op"]) for m in calls if m["name"] == name), "")


def aten_ops(graph: str) -> list[str]:
    """The ATen overloads that a graph calls, each once, without views."""
    called = [_overload(m["op"]) for line in graph.splitlines() if (m := _NODE.match(line))]
    return [op for op in dict.fromkeys(called) if op.startswith("aten.") and not _views(op)]


def _overload(op: str) -> str:
    """The full name of an overload: a node made by a pass of inductor's may name only the operator ("aten.clone"),
    meaning its default."""
    return f"{op}.default" if re.fullmatch(r"aten\.\w+", op) else op


def _views(op: str) -> bool:
    """Whether an overload returns a view of an operand."""
    found: object = torch.ops
    for part in op.split("."):
        found = getattr(found, part, None)
    schema = getattr(found, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def overlaps(kind: str) -> bool:
    """Whether elements of this type ("f32[4, 13][13, 0]") share memory: a size above 1 with stride 0."""
    found = _TYPE.match(kind)
    if not found or not found[2]:
        return False
    sizes, strides = (part[1:-1].split(", ") for part in (found[1], found[2]))
    return "0" not in sizes and any(s != "1" and t == "0" for s, t in zip(sizes, strides, strict=False))


def shared(graph: str) -> list[str]:
    """The results that are no views and whose elements share memory, which no kernel can write: "name (overload)"."""
    nodes = (m for line in graph.splitlines() if (m := _NODE.match(line)))
    return [f"{m['name']} ({m['op']})" for m in nodes if _shares(m)]


def _shares(node: re.Match[str]) -> bool:
    return overlaps(node["type"] or "") and not _views(node["op"])


def mark_graph(graph: str, culprits: Iterable[str], shapes: Iterable[str]) -> str:
    """The graph with its suspicious lines marked.

    culprits   overloads or node names accused by other evidence;  shapes   of the wrong tensors ("[4,13,33]").
    Marked are the culprits, and every result that is no view and whose elements share memory, which no kernel can
    write; if there are none, the nodes that return a wrong tensor.
    """
    accused, lines = set(culprits), graph.splitlines()
    reasons: dict[int, str] = {}
    for i, line in enumerate(lines):
        if m := _NODE.match(line):
            if _shares(m):
                reasons[i] = SHARED
            elif {m["op"], m["name"]} & accused:
                reasons[i] = "accused"
    if not reasons:
        returned = set(_returned(lines[-1]) if lines else [])
        for i, line in enumerate(lines):
            if (m := _NODE.match(line)) and m["name"] in returned and _shape(m["type"] or "") in set(shapes):
                reasons[i] = "returned as a wrong tensor, or as one of its shape"
    return _marked(lines, reasons)


def _shape(kind: str) -> str:
    found = _TYPE.match(kind)
    return found[1].replace(" ", "") if found else ""


def _returned(line: str) -> list[str]:
    """The names in a graph's last line, in order."""
    return re.findall(r"\w+", line.partition("return")[2])


def _marked(lines: list[str], reasons: dict[int, str]) -> str:
    def comment(line: str) -> str:
        return "//" if line.rstrip().endswith((";", "{", "}")) else "#"

    return "\n".join(
        f"{line}  {comment(line)} {MARK}{reasons[i]}" if i in reasons else line for i, line in enumerate(lines)
    )


def marked_lines(text: str) -> list[str]:
    """The lines that were marked, with their numbers."""
    lines = enumerate(text.splitlines(), 1)
    return [f"line {i}: {line.strip().partition(MARK)[0].rstrip(' #/')}" for i, line in lines if MARK in line]


# ---------------------------------------------------------------- code


def mark_code(code: str, graph: str, shapes: Iterable[str]) -> str:
    """The code with the lines marked that write a wrong tensor: stores in kernels, or calls of ATen functions.

    graph   the graph of this code: both return the same values in the same order.
    """
    lines, wanted = code.splitlines(), set(shapes)
    types = {m["name"]: m["type"] or "" for line in graph.splitlines() if (m := _NODE.match(line))}
    last = max((i for i, line in enumerate(lines) if re.match(r"\s+return \(", line)), default=None)
    if last is None or not graph:
        return code
    names = _returned(graph.splitlines()[-1])
    parts = _arguments(lines[last].partition("return ")[2])
    buffers = {_buffer(p) for n, p in zip(names, parts, strict=False) if _shape(types.get(n, "")) in wanted}
    reasons: dict[int, str] = {}
    for i in range(last - 1, -1, -1):  # backwards, so that a reused buffer's earlier name is found
        reasons |= _writers(lines, i, buffers)
    return _marked(lines, reasons or ({last: "returns a wrong tensor"} if buffers else {}))


def _buffer(expression: str) -> str:
    """The buffer behind a returned expression: itself, or the argument of reinterpret_tensor."""
    return re.sub(r"^reinterpret_tensor\(", "", expression.strip()).partition(",")[0].strip("() ")


def _arguments(text: str) -> list[str]:
    """The arguments of a call or the items of a tuple at the start of this text, commas inside brackets kept."""
    found, depth, now = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character in ")]}":
            break
        if depth == 1 and character == ",":
            found.append(now)
            now = ""
        elif depth > 1 or character not in "([{":
            now += character
    return [part.strip() for part in (*found, now) if part.strip()]


def _writers(lines: list[str], i: int, buffers: set[str]) -> dict[int, str]:
    """Lines that write one of the buffers because of line i of the wrapper code; adds further buffers to `buffers`."""
    line = lines[i]
    if m := re.match(r"\s+(\w+) = (?:reinterpret_tensor\()?(\w+)[;,].*", line):
        if m[1] in buffers:
            buffers.add(m[2])
        return {}
    m = re.match(r"\s+(?:(\w+) = )?([\w.]+)(\(.*)", line)
    if not m or m[2].startswith(("empty_strided", "assert_", "reinterpret_tensor")):
        return {}
    given = _arguments(m[3])
    if m[1] in buffers or any(g.partition("out=")[2].strip() in buffers for g in given if g.startswith("out=")):
        return {i: "computes a wrong tensor"}
    places = [n for n, g in enumerate(given) if _buffer(g) in buffers]
    return _stores(lines, m[2].removesuffix(".run"), places) if places else {}


def _stores(lines: list[str], kernel: str, places: list[int]) -> dict[int, str]:
    """The stores of a kernel through the parameters at these places."""
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{kernel} = ")), None)
    if start is None:
        return {}
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("'''")), len(lines))
    body = "\n".join(lines[start:end])
    head = re.search(r"void\s+kernel(\([^)]*\))|^def \w+(\([^)]*\))", body, re.MULTILINE)
    if not head:
        return {}
    parameters = [re.findall(r"\w+", p.partition(":")[0])[-1] for p in _arguments(head[1] or head[2])]
    reasons: dict[int, str] = {}
    for place in places:
        name = parameters[place] if place < len(parameters) else ""
        if "out_ptr" not in name:
            continue
        store = re.compile(rf"(?:store|atomic_add\w*)\(.*\b{name}\b|\b{name}\[.*\]\s*\+?=")
        reasons |= {i: "writes a wrong tensor" for i in range(start, end) if store.search(lines[i])}
    return reasons
