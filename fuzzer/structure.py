"""What the compiler made of a program, in words: the graphs that inductor received and the code that it wrote.

Families of features, forward and backward apart (`joint`, where one graph holds both):

node      an operation of a graph that inductor received and one of its tensors: dtype, rank, layout.
link      which operation made what an operation of the graph reads, and how it lies there.
saved     what the partitioner hands from the forward to the backward, and what the backward computes again.
fused     two operations, one of which feeds the other, in one kernel.
kernel    what kind of kernel was written: loops or tiles, vectors, reductions; how many.
line      a line of a kernel without its names and numbers.
extern    kernels that are called, not written.
fallback  ATen operations that the code calls because inductor has no code for them.
counter   what inductor counted, pattern matches among it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fuzzer.features import MOST_PLACES, described, layout


@dataclass
class Compiled:
    """A graph that inductor received, as readable text, the code that it wrote, and each kernel's pairs of operations
    of which one feeds the other ("aten.mul.Tensor")."""

    direction: str
    graph: str
    code: str = ""
    kernels: Sequence[Iterable[tuple[str, str]]] = field(default_factory=list)

    @functools.cached_property
    def nodes(self) -> list[Node]:
        """The values of the graph, those that it is given first."""
        return list(_nodes(self.graph))

    @functools.cached_property
    def written(self) -> list[str]:
        """The text of each kernel."""
        return [*CPP.findall(self.code), *TRITON.findall(self.code)]


Family = Callable[[Sequence[Compiled], Mapping[str, int]], Iterator[str]]


def of_compiled(graphs: Sequence[Compiled], counted: Mapping[str, int]) -> dict[str, frozenset[str]]:
    """The words of FAMILIES. counted: what the compiler counted meanwhile ("inductor pattern_matcher_count")."""
    return {family: frozenset(words(graphs, counted)) for family, words in OF_COMPILED.items()}


def _of_each(words: Callable[[Compiled], Iterable[str]]) -> Family:
    """What this says of each graph, with the graph's direction."""

    def directed(graphs: Sequence[Compiled], counted: Mapping[str, int]) -> Iterator[str]:
        return (f"{one.direction} {word}" for one in graphs for word in words(one))

    return directed


def bucket(number: int) -> str:
    """A count, coarser as it grows: 1, 2, 3, 4-7, 8-15 and so on."""
    if number < 4:
        return str(number)
    low = 1 << (number.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def _counters(graphs: Sequence[Compiled], counted: Mapping[str, int]) -> Iterator[str]:
    for name, number in counted.items():
        group, _, what = name.partition(" ")
        if group == "inductor" and number and "cache" not in what:
            yield f"{what} {bucket(number)}"


# ---------------------------------------------------------------- graphs

# name: "f32[4, 13, 33][33, 0, 1]" = torch.ops.aten.slice_scatter.default(...), and name: "..." = other[0]
LINE = re.compile(r'^\s+(\w+)(?:: "([^"]*)")? = ([\w.]+)([\[(].*)')
GIVEN = re.compile(r'(\w+): "([^"]*)"')
TYPE = re.compile(r"(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?")


@dataclass
class Node:
    """A value of a graph: what it is called, its type in words, what made it, and the values that this reads."""

    name: str
    kind: str
    lies: str
    op: str
    reads: list[Node]


def _nodes(graph: str) -> Iterator[Node]:
    """The values of a graph's text, those that it is given first (their `op` is "")."""
    known: dict[str, Node] = {}
    for line in graph.splitlines():
        if "def forward(" in line:
            for name, kind in GIVEN.findall(line):
                known[name] = Node(name, *_kind(kind), "", [])
        elif m := LINE.match(line):
            name, kind, call, rest = m.groups()
            part = rest.startswith("[") and call in known  # of a node with several results
            reads = [known[n] for n in re.findall(r"\w+", rest.partition(";")[0]) if n in known]
            op = known[call].op if part else call.removeprefix("torch.ops.")
            known[name] = Node(name, *_kind(kind or ""), op, known[call].reads if part else reads)
    yield from known.values()


def _kind(text: str) -> tuple[str, str]:
    """(dtype, rank and layout; the layout) of "f32[4, 13][13, 1]", sizes may be symbols; else empty."""
    m = TYPE.fullmatch(text)
    if not m or m[3] is None:
        return "", ""
    sizes, strides = ([part.strip() for part in m[i].split(",") if part.strip()] for i in (2, 3))
    if all(part.isdigit() for part in (*sizes, *strides)):
        lies = layout(tuple(map(int, sizes)), tuple(map(int, strides)))
    else:
        lies = "symbolic broadcast" if "0" in strides else "symbolic"
    return described(m[1], len(sizes), lies), lies


def _types(one: Compiled) -> Iterator[str]:
    for node in one.nodes:
        if not node.op:
            continue
        if node.kind:
            yield f"{node.op} gives {node.kind}"
        yield from (f"{node.op} {min(i, MOST_PLACES)}: {read.kind}" for i, read in enumerate(node.reads) if read.kind)


def _links(one: Compiled) -> Iterator[str]:
    for node in one.nodes:
        for i, read in enumerate(node.reads):
            yield f"{read.op or _role(read.name)} > {node.op} {min(i, MOST_PLACES)}: {read.lies}"


def _role(name: str) -> str:
    """What AOTAutograd calls a value that a graph is given: primals, tangents, arg, or the node that was saved."""
    return re.sub(r"^arg\d+", "arg", re.sub(r"_\d+$", "", name))


def _saved(graphs: Sequence[Compiled], counted: Mapping[str, int]) -> Iterator[str]:
    """Of the graphs of a forward and its backward: what is handed on, and what is computed twice."""
    made = {(n.name, n.op) for g in graphs if g.direction == "forward" for n in g.nodes if n.op}
    for node in (n for g in graphs if g.direction == "backward" and made for n in g.nodes):
        if not node.op and node.kind and _role(node.name) != "tangents":
            yield f"handed on {_role(node.name)}: {node.kind}"
        elif (node.name, node.op) in made:
            yield f"computed again {node.op}"


# ---------------------------------------------------------------- code

CPP = re.compile(r'^extern "C"[^(]*\b(?:kernel|cpp_\w+)\(.*?^\}', re.MULTILINE | re.DOTALL)
TRITON = re.compile(r"^@triton_heuristics\.\w+\(.*?^'''", re.MULTILINE | re.DOTALL)
BODY = re.compile(r"^def .*:$|^\{$", re.MULTILINE)  # what stands before names operations and hashes
CALLS = {
    "extern": re.compile(r"\bextern_kernels\.(\w+)\("),
    "fallback": re.compile(r"\b(?:torch\.ops\.([\w.]+)|aoti_torch_(?:cpu|cuda)_(\w+))\("),
}
# The letters of a name that is numbered where it is made up; dtypes keep their numbers.
NUMBERED = re.compile(r"\b(_?tmp|tmp_acc|in_ptr|out_ptr|in_out_ptr|[xyzr]|ks|ps|buf|s|u)\d+(?:_\d+)?(_[a-z]\w*)?\b")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?[UL]*\b")


def _fused(one: Compiled) -> Iterator[str]:
    return (f"{a} > {b}" for pairs in one.kernels for a, b in pairs)


def _kinds(one: Compiled) -> Iterator[str]:
    if one.written:
        yield f"{bucket(len(one.written))} written"
        yield from map(kernel_kind, one.written)


def _lines_written(one: Compiled) -> Iterator[str]:
    return (word for kernel in one.written for word in _lines(kernel))


def _called(family: str, one: Compiled) -> Iterator[str]:
    return ("".join(m.groups(default="")) for m in CALLS[family].finditer(one.code))


def _lines(kernel: str) -> Iterator[str]:
    """The lines of a kernel's body that say something, names without their numbers, numbers as N."""
    body = BODY.split(kernel, maxsplit=1)[-1]
    for line in body.splitlines():
        if re.search(r"\w", line):
            yield NUMBER.sub("N", NUMBERED.sub(r"\1\2", line.strip()))


SIGNS = {"vectors": "at::vec", "parallel": "#pragma omp parallel", "accumulates": "tmp_acc", "welford": "welford",
         "atomic": "atomic_add", "tail": "C10_UNLIKELY", "dot": "tl.dot", "scan": "associative_scan",
         "sort": "sort_with_index"}  # fmt: skip


def kernel_kind(kernel: str) -> str:
    """C++ by how deep its loops are, Triton by its heuristic and tiles; then what else it does."""
    signs = [name for name, sign in SIGNS.items() if sign in kernel]
    if m := re.match(r"@triton_heuristics\.(\w+)\(", kernel):
        hints = re.search(r"size_hints=\{([^}]*)\}", kernel)
        tiles = re.findall(r"'(\w+)':", hints[1]) if hints else []
        return " ".join(["triton", m[1], *tiles, *signs])
    return " ".join([f"cpp loops {_depth(kernel)}", *signs])


def _depth(kernel: str) -> int:
    """How many loops stand inside each other, by their indentation."""
    deepest, loops = 0, list[int]()
    for line in kernel.splitlines():
        if (body := line.lstrip()).startswith("for"):
            indent = len(line) - len(body)
            loops = [*(i for i in loops if i < indent), indent]
            deepest = max(deepest, len(loops))
    return deepest


OF_COMPILED: Mapping[str, Family] = {
    "node": _of_each(_types),
    "link": _of_each(_links),
    "saved": _saved,
    "fused": _of_each(_fused),
    "kernel": _of_each(_kinds),
    "line": _of_each(_lines_written),
    "extern": _of_each(functools.partial(_called, "extern")),
    "fallback": _of_each(functools.partial(_called, "fallback")),
    "counter": _counters,
}
FAMILIES = tuple(OF_COMPILED)
