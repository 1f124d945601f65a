"""What is known of a finding from ablations, closer looks and the bisector, and what follows. Nothing runs here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzzer.diagnosis.ablation import CONTRACTION, PASSES, STAGES, settings_text
from fuzzer.diagnosis.listings import SHARED, aten_ops, mark_code, mark_graph, marked_lines, node_op, shared
from fuzzer.findings.cause import LEFT
from fuzzer.judgement.verdict import COMPILED, EAGER, Finding
from fuzzer.language.private import FP_FUSION, GRAPHS
from fuzzer.language.program import Program
from fuzzer.language.text import parse

DIFFERENCE = ("tensors", "elements", "ratio")
_PASS_SWITCHES = [f"{name}={value}" for name, value in PASSES]
_MOST_SUSPECTS = 6  # overloads that are left to ATen one by one, where the bisector names none


def _tensor_names(program: Program) -> set[str]:
    """The names that an oracle calls a program's tensors by: `x0`, `x0.grad`, `v1` and `c0`."""
    leaves = {leaf.name for leaf in program.leaves}
    outputs = {output.value for output in program.outputs}
    return leaves | {f"{name}.grad" for name in leaves} | outputs | {f"c{i}" for i in range(len(outputs))}


@dataclass
class Evidence:
    """All that is known of one finding.

    tables   by name (stage, ablation, subset), the class that each variant showed.
    sufficient_settings  the subsets of the program's settings that showed the finding, the smallest first.
    found    notes of workers: backend, subsystem and info of the bisector, shapes of the wrong tensors.
    notes    the lines of the diagnosis so far;  files   the attachments.
    """

    finding: Finding
    tables: dict[str, dict[str, str]] = field(default_factory=lambda: {"stage": {}, "ablation": {}, "subset": {}})
    sufficient_settings: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    # ------------------------------------------------------------ what is known on the way

    def note_difference(self, here: Mapping[str, str], died: str, before: Mapping[str, str], unseen: str) -> None:
        """Note the fields of DIFFERENCE for the finding, and the original's; died and unseen say why there are none."""
        finding = self.finding
        for name in DIFFERENCE:
            self.notes[name] = here.get(name, f"none: {died or finding.detail.partition(':')[0]}")
        first = finding.detail.partition(" ")[0]
        if first in _tensor_names(parse(finding.program)):
            self.notes["tensors"] = first
        names = DIFFERENCE[1:] if ", " in before.get("tensors", "") else DIFFERENCE  # several are named there again
        text = "; ".join(before[name] for name in names if name in before)
        text = text or f"none: {unseen or finding.before or 'no tensor of it holds wrong values'}"
        self.notes["original"] = "it is the minimal program" if finding.original == finding.program else text

    def first(self) -> str:
        """The first stage that differs; "" where there are no stages."""
        ran = {name: seen for name, seen in self.tables["stage"].items() if not seen.startswith("not run")}
        return next((name for name, seen in ran.items() if seen != "agree"), "")

    def vanishes_under(self) -> list[str]:
        """The single changes with which all agree."""
        return [name for name, seen in self.tables["ablation"].items() if seen == "agree"]

    def direction(self) -> str:
        """forward or backward where leaving one of them uncompiled decides it; else ""."""
        decided = [graph.split()[0] for graph in GRAPHS if f"{graph} uncompiled" in self.vanishes_under()]
        return decided[0] if len(decided) == 1 else ""

    def graph(self) -> tuple[str, str]:
        """The graph at fault, as far as is known: its file's name and text."""
        kinds = (self.direction(), self.finding.signature.direction, "joint", "forward")
        names = [f"{kind}_graph.py" for kind in kinds]
        return next(((name, self.files[name]) for name in names if name in self.files), ("", ""))

    def bisected_op(self) -> str:
        """The overload that the bisector ended on: of the node that it names, or whose decomposition it names."""
        info, subsystem = self.found.get("info", ""), self.found.get("subsystem")
        if subsystem == "lowerings":
            return node_op(self.files.values(), info)
        return info if subsystem == "decomposition" and info.startswith("aten.") else ""

    def suspects(self) -> list[str]:
        """The overloads to leave to ATen: the one that the bisector ended on, or the first of the graph at fault."""
        op = self.bisected_op()
        return [op] if op else aten_ops(self.graph()[1])[:_MOST_SUSPECTS]

    # ------------------------------------------------------------ what all of that says, a line each

    def summarise(self) -> None:
        """Note stage, graph, settings, vanishes, suspect (its lines are marked in the files) and culprit."""
        tried = len(self.tables["ablation"])
        own = parse(self.finding.program).settings
        count = f" (the program sets {len(own)})" if own else ""
        self.notes |= {
            "stage": self.stage(),
            "graph": self.which_graph(),
            "settings": f"appears under {next(iter(self.sufficient_settings), settings_text(own))}{count}",
            "vanishes": ", ".join(self.vanishes_under()) or f"with none of {tried} single changes",
            "suspect": self.suspect(),
        }
        self.notes["culprit"] = self.culprit()

    def stage(self) -> str:
        """The first stage that differs, and what that makes the fault a fault of."""
        first = self.first()
        return f"{first} is the first that differs: {STAGES[first]}" if first else "none: no compiler is involved"

    def which_graph(self) -> str:
        where = self.finding.signature.direction or "unknown"
        if not self.first().startswith("inductor"):
            return f"{where}: that is where it shows"
        if "joint_graph.py" in self.files:
            return f"joint: the route compiles one graph for both directions; it shows in the {where}"
        if decided := self.direction():
            return f"{decided}: with this graph uncompiled the difference is gone, with the other it is not"
        return f"{where}: that is where it shows; leaving one graph uncompiled does not decide it"

    def culprits(self) -> list[str]:
        """The overloads without whose lowering all agree."""
        return [name.removesuffix(LEFT) for name in self.vanishes_under() if name.endswith(LEFT)]

    def suspect(self) -> str:
        """Mark the suspicious lines of graph and code, where inductor is at fault; tells the first of each."""
        if not self.first().startswith("inductor"):
            return "none: the difference is there before inductor writes code"
        name, graph = self.graph()
        if not graph:
            return "none: no graph reached inductor"
        code, shapes = name.replace("_graph", "_code"), self.shapes()
        if code in self.files:
            self.files[code] = mark_code(self.files[code], graph, shapes)
        self.files[name] = mark_graph(graph, [*self.culprits(), self.found.get("info", "")], shapes)
        lines = [f"{n} {line}" for n in (name, code) for line in marked_lines(self.files.get(n, ""))[:1]]
        return "; ".join(lines) or f"none stands out in {name}"

    def shapes(self) -> list[str]:
        """The shapes of the wrong tensors among what the graph at fault returns."""
        if self.direction() not in ("", self.finding.signature.direction):
            return []  # the wrong gradient comes from the other graph, which this one spoils
        kinds = re.findall(r"is \w+(\[[\d, ]*\])", self.finding.detail)  # of a tensor whose dtype or shape is wrong
        return self.found.get("shapes", "").split() or [kind.replace(" ", "") for kind in kinds[:1]]

    def culprit(self) -> str:
        """The name of what is at fault, as far as it was found."""
        subsystem, info, first = self.found.get("subsystem", ""), self.found.get("info", ""), self.first()
        if first.startswith("inductor") and (node := self.impossible_layout()):
            return f"the layout of {node}: {SHARED}"
        if not self.tables["stage"]:
            return self.blame_kernels()
        if first == "eager":
            return "eager itself lies outside what rounding explains"
        if {f"{FP_FUSION} off", "{}={}".format(*CONTRACTION)} & set(self.vanishes_under()):
            return f"{FP_FUSION}: a product and a sum rounded once; with two roundings the difference is gone"
        if self.notes.get("side", "").startswith(EAGER):
            ops = self.culprits() or [self.bisected_op()]
            return f"eager's own kernel{' for ' if any(ops) else ''}{', '.join(ops)}: what is compiled instead is right"
        if subsystem == "decomposition":
            return f"the decomposition of {info}, which disagrees with ATen's own kernel"
        if subsystem.endswith("_passes"):
            switches = [name for name in self.vanishes_under() if name in _PASS_SWITCHES]
            return f"inductor's pass {info} ({subsystem})" + "".join(f", gone with {name}" for name in switches)
        if subsystem and subsystem != "lowerings":
            return f"what the bisector calls {subsystem}: changed, the difference is gone"
        return self.blame_lowering() or (
            f"not found beyond the stage {first}" if first else "not found: no stage differs by itself"
        )

    def impossible_layout(self) -> str:
        """The node of the graph at fault that cannot be laid out as it is, as inductor lowered the graph or got it."""
        name, graph = self.graph()
        return next(iter(shared(graph)), self.found.get(f"shared {name}", ""))

    def blame_kernels(self) -> str:
        """Whose kernels are at fault where no compiler is involved, as far as derivatives tell the sides apart."""
        program, place, side = parse(self.finding.program), self.finding.place, self.notes.get("side", "")
        device = place.get("device", "")
        subject, reference = f"{place.get('backend')}@{device}", place.get("against", "")
        reference += "" if "@" in reference else f"@{device}"
        sides = {COMPILED: (subject, reference), EAGER: (reference, subject)}
        wrong, right = next((pair for said, pair in sides.items() if side.startswith(said)), ("", ""))
        ops = ", ".join(dict.fromkeys(node.op for node in program.nodes))
        return f"the kernels of {wrong} for {ops}: {right} is right" if wrong else "not found: no compiler is involved"

    def blame_lowering(self) -> str:
        """Whose lowering is at fault; "" where that is not known."""
        culprits = self.culprits() or ([self.bisected_op()] if self.bisected_op() else [])
        if len(culprits) > 1:
            return f"inductor's code that joins {', '.join(culprits)}: with any of them left to ATen they agree"
        return f"inductor's code for {culprits[0]}: left to ATen, the difference is gone" if culprits else ""
