"""The evidence about a finding from ablations, closer looks and the bisector, and the conclusions. Nothing runs
here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzzer.diagnosis.ablation import LATER as _LATER
from fuzzer.diagnosis.ablation import STAGES, order, settings_text
from fuzzer.diagnosis.listings import SHARED, aten_ops, mark_code, mark_graph, marked_lines, node_op, shared
from fuzzer.diagnosis.memcheck import EAGER_CORRUPTS
from fuzzer.judgement.verdict import COMPILED, EAGER, Finding
from fuzzer.language.private import GRAPHS
from fuzzer.language.program import Program
from fuzzer.language.text import parse
from fuzzer.ledger.cause import IN_ORDER, LEFT
from fuzzer.ledger.switches import AGREE, FP_FUSION, GROUPS, SWITCHES, Switch, convicting, gone

DIFFERENCE = ("tensors", "elements", "ratio")
# Overloads to leave to ATen one by one: at a stage, with full compiles, and when they are probably not at fault.
_MOST_SUSPECTS, _BUILT_SUSPECTS, _FEW_SUSPECTS = 16, 6, 3
_MOST_TOLD = 3  # of these, named in one line


def _ran(outcome: str) -> bool:
    """Whether a change could be made, and its variant ran."""
    return not outcome.startswith("not run") and not outcome.endswith("already")


def _tensor_names(program: Program) -> set[str]:
    """The names that oracles use for a program's tensors: `x0`, `x0.grad`, `v1` and `c0`."""
    leaves = {leaf.name for leaf in program.leaves}
    outputs = {output.value for output in program.outputs}
    return leaves | {f"{name}.grad" for name in leaves} | outputs | {f"c{i}" for i in range(len(outputs))}


@dataclass
class Evidence:
    """All evidence about one finding.

    program  the finding's.
    tables   by name (stage, ablation, subset), the class that each variant showed.
    sufficient_settings  the subsets of the program's settings that showed the finding, the smallest first.
    found    notes of workers: backend, subsystem and info of the bisector, shapes of the wrong tensors.
    notes    the lines of the diagnosis so far;  files   the attachments.
    asked_at   the stage at which single changes ran;  proved   the results of full compiles, by name.
    """

    finding: Finding
    tables: dict[str, dict[str, str]] = field(default_factory=lambda: {"stage": {}, "ablation": {}, "subset": {}})
    sufficient_settings: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    asked_at: str = ""
    proved: dict[str, str] = field(default_factory=dict)
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        self.program = parse(self.finding.program)

    # ------------------------------------------------------------ conclusions on the way

    def note_difference(self, here: Mapping[str, str], died: str, before: Mapping[str, str], unseen: str) -> None:
        """Note the fields of DIFFERENCE for the finding and for the original program; died and unseen say why fields
        are missing."""
        finding = self.finding
        for name in DIFFERENCE:
            self.notes[name] = here.get(name, f"none: {died or finding.detail.partition(':')[0]}")
        first = finding.detail.partition(" ")[0]
        if first in _tensor_names(self.program):
            self.notes["tensors"] = first
        names = DIFFERENCE[1:] if ", " in before.get("tensors", "") else DIFFERENCE  # several tensors: name them again
        text = "; ".join(before[name] for name in names if name in before)
        text = text or f"none: {unseen or finding.before or 'no tensor of it holds wrong values'}"
        self.notes["original"] = "it is the minimal program" if finding.original == finding.program else text

    def first(self) -> str:
        """The first stage that differs; "" where there are no stages."""
        ran = {name: seen for name, seen in self.tables["stage"].items() if not seen.startswith("not run")}
        return next((name for name, seen in ran.items() if seen != AGREE), "")

    def vanishes_under(self) -> list[str]:
        """The single changes that remove the difference."""
        return [name for name, seen in self.tables["ablation"].items() if gone(seen)]

    def direction(self) -> str:
        """forward or backward, if leaving that graph uncompiled removes the difference; else ""."""
        decided = [graph.split()[0] for graph in GRAPHS if f"{graph} uncompiled" in self.vanishes_under()]
        return decided[0] if len(decided) == 1 else ""

    def graph(self) -> tuple[str, str]:
        """The graph at fault, if known: its file's name and text."""
        kinds = (self.direction(), self.finding.signature.direction, "joint", "forward")
        names = [f"{kind}_graph.py" for kind in kinds]
        return next(((name, self.files[name]) for name in names if name in self.files), ("", ""))

    def eager_corrupts(self) -> bool:
        """Whether eager alone corrupts the heap: then other deaths, and the changes that prevent them, are chance."""
        return self.notes.get("memcheck", "").startswith(EAGER_CORRUPTS)

    def bisected_op(self) -> str:
        """The overload at which the bisector ended: that of the node it names, or the decomposition it names."""
        info, subsystem = self.found.get("info", ""), self.found.get("subsystem")
        if subsystem == "lowerings":
            return node_op(self.files.values(), info)
        return info if subsystem == "decomposition" and info.startswith("aten.") else ""

    def suspects(self) -> list[str]:
        """The overloads to leave to ATen: the bisector's, or the first of the graph at fault."""
        op = self.bisected_op()
        built = order(self.asked_at) >= order("inductor")
        most = min(_BUILT_SUSPECTS if built else _MOST_SUSPECTS, _FEW_SUSPECTS if self.convicted() else _MOST_SUSPECTS)
        return [op] if op else aten_ops(self.graph()[1])[:most]

    def convicted(self) -> list[Switch]:
        """The switches that are the cause by the evidence so far, of one kind, the most telling first."""
        return convicting(self.tables["ablation"])

    def open(self) -> str:
        """The kind of cause that only the bisector can still find: "operator", "pass"; "" for none."""
        if self.convicted() or self.first() in ("", "eager", "aot_eager") or self.impossible_layout():
            return ""
        if convicting(self.tables["ablation"], GROUPS):
            return "pass"
        return "" if len(self.culprits()) == 1 else "operator"

    # ------------------------------------------------------------ the lines of the diagnosis

    def summarise(self) -> None:
        """Note stage, graph, settings, vanishes, suspect (marking its lines in the files) and culprit."""
        tried = len(self.tables["ablation"])
        own = self.program.settings
        count = f" (the program sets {len(own)})" if own else ""
        self.notes |= {
            "stage": self.stage(),
            "graph": self.which_graph(),
            "settings": f"appears under {next(iter(self.sufficient_settings), settings_text(own))}{count}",
            "vanishes": ", ".join(self.vanishes_under()) or f"with none of {tried} single changes",
            "suspect": self.suspect(),
        }
        self.notes["culprit"] = self.culprit()
        self.notes["excludes"] = self.excludes()

    def stage(self) -> str:
        """The first stage that differs, and the component that this stage adds."""
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
        """The overloads whose removal from lowering removes the difference."""
        return [name.removesuffix(LEFT) for name in self.vanishes_under() if name.endswith(LEFT)]

    def suspect(self) -> str:
        """Mark the suspicious lines of graph and code, where inductor is at fault; returns the first of each."""
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
        """The shapes of the wrong tensors among the results of the graph at fault."""
        if self.direction() not in ("", self.finding.signature.direction):
            return []  # the wrong gradient comes from the other graph, which this graph corrupts
        kinds = re.findall(r"is \w+(\[[\d, ]*\])", self.finding.detail)  # a tensor of wrong dtype or shape
        return self.found.get("shapes", "").split() or [kind.replace(" ", "") for kind in kinds[:1]]

    def culprit(self) -> str:
        """The name of the cause, as exactly as known."""
        subsystem, info, first = self.found.get("subsystem", ""), self.found.get("info", ""), self.first()
        if first.startswith("inductor") and (node := self.impossible_layout()):
            return f"the layout of {node}: {SHARED}"
        if self.eager_corrupts():
            all_ops = ", ".join(dict.fromkeys(node.op for node in self.program.nodes))
            return f"eager's own kernels for {all_ops}: they write outside of their memory"
        if not self.tables["stage"]:
            return self.blame_kernels()
        if first == "eager":
            return "eager itself lies outside what rounding explains"
        if self.notes.get("side", "").startswith(EAGER):
            ops = self.culprits() or [self.bisected_op()]
            ops = ops if any(ops) else [node.op for node in self.program.nodes]
            told = f"eager's own kernel for {', '.join(dict.fromkeys(ops))}: what is compiled instead is right"
            return f"{told}{self.in_this_layout()}"
        if guilty := self.convicted():
            return self.blame(guilty)
        if subsystem == "decomposition":
            return f"the decomposition of {info}, which disagrees with ATen's own kernel{self.in_this_layout()}"
        if subsystem.endswith("_passes"):
            return f"inductor's pass {info} ({subsystem})"
        if subsystem and subsystem != "lowerings":
            return f"what the bisector calls {subsystem}: changed, the difference is gone"
        if text := self.blame_lowering():
            return f"{text}{self.in_this_layout()}"
        return f"not found beyond the stage {first}{self.in_this_layout()}" if first else "not found: no stage differs"

    def blame(self, guilty: list[Switch]) -> str:
        """The line for switches of one kind that are the cause, with the operators where the fault shows."""
        if guilty[0].kind == FP_FUSION:
            return f"{FP_FUSION}: {guilty[0].does}; with two roundings the difference is gone"
        several = len(guilty) > 1
        names = " and ".join(f"{switch.does} ({switch.name})" for switch in guilty)
        ops = [op for op in self.culprits() if guilty[0].kind not in ("pass", "precision")]
        more = f" and {len(ops) - _MOST_TOLD} more" if len(ops) > _MOST_TOLD else ""
        shows = f"; it shows in {', '.join(ops[:_MOST_TOLD])}{more}" if ops else ""
        return f"{names}: with {'any of these changes' if several else 'this change'} the difference is gone{shows}"

    def in_this_layout(self) -> str:
        """The remark that only leaves in this layout reproduce the fault, where so."""
        return f"; with {IN_ORDER} both agree" if gone(self.tables["ablation"].get(IN_ORDER, "")) else ""

    def excludes(self) -> str:
        """The causes that experiments exclude, and those that were not tested, with the reason."""
        table = self.tables["ablation"]
        seen = {s.name: table[s.name] for s in (*SWITCHES, *GROUPS) if s.name in table}
        seen |= {name: text for name, text in table.items() if name.endswith(LEFT)}
        if not seen:
            return "none: nothing can be switched off there"
        shows = [name for name, text in seen.items() if not gone(text) and _ran(text) and not name.endswith(LEFT)]
        ops = [n.removesuffix(LEFT) for n, text in seen.items() if not gone(text) and _ran(text) and n.endswith(LEFT)]
        shows += [f"{', '.join(ops)}{LEFT}"] if ops else []
        silent: dict[str, list[str]] = {}
        for name, text in seen.items():
            if not gone(text) and not _ran(text):
                silent.setdefault(_LATER if _LATER in text else text.removeprefix("not run: "), []).append(name)
        later = len(silent.pop(_LATER, []))
        parts = [f"it shows still with {', '.join(shows)}"] if shows else []
        parts += [f"not asked: {', '.join(names)} ({why})" for why, names in silent.items()]
        parts += [f"not asked: {later} that act later than {self.asked_at}, {_LATER}"] if later else []
        told = "; ".join(parts) or "nothing: each change that was asked makes it vanish"
        return f"{told}. {self.asked()}"

    def asked(self) -> str:
        """The stage at which changes ran, and the results of full compiles."""
        where = f"Asked at {self.asked_at}" if self.asked_at else "Asked of the program itself"
        proofs = "; ".join(f"{name}: {said}" for name, said in self.proved.items())
        return f"{where}; built: {proofs}" if proofs else where

    def impossible_layout(self) -> str:
        """The node of the graph at fault whose layout is impossible, in the graph as inductor lowered or received
        it."""
        name, graph = self.graph()
        return next(iter(shared(graph)), self.found.get(f"shared {name}", ""))

    def blame_kernels(self) -> str:
        """Whose kernels are at fault where no compiler is involved, as far as derivatives tell the sides apart."""
        place, side = self.finding.place, self.notes.get("side", "")
        device = place.get("device", "")
        subject, reference = f"{place.get('backend')}@{device}", place.get("against", "")
        reference += "" if "@" in reference else f"@{device}"
        sides = {COMPILED: (subject, reference), EAGER: (reference, subject)}
        wrong, right = next((pair for said, pair in sides.items() if side.startswith(said)), ("", ""))
        ops = ", ".join(dict.fromkeys(node.op for node in self.program.nodes))
        return f"the kernels of {wrong} for {ops}: {right} is right" if wrong else "not found: no compiler is involved"

    def blame_lowering(self) -> str:
        """The lowering at fault; "" where unknown."""
        culprits, op = self.culprits(), self.bisected_op()
        if op and len(culprits) > 1:
            others = ", ".join(name for name in culprits if name != op)
            return f"inductor's code for {op}, on which the bisector ends; gone too with {others} left to ATen"
        if len(culprits) > 1:
            return f"inductor's code that joins {', '.join(culprits)}: with any of them left to ATen they agree"
        name = next(iter([*culprits, op]))
        return f"inductor's code for {name}: left to ATen, the difference is gone" if name else ""
