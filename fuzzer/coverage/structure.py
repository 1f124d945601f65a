"""The compiler's output for a program, in words: the graphs that inductor received and the code that it wrote.

Families of features, forward and backward apart (`joint`, where one graph holds both):

node      an operation of a graph that inductor received and one of its tensors: dtype, rank, layout.
link      an operation of the graph, the operation that made one of its operands, and that operand's memory layout.
saved     the values that the partitioner saves for the backward, and those that the backward computes again.
fused     two operations, one of which feeds the other, in one kernel.
loop      the loops of kernels (`coverage.loops`), known before code is written; for both directions together.
kernel    the kind of a kernel: loops or tiles, vectors, reductions; how many.
line      a line of a kernel without its names and numbers.
extern    kernels that are called, not written.
fallback  ATen operations that the code calls because inductor has no code for them.
counter   inductor's own counters, pattern matches among them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fuzzer.coverage.features import MOST_PLACES, layout_words, tensor_words
from fuzzer.language.devices import DEVICES


@dataclass
class CompiledGraph:
    """A graph that inductor received, as readable text; the code that it wrote; each kernel's pairs of operations of
    which one feeds the other ("aten.mul.Tensor"); and the words of the kernels' loops."""

    direction: str
    graph: str
    code: str = ""
    kernels: Sequence[Iterable[tuple[str, str]]] = field(default_factory=list)
    loops: set[str] = field(default_factory=set)

    @functools.cached_property
    def values(self) -> list[GraphValue]:
        """The values of the graph, its inputs first."""
        return list(_nodes(self.graph))

    @functools.cached_property
    def kernel_texts(self) -> list[str]:
        """The text of each kernel."""
        return [*_CPP.findall(self.code), *_TRITON.findall(self.code)]


_Family = Callable[[Sequence[CompiledGraph], Mapping[str, int]], Iterator[str]]


def compiled_words(graphs: Sequence[CompiledGraph], counted: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """The words of graphs, by family of COMPILED_FAMILIES.

    counted: inductor's counters during the compile, "group name" to number ("inductor pattern_matcher_count").
    """
    return {family: frozenset(words(graphs, counted)) for family, words in COMPILED_WORDS.items()}


def _of_each(words: Callable[[CompiledGraph], Iterable[str]]) -> _Family:
    """A family made from the words of one graph: the words of all graphs, each with its graph's direction."""

    def directed(graphs: Sequence[CompiledGraph], counted: Mapping[str, int]) -> Iterator[str]:
        return (f"{one.direction} {word}" for one in graphs for word in words(one))

    return directed


def bucket(number: int) -> str:
    """A count, coarser as it grows: 1, 2, 3, 4-7, 8-15 and so on."""
    if number < 4:
        return str(number)
    low = 1 << (number.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def _counters(graphs: Sequence[CompiledGraph], counted: Mapping[str, int]) -> Iterator[str]:
    for name, number in counted.items():
        group, _, what = name.partition(" ")
        if group == "inductor" and number and "cache" not in what:
            yield f"{what} {bucket(number)}"


# ---------------------------------------------------------------- graphs

# name: "f32[4, 13, 33][33, 0, 1]" = torch.ops.aten.slice_scatter.default(...), and name: "..." = other[0]
_VALUE_LINE = re.compile(r'^\s+(\w+)(?:: "([^"]*)")? = ([\w.]+)([\[(].*)')
_PLACEHOLDER = re.compile(r'(\w+): "([^"]*)"')
_TYPE = re.compile(r"(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?")


@dataclass
class GraphValue:
    """A value of a graph: its name, its type and layout in words, the op that made it, and the values which that op
    read."""

    name: str
    type: str
    layout: str
    op: str
    reads: list[GraphValue]


def _nodes(graph: str) -> Iterator[GraphValue]:
    """The values of a graph's text, its inputs first (their `op` is "")."""
    known: dict[str, GraphValue] = {}
    for line in graph.splitlines():
        if "def forward(" in line:
            for name, kind in _PLACEHOLDER.findall(line):
                known[name] = GraphValue(name, *_kind(kind), "", [])
        elif m := _VALUE_LINE.match(line):
            name, kind, call, rest = m.groups()
            part = rest.startswith("[") and call in known  # one result of a node with several
            reads = [known[n] for n in re.findall(r"\w+", rest.partition(";")[0]) if n in known]
            op = known[call].op if part else call.removeprefix("torch.ops.")
            known[name] = GraphValue(name, *_kind(kind or ""), op, known[call].reads if part else reads)
    yield from known.values()


def _kind(text: str) -> tuple[str, str]:
    """(dtype, rank and layout; the layout) of "f32[4, 13][13, 1]", sizes may be symbols; else empty."""
    m = _TYPE.fullmatch(text)
    if not m or m[3] is None:
        return "", ""
    sizes, strides = ([part.strip() for part in m[i].split(",") if part.strip()] for i in (2, 3))
    if all(part.isdigit() for part in (*sizes, *strides)):
        layout = layout_words(tuple(map(int, sizes)), tuple(map(int, strides)))
    else:
        layout = "symbolic broadcast" if "0" in strides else "symbolic"
    return tensor_words(m[1], len(sizes), layout), layout


def _types(one: CompiledGraph) -> Iterator[str]:
    for node in one.values:
        if not node.op:
            continue
        if node.type:
            yield f"{node.op} gives {node.type}"
        yield from (f"{node.op} {min(i, MOST_PLACES)}: {read.type}" for i, read in enumerate(node.reads) if read.type)


def _links(one: CompiledGraph) -> Iterator[str]:
    for node in one.values:
        for i, read in enumerate(node.reads):
            yield f"{read.op or _role(read.name)} > {node.op} {min(i, MOST_PLACES)}: {read.layout}"


def _role(name: str) -> str:
    """AOTAutograd's word for an input of a graph: primals, tangents, arg, or the node whose result was saved."""
    return re.sub(r"^arg\d+", "arg", re.sub(r"_\d+$", "", name))


def _saved(graphs: Sequence[CompiledGraph], counted: Mapping[str, int]) -> Iterator[str]:
    """The values that the graphs of a forward and its backward hand on, and the operations that they compute twice."""
    made = {(n.name, n.op) for g in graphs if g.direction == "forward" for n in g.values if n.op}
    for node in (n for g in graphs if g.direction == "backward" and made for n in g.values):
        if not node.op and node.type and _role(node.name) != "tangents":
            yield f"handed on {_role(node.name)}: {node.type}"
        elif (node.name, node.op) in made:
            yield f"computed again {node.op}"


# ---------------------------------------------------------------- code

_CPP = re.compile(r'^extern "C"[^(]*\b(?:kernel|cpp_\w+)\(.*?^\}', re.MULTILINE | re.DOTALL)
_TRITON = re.compile(r"^@triton_heuristics\.\w+\(.*?^'''", re.MULTILINE | re.DOTALL)
_BODY = re.compile(r"^def .*:$|^\{$", re.MULTILINE)  # the text before this names operations and hashes
_CALLS = {
    "extern": re.compile(r"\bextern_kernels\.(\w+)\("),
    "fallback": re.compile(rf"\b(?:torch\.ops\.([\w.]+)|aoti_torch_(?:{'|'.join(DEVICES)})_(\w+))\("),
}
# The letters of generated names, which end in a number; the numbers of dtypes stay.
_NUMBERED = re.compile(r"\b(_?tmp|tmp_acc|in_ptr|out_ptr|in_out_ptr|[xyzr]|ks|ps|buf|s|u)\d+(?:_\d+)?(_[a-z]\w*)?\b")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?[UL]*\b")


def _fused(one: CompiledGraph) -> Iterator[str]:
    return (f"{a} > {b}" for pairs in one.kernels for a, b in pairs)


def _loops(graphs: Sequence[CompiledGraph], counted: Mapping[str, int]) -> Iterator[str]:
    return (word for one in graphs for word in one.loops)


def _kinds(one: CompiledGraph) -> Iterator[str]:
    if one.kernel_texts:
        yield f"{bucket(len(one.kernel_texts))} written"
        yield from map(kernel_kind, one.kernel_texts)


def _lines_written(one: CompiledGraph) -> Iterator[str]:
    return (word for kernel in one.kernel_texts for word in _lines(kernel))


def _called(family: str, one: CompiledGraph) -> Iterator[str]:
    return ("".join(m.groups(default="")) for m in _CALLS[family].finditer(one.code))


def _lines(kernel: str) -> Iterator[str]:
    """The lines of a kernel's body that hold operations, names without their numbers, numbers as N."""
    body = _BODY.split(kernel, maxsplit=1)[-1]
    for line in body.splitlines():
        if re.search(r"\w", line):
            yield _NUMBER.sub("N", _NUMBERED.sub(r"\1\2", line.strip()))


_KERNEL_TRAITS = {
    "vectors": "at::vec",
    "parallel": "#pragma omp parallel",
    "accumulates": "tmp_acc",
    "welford": "welford",
    "atomic": "atomic_add",
    "tail": "C10_UNLIKELY",
    "dot": "tl.dot",
    "scan": "associative_scan",
    "sort": "sort_with_index",
}


def kernel_kind(kernel: str) -> str:
    """C++ by how deep its loops are, Triton by its heuristic and tiles; then the kernel's other properties."""
    traits = [name for name, text in _KERNEL_TRAITS.items() if text in kernel]
    if m := re.match(r"@triton_heuristics\.(\w+)\(", kernel):
        hints = re.search(r"size_hints=\{([^}]*)\}", kernel)
        tiles = re.findall(r"'(\w+)':", hints[1]) if hints else []
        return " ".join(["triton", m[1], *tiles, *traits])
    return " ".join([f"cpp loops {_depth(kernel)}", *traits])


def _depth(kernel: str) -> int:
    """How deep the loops are nested, by their indentation."""
    deepest, loops = 0, list[int]()
    for line in kernel.splitlines():
        if (body := line.lstrip()).startswith("for"):
            indent = len(line) - len(body)
            loops = [*(i for i in loops if i < indent), indent]
            deepest = max(deepest, len(loops))
    return deepest


COMPILED_WORDS: Mapping[str, _Family] = {
    "node": _of_each(_types),
    "link": _of_each(_links),
    "saved": _saved,
    "fused": _of_each(_fused),
    "loop": _loops,
    "kernel": _of_each(_kinds),
    "line": _of_each(_lines_written),
    "extern": _of_each(functools.partial(_called, "extern")),
    "fallback": _of_each(functools.partial(_called, "fallback")),
    "counter": _counters,
}
COMPILED_FAMILIES = tuple(COMPILED_WORDS)
