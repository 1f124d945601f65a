"""A user's function as a Program: every torch call that it makes on example inputs, written down as a node.

The calls are recorded as the user wrote them (torch functions, methods and operators), before autograd or a compiler
decomposes them. A call becomes the first op whose table entry accepts its arguments and which gives the same result,
bit by bit, on the same tensors. A spelling that the tables lack becomes the calls that it is made of (`spellings`), a
torch function in Python the calls in its body. Calls under autocast or without gradients are written in such regions;
those under a checkpoint or within torch.func are refused. Effects that only autograd sees (a Function's own backward, a
hook) are refused by name. The program is then compared with the function (`fidelity`), and refused where any result
differs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fuzzer.language.fidelity import (
    Memory,
    copies,
    first_difference,
    observe,
    placed,
    tensors_in,
    untouched,
    whole,
)
from fuzzer.language.function import tree_leaves
from fuzzer.language.infer import IllTyped, infer, type_of
from fuzzer.language.interpret import apply, cotangents, to_function
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import REQUIRED, WRITES, OpSpec
from fuzzer.language.private import body_of, in_transform, memory_of, saves_by_hooks, schema_defaults, unseen
from fuzzer.language.program import (
    DIFFERENTIABLE,
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
    Statement,
    Value,
    contiguous,
    walk,
)
from fuzzer.language.settings import SAME_DRAWS
from fuzzer.language.spellings import SPELLINGS
from fuzzer.language.values import DTYPE_NAMES, as_data, fill

# Leaves of at most this many elements keep their values in the text; larger ones only their type and layout.
_MOST_VALUES = 64
_MOST_CONSTANTS = 1 << 16  # the same for leaves that the function itself made
_MOST_RESULTS = 64  # of an op whose table entry gives no number
# Calls that change what autograd does, or a tensor's own attributes: they are refused before they run.
_CHANGES = frozenset("backward register_hook register_post_accumulate_grad_hook __set__ __delete__".split())
# Calls about a tensor's type, memory or graph, not its values.
_QUERIES = frozenset(
    """
    shape size dim ndim ndimension dtype device layout stride numel nelement element_size itemsize nbytes names
    storage_offset data_ptr untyped_storage requires_grad grad_fn retains_grad retain_grad output_nr get_device
    result_type __len__ __hash__ __repr__ __format__ __str__ _version
""".split()
)
# The op and the value of tensors of one number that a call makes.
_FILLED: dict[str, tuple[str, Callable[..., Any]]] = {
    "zeros": ("new_zeros", lambda *size, **given: None),
    "ones": ("new_ones", lambda *size, **given: None),
    "full": ("new_full", lambda size, fill_value, **given: fill_value),
    "tensor": ("new_full", lambda data, **given: data),
}


class Inexpressible(ValueError):
    """A function that no program can express; `calls` names every obstacle that was met."""

    def __init__(self, calls: Sequence[str]):
        super().__init__("no program says this function: " + "; ".join(calls))
        self.calls = tuple(calls)


@dataclass
class Transcript(TorchFunctionMode):
    """The transcript so far: leaves, nodes, and the names of tensors. cuts: the places of calls that no node expresses,
    whose results are leaves (`pieces`); None: what depends on such calls is lost."""

    memory: Memory
    cuts: set[int] | None = None
    leaves: list[Leaf] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # by id; `tensors` keeps them alive
    held: dict[str, torch.UntypedStorage] = field(default_factory=dict)  # by leaf without a base: what it held at first
    drawn: list[str] = field(default_factory=list)  # leaves whose values are a recipe's, not the user's
    missing: list[str] = field(default_factory=list)
    unknown: list[torch.Tensor] = field(default_factory=list)  # results of calls that no node expresses
    made: dict[int, tuple[torch.Tensor, str]] = field(default_factory=dict)  # by id: results of calls without operands
    constants: dict[str, str] = field(default_factory=dict)  # leaves that are such results, with the call
    written: set[int] = field(default_factory=set)  # memory that a call wrote to

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        call = _TorchCall(func, args, given)
        if call.changes:
            raise Inexpressible([*self.missing, str(call)])
        if call.name in SPELLINGS:
            with self:
                result = SPELLINGS[call.name](*args, **given)
            if result is not NotImplemented:
                return result
        if call.asks or not call.tensors:
            result = func(*args, **given)
            with unseen():
                self.note_made(call, result)
            return result
        with unseen():
            barred = self.lost(call) or in_transform() or saves_by_hooks()
            found, body = ([], None) if barred else (_matches(call), body_of(func))
        if found or body is None:
            state = torch.get_rng_state()
            result = self.run(call, found, state, body is not None)
            if result is not NotImplemented:
                return result
            torch.set_rng_state(state)
        assert body is not None
        with self:
            return body(*args, **given)

    def run(self, call: _TorchCall, found: list[_Match], state: torch.Tensor, otherwise: bool) -> Any:
        """Run a call and write down the first match that gives its results. NotImplemented if none does and the call
        wrote nothing, where it can run otherwise."""
        with unseen():
            for tensor in call.tensors if found else ():
                self.name(tensor)
            written = call.tensors if found and call.writes else []
            before = dict(zip(map(id, written), copies(written), strict=True))
            self.written |= {memory_of(t) for t in call.tensors[:1] if call.writes}
        result = call.func(*call.args, **call.kwargs)
        results = tensors_in(result)
        with unseen():
            if not self.write(call, found, results, before, state):
                if otherwise and not call.writes:
                    return NotImplemented
                self.give_up(call, results)
        return result

    def write(
        self,
        call: _TorchCall,
        matches: list[_Match],
        found: list[torch.Tensor],
        before: dict[int, torch.Tensor],
        state: torch.Tensor,
    ) -> bool:
        """Write down the first op that gives the call's results. Returns whether there is one."""
        for spec, args, attrs in matches if found else ():
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                results = _evaluate(spec, args, attrs, before)
            if _same_results(results, found):
                self.add_node(spec.name, tuple(map(self.named, args)), attrs, found, _contexts(call))
                return True
        return False

    def add_node(
        self,
        op: str,
        names: tuple[Argument, ...],
        attrs: Attributes,
        found: list[torch.Tensor],
        contexts: Sequence[tuple[str, Attributes]] = (),
    ) -> None:
        """Add a node with these results, in regions of these contexts (the innermost first); it joins the last region
        if that has the same."""
        count = sum(len(n.outs) for n in walk(tuple(self.body)))
        outs = tuple(f"v{count + i}" for i in range(len(found)))
        self.body = list(_joined(self.body, Node(outs, op, names, attrs), contexts))
        for name, tensor in zip(outs, found, strict=True):
            self.bind(name, tensor)

    def note_made(self, call: _TorchCall, result: Any) -> None:
        """Note the tensors that a call without operands made. Those of one number everywhere are nodes, since a
        compiler knows their values."""
        found = [] if call.tensors else tensors_in(result)
        self.made |= {id(t): (t, call.name) for t in found}
        if call.name in _FILLED and self.leaves and len(found) == 1 and found[0].dtype in DTYPE_NAMES:
            (op, value), (made,) = _FILLED[call.name], found
            number, anchor = value(*call.args, **call.kwargs), self.tensors[self.leaves[0].name]
            plain = made.is_contiguous() and not made.requires_grad and made.device == anchor.device
            if plain and (op != "new_full" or isinstance(number, int | float)):
                filled = (("fill_value", number),) if op == "new_full" else ()
                attrs = (("size", tuple(made.shape)), *filled, ("dtype", Dtype(DTYPE_NAMES[made.dtype])))
                self.add_node(op, (self.names[id(anchor)],), attrs, found)

    def give_up(self, call: _TorchCall, found: list[torch.Tensor]) -> None:
        """Note a call that no node expresses; later calls that depend on it are not noted again. A call that returns
        its operands as they are needs no node."""
        operands = set(map(id, call.tensors))
        if not self.lost(call):
            if found and not call.writes and all(id(t) in operands for t in found):
                return
            self.missing.append(f"{call}{self.obstacle(call)}")
        if self.cuts is None:
            self.unknown += found
        else:
            self.cuts.add(len(self.body))
            for tensor in found:  # what comes after it has a gradient again
                if tensor.is_leaf and (tensor.is_floating_point() or tensor.is_complex()):
                    tensor.requires_grad_()

    def lost(self, call: _TorchCall) -> bool:
        return any(t is u for t in call.tensors for u in self.unknown)

    def obstacle(self, call: _TorchCall) -> str:
        """The context of a call that no node expresses, "" for none."""
        if in_transform():
            return " within torch.func"
        if saves_by_hooks():
            return " under a checkpoint, or other hooks for saved tensors"
        return "".join(f" in {kind}" for kind, _ in _contexts(call))

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        self.tensors[name] = tensor
        self.names[id(tensor)] = name

    def named(self, argument: Any) -> Argument:
        """The names of an operand's tensors; a new tensor, or a number, becomes a leaf."""
        if argument is None:
            return None
        if isinstance(argument, list | tuple):
            return tuple(None if t is None else self.name(t) for t in argument)
        if not isinstance(argument, torch.Tensor):
            self.made[id(argument.tensor)] = (argument.tensor, str(argument.number))
            return self.name(argument.tensor)
        return self.name(argument)

    def name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self.names:
            self.add_leaf(tensor)
        return self.names[id(tensor)]

    def add_leaf(self, tensor: torch.Tensor) -> None:
        """Add an input tensor of the program: its type and layout, and its values if they are few."""
        name, seed, made = f"x{len(self.leaves)}", len(self.leaves) + 1, id(tensor) in self.made
        if tensor.layout != torch.strided:
            raise IllTyped(f"a tensor of layout {tensor.layout}, which programs cannot hold")
        t, memory = type_of(tensor), memory_of(tensor)
        if tensor.grad_fn is not None or (memory in self.memory.made and not made):
            self.missing.append(f"{_described(tensor)}, which no call in sight made")
        offset, floating = tensor.storage_offset(), t.differentiable and not made
        base = next((b for b in self.leaves if b.base is None and b.dtype == t.dtype and t.numel
                     and memory_of(self.tensors[b.name]) == memory), None)  # fmt: skip
        leaf = Leaf(name, t.dtype, t.shape, t.stride, offset, floating and tensor.requires_grad, conj=tensor.is_conj())
        if base is not None:
            leaf = replace(leaf, base=base.name)
        else:
            now = tensor.untyped_storage()
            self.held[name] = self.memory.before.get(memory, (now, now))[1].clone()
            first = placed(tensor, self.held[name])
            recipe, exact = recipe_of(first, _MOST_CONSTANTS if made else _MOST_VALUES)
            leaf = replace(leaf, values=recipe, seed=0 if exact else seed)
            self.drawn += [] if exact else [name]
        if made:
            self.constants[name] = self.made[id(tensor)][1]
        self.leaves.append(leaf)
        self.bind(name, tensor)


def _contexts(call: _TorchCall) -> list[tuple[str, Attributes]]:
    """The regions in which a call runs, the innermost first. One without gradients counts where an operand has some."""
    found: list[tuple[str, Attributes]] = []
    if not torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors):
        found.append(("no_grad", ()))
    device = call.tensors[0].device.type
    if torch.is_autocast_enabled(device):
        found.append(("autocast", (("dtype", Dtype(DTYPE_NAMES[torch.get_autocast_dtype(device)])),)))
    return found


def _joined(
    body: Sequence[Statement], node: Statement, contexts: Sequence[tuple[str, Attributes]]
) -> tuple[Statement, ...]:
    if not contexts:
        return (*body, node)
    *inner, (kind, attrs) = contexts
    last = body[-1] if body else None
    if isinstance(last, Region) and (last.kind, last.attrs) == (kind, attrs):
        return (*body[:-1], replace(last, body=_joined(last.body, node, inner)))
    return (*body, Region(kind, attrs, _joined((), node, inner)))


_LIBRARYS = "GeneratedBackwardFor_"  # Functions of torch.library: they belong to the operator, whose call is recorded


def _own_backwards(results: Sequence[torch.Tensor]) -> list[str]:
    """The custom Functions in the graph behind these results, whose backward may differ from their forward's
    derivative."""
    todo, seen = [t.grad_fn for t in results], set[Any]()
    found: dict[str, None] = {}
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [before for before, _ in node.next_functions]
            if isinstance(node, torch.autograd.function.BackwardCFunction) and not node.name().startswith(_LIBRARYS):
                found[f"the backward of the Function {node.name().removesuffix('Backward')}"] = None
    return list(found)


def _evaluate(
    spec: OpSpec, args: list[Any], attrs: tuple[tuple[str, Value], ...], before: dict[int, torch.Tensor]
) -> list[torch.Tensor]:
    """The results of an op on these operands as they were before the call; none where torch refuses."""
    env: dict[str, Any] = {}
    if spec.effects == WRITES:
        before = dict(zip(before, copies(list(before.values())), strict=True))

    def lend(argument: Any) -> Argument:
        if argument is None:
            return None
        if isinstance(argument, list | tuple):
            return tuple(map(lend, argument))  # type: ignore[arg-type]
        given = argument.tensor if isinstance(argument, _Number) else argument
        env[f"a{len(env)}"] = before.get(id(given), given)
        return f"a{len(env) - 1}"

    names = tuple(map(lend, args))
    for count in (spec.results,) if isinstance(spec.results, int) else range(1, _MOST_RESULTS + 1):
        outs = tuple(f"r{i}" for i in range(count))
        with torch.no_grad():
            try:
                apply(Node(outs, spec.name, names, attrs), env)
            except Exception:  # torch refuses: it is another op
                continue
        return [env[name] for name in outs]
    return []


def recipe_of(tensor: torch.Tensor, most: int = _MOST_VALUES) -> tuple[Recipe, bool]:
    """A recipe for a leaf's values, and whether it gives exactly these values: it does for at most so many."""
    values = tensor.detach().cpu()
    values = values.conj() if values.is_conj() else values  # the values in the storage
    dtype, shape = DTYPE_NAMES[values.dtype], tuple(values.shape)
    if torch.equal(values, fill(Recipe("ones"), 0, dtype, shape)):
        return Recipe("ones"), True
    if values.numel() <= most:
        return as_data(values), True
    if dtype in DIFFERENTIABLE:
        return NORMAL, False
    return Recipe("coins") if dtype == "bool" else Recipe("between", (int(values.min()), int(values.max()))), False


# ---------------------------------------------------------------- a call and its candidate ops


@dataclass(frozen=True)
class _TorchCall:
    """A torch function that was called, with its arguments."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return _reported_name(self.func)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return tensors_in([*self.args, *self.kwargs.values()])

    @property
    def writes(self) -> bool:
        """Whether it writes into one of its operands."""
        in_place = self.name.endswith("_") and not self.name.endswith("__") and self.name != "requires_grad_"
        named = self.name in ("__setitem__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__")
        return in_place or named or self.kwargs.get("out") is not None or self.kwargs.get("inplace") is True

    @property
    def asks(self) -> bool:
        """Whether it reads no values."""
        return self.name in _QUERIES or (self.name.startswith("is_") and self.name != "is_nonzero")

    @property
    def changes(self) -> bool:
        """Whether it changes an attribute of a tensor, or what autograd does."""
        if in_transform():  # its tensors are torch.func's
            return False
        asked = self.name == "requires_grad_" and [*self.args[1:], *self.kwargs.values(), True][0]
        return self.name in _CHANGES or (asked is not False and asked != self.args[0].requires_grad)

    def __str__(self) -> str:
        shown = [_described(a) for a in self.args] + [f"{k}={_described(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{DTYPE_NAMES.get(value.dtype, value.dtype)}{list(value.shape)}"
    return f"[{', '.join(map(_described, value))}]" if isinstance(value, list | tuple) else repr(value)


def _same_results(results: list[torch.Tensor], found: list[torch.Tensor]) -> bool:
    """Equal types and equal values, NaN equal to itself."""
    if [(t.dtype, t.shape, t.stride()) for t in results] != [(t.dtype, t.shape, t.stride()) for t in found]:
        return False
    pairs = zip(results, found, strict=True)
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


@functools.cache
def _ops_by_reported_name() -> dict[str, list[OpSpec]]:
    """The ops by the names under which torch may report a call of their source."""
    found: dict[str, list[OpSpec]] = {}
    for spec in (s for s in OPS.values() if not s.then):
        function = functools.reduce(getattr, spec.source.split(".")[1:], torch)
        owner, _, last = spec.source.rpartition(".")
        if owner != "torch.masked":  # its functions call others unseen, and masked.sum is no sum
            direct = owner in ("torch", "torch.Tensor", "torch.nn.functional")
            for name in {_reported_name(function)} | ({last} if direct else set()):
                found.setdefault(name, []).append(spec)
    return found


def _reported_name(func: Any) -> str:
    """The name under which torch reports a call of this function."""
    if isinstance(func, torch._ops.OpOverload):
        return str(func)
    name = getattr(func.__self__ if func.__name__ == "__get__" else func, "__name__", "")
    return name.removesuffix("_with_indices")  # torch reports F.max_pool2d with return_indices under that name


_Numbers = Callable[[float, torch.Tensor], torch.Tensor]  # of a number and the tensor beside it
_Match = tuple[OpSpec, list[Any], tuple[tuple[str, Value], ...]]


def _matches(call: _TorchCall) -> list[_Match]:
    """Every (op, operands, attributes) that may express the call: those first that say most of its arguments; numbers
    as tensors last."""
    found: dict[Any, tuple[int, _Match]] = {}
    for numbers in (None, _as_torch, _as_double):
        for spec in sorted(_ops_by_reported_name().get(call.name, []), key=lambda spec: not _fits_rank(spec, call)):
            for parameters in (*_parameters(call.func), {p.name: _NO_DEFAULT for p in spec.params}):
                for args in _packings(call.args, len(parameters)):
                    unsaid, match = _match_overload(spec, parameters, replace(call, args=args), numbers)
                    if match is not None:
                        _, operands, attrs = match
                        same = spec.name, [str(a.tensor) if isinstance(a, _Number) else id(a) for a in operands], attrs
                        found.setdefault(repr(same), (unsaid + 100 * (numbers is not None), match))
    return [match for _, match in sorted(found.values(), key=lambda found: found[0])]


def _packings(args: tuple[Any, ...], most: int) -> Iterator[tuple[Any, ...]]:
    """The positional arguments, and with the integers after the first as one tuple: x.view(2, -1), x.reshape(-1)."""
    if len(args) <= most:
        yield args
    if len(args) > 1 and all(type(a) is int for a in args[1:]):
        yield args[0], args[1:]


def _fits_rank(spec: OpSpec, call: _TorchCall) -> bool:
    """Whether the first operand has a rank that the table allows: grid_sample is one op for images and one for
    volumes."""
    first = spec.operands[0] if spec.operands else None
    return first is not None and first.rank[0] <= call.tensors[0].dim() <= first.rank[1]


_NO_DEFAULT = inspect.Parameter.empty
# Names that torch gives a parameter in another of its forms, and the tables' own.
_SYNONYMS = {"split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"}


def _parameters(func: Any) -> Iterator[dict[str, Any]]:
    """The parameters of each overload of a torch function, in order, with their defaults."""
    if isinstance(func, FunctionType):
        with contextlib.suppress(ValueError):  # around a function in C, which has no signature
            known = inspect.signature(func).parameters.items()
            yield {_SYNONYMS.get(name, name): p.default for name, p in known}
    for overload in schema_defaults(func, _NO_DEFAULT):
        yield {_SYNONYMS.get(name, name): default for name, default in overload.items()}


@dataclass(frozen=True)
class _Number:
    """A number in the place of an operand: a tensor of no dimensions."""

    number: float
    tensor: torch.Tensor


def _match_overload(
    spec: OpSpec,
    parameters: Mapping[str, Any],
    call: _TorchCall,
    numbers: _Numbers | None,
) -> tuple[int, _Match | None]:
    """The call's arguments as operands and attributes of this op, None where they do not fit; and how many of them it
    does not say, because they have no effect."""
    given = {**dict(zip(parameters, call.args, strict=False)), **call.kwargs}
    slots = [o.name for o in spec.operands]
    known = {a.name for a in spec.attributes}
    operands: dict[str, Any] = {}
    attributes = {a.name: parameters[a.name] for a in spec.attributes
                  if a.default is REQUIRED and parameters.get(a.name, _NO_DEFAULT) is not _NO_DEFAULT}  # fmt: skip
    unsaid = 0
    for name, value in given.items():
        number = numbers is not None and name not in known and isinstance(value, int | float)
        if tensors_in(value) or number:
            free = (s for s in slots if s not in operands and s not in given)
            slot = name if name in slots else next(free, None)
            if slot is None or slot in operands:
                return 0, None
            operands[slot] = _Number(value, numbers(value, call.tensors[-1])) if numbers and number else value
        elif name in known:
            attributes[name] = value
        elif _is_ignorable(name, value, parameters.get(name, _NO_DEFAULT), name in slots):
            unsaid += 1
        else:
            return 0, None
    return unsaid, _canonical_arguments(spec, operands, attributes)


def _as_torch(number: float, beside: torch.Tensor) -> torch.Tensor:
    """A number in the dtype that torch gives it beside a tensor."""
    return torch.tensor(number, dtype=torch.result_type(beside, number), device=beside.device)


def _as_double(number: float, beside: torch.Tensor) -> torch.Tensor:
    """A number as it is: operations in half precision do not round it first."""
    return torch.tensor(number, dtype=torch.float64, device=beside.device)


def _is_ignorable(name: str, value: Any, default: Any, operand: bool) -> bool:
    """Whether an argument says nothing: a default, an operand left out, a flag that is off where None or nothing is
    known as its default, or the line that a warning names."""
    if value is None and operand:
        return True
    if value is None or value is False:
        return default in (_NO_DEFAULT, None, value)
    return name == "_stacklevel" or (type(value) is type(default) and bool(value == default))


def _canonical_arguments(spec: OpSpec, operands: dict[str, Any], attributes: dict[str, Any]) -> _Match | None:
    """Operands in place, attributes in the table's order without those at their default; None where a required one is
    missing."""
    args = [operands.get(o.name) for o in spec.operands]
    for operand, arg in zip(spec.operands, args, strict=True):
        if arg is None and not operand.absent:
            return None
        if arg is not None and (operand.count is None) != isinstance(arg, torch.Tensor | _Number):
            return None
    while args and args[-1] is None:
        args.pop()
    attrs: list[tuple[str, Value]] = []
    for a in spec.attributes:
        if a.name not in attributes or (attributes[a.name] is None and None not in (a.default, *a.options)):
            if a.default is REQUIRED:
                return None
            continue
        try:
            value = _as_value(attributes[a.name])
        except TypeError:
            return None
        if isinstance(value, str) and a.options and value not in a.options:
            return None  # another op of the same source: each of pad's modes is an op
        if not _is_default(value, a.default):
            attrs.append((a.name, value))
    return spec, args, tuple(attrs)


def _is_default(value: Value, default: Any) -> bool:
    """Whether an attribute means the same as its absence; Python functions use None for that."""
    numbers = type(value) in (int, float) and type(default) in (int, float)
    return value == default and (numbers or type(value) is type(default))


def _as_value(value: Any) -> Value:
    """A Python value as an attribute of a program. Raises TypeError where no attribute can hold it."""
    if isinstance(value, torch.dtype):
        if value in DTYPE_NAMES:
            return Dtype(DTYPE_NAMES[value])
    elif value is None or isinstance(value, bool | str):
        return value
    elif isinstance(value, int | float):  # numpy's numbers, too
        return float(value) if isinstance(value, float) else int(value)
    elif isinstance(value, list | tuple):
        return tuple(map(_as_value, value))
    raise TypeError(f"an attribute cannot be {value!r}")


# ---------------------------------------------------------------- the function


@dataclass(frozen=True)
class Transcribed:
    """The result of `transcribe`.

    drawn      the leaves whose values come from a recipe, not from the user.
    constants  the leaves that the function itself made, each with the call or the number: "x2 (arange)".
    """

    program: Program
    drawn: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def made_inside(self) -> tuple[str, ...]:
        """A line about the constants, if there are any."""
        told = f"Leaves here, made within the function: {', '.join(self.constants)}."
        return (told,) if self.constants else ()


def transcribe(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Transcribed:
    """The program of one call function(*inputs), which gives the same outputs, gradients and writes, bit by bit.

    Tensors from elsewhere (parameters, constants) become leaves after the inputs. If no input requires grad, every
    floating input does in the program, except those that the function writes to. Every floating result that depends on
    such a leaf is differentiated: a result of one element with a cotangent of one, others with random values. The
    function runs two or three times; its tensors and random generators are then as they were. Raises Inexpressible.
    """
    needs = [t.requires_grad for t in inputs]
    if any(needs):
        try:
            program, transcript = _record(function, inputs, needs)
        except RuntimeError as error:
            if all(t.is_leaf for t in inputs):
                raise
            raise Inexpressible([f"an input with a history: {_line(error)}"]) from error  # as a leaf it has none
    else:
        needs = [t.is_floating_point() or t.is_complex() for t in inputs]
        try:
            program, transcript = _record(function, inputs, needs)
        except RuntimeError as error:  # a leaf that requires a gradient cannot be written
            _, scout = _record(function, inputs, [False] * len(inputs))
            if not any(memory_of(t) in scout.written for t in inputs):
                raise error from None
            needs = [n and memory_of(t) not in scout.written for n, t in zip(needs, inputs, strict=True)]
            program, transcript = _record(function, inputs, needs)
    if not any(o.cotangent for o in program.outputs):
        raise Inexpressible(["a function without a differentiable result"])
    _compare(function, inputs, needs, program, transcript)
    made = transcript.constants
    constants = tuple(f"{leaf.name} ({made[leaf.name]})" for leaf in program.leaves if leaf.name in made)
    return Transcribed(program, tuple(transcript.drawn), constants)


def _given(inputs: Sequence[torch.Tensor], needs: Sequence[bool]) -> list[torch.Tensor]:
    """The inputs without their history; those that need a gradient require it."""
    return [t.detach().requires_grad_(need) for t, need in zip(inputs, needs, strict=True)]


def _record(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], needs: Sequence[bool]
) -> tuple[Program, Transcript]:
    """One call of the function as a program. Raises Inexpressible, and whatever the function raises."""
    with untouched() as memory:
        transcript, given, failure = Transcript(memory), _given(inputs, needs), None
        try:
            for tensor in given:
                transcript.name(tensor)
            try:
                with torch.enable_grad(), memory, transcript:
                    returned = function(*given)
            except (Inexpressible, IllTyped):
                raise
            except Exception as error:
                failure = error
            else:
                results = tensors_in(returned)
                missing = list(dict.fromkeys([*transcript.missing, *_own_backwards(results), *_unread(returned)]))
                if not results and not missing:
                    missing = ["a function that returns no tensor"]
                if missing:
                    raise Inexpressible(missing)
                program = _program(transcript, results)
        except (IllTyped, ProgramError) as error:
            raise Inexpressible([*transcript.missing, str(error)]) from None
    if failure is not None:
        with untouched() as memory:
            try:
                _seen(memory, function, *_given(inputs, needs))
            except type(failure):  # the function's own
                raise
            except Exception:  # a call that no mode may see
                pass
        raise Inexpressible([*transcript.missing, f"a call that cannot be recorded: {_line(failure)}"]) from failure
    if transcript.missing:  # results that are leaves
        raise Inexpressible(transcript.missing)
    return program, transcript


def _program(transcript: Transcript, results: list[torch.Tensor]) -> Program:
    """The transcript as a program that returns these results. Raises IllTyped and ProgramError."""
    outputs: dict[str, Output] = {}
    for tensor in results:
        name = transcript.name(tensor)
        outputs[name] = Output(name, _cotangent_of(tensor, len(transcript.leaves) + len(outputs) + 1))
    body = tuple(transcript.body)
    settings = (SAME_DRAWS,) if any(OPS[node.op].random for node in walk(body)) else ()
    program = Program(tuple(transcript.leaves), body, tuple(outputs.values()), settings=settings)
    try:
        infer(program)
    except IllTyped as error:
        raise IllTyped(f"no types: {error}") from None
    return program


_PLAIN = torch.Tensor | bool | int | float | complex | str | torch.dtype | torch.device | torch.layout | None


def _unread(returned: Any) -> list[str]:
    """The parts of a result that may hold tensors, and are not known."""
    unknown = (leaf for _, leaf in tree_leaves(returned) if not isinstance(leaf, _PLAIN))
    return [f"a result of type {type(leaf).__name__}" for leaf in unknown]


def _compare(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    needs: Sequence[bool],
    program: Program,
    transcript: Transcript,
) -> None:
    """Raise Inexpressible where a result of the function is not, bit by bit, that of its transcript."""
    cotangent = cotangents(program, str(inputs[0].device) if inputs else "cpu")
    kept = [leaf for leaf in program.leaves if leaf.base is None and leaf.name not in transcript.constants]
    with untouched() as memory:
        given = _given(inputs, needs)
        tensors = transcript.tensors | {f"x{i}": tensor for i, tensor in enumerate(given)}
        wanted = {leaf.name: tensors[leaf.name] for leaf in program.leaves if leaf.requires_grad}
        held = {leaf.name: whole(tensors[leaf.name].untyped_storage(), tensors[leaf.name].dtype) for leaf in kept}
        try:
            own = observe(functools.partial(_seen, memory, function), given, wanted, held, cotangent)
        except RuntimeError as error:
            raise Inexpressible([f"a function whose backward raises {_line(error)}"]) from None
        hidden = memory.changed() - {memory_of(tensors[leaf.name]) for leaf in program.leaves}
        for leaf in kept:  # the function made it in its own way, and in this call another
            if int(leaf.name[1:]) >= len(inputs) and memory_of(tensors[leaf.name]) not in memory.before:
                transcript.constants[leaf.name] = "made outside torch's calls"
    storages = {name: storage.clone() for name, storage in transcript.held.items()}
    leaves = {leaf.name: placed(transcript.tensors[leaf.name], storages[leaf.base or leaf.name])
              .requires_grad_(leaf.requires_grad) for leaf in program.leaves}  # fmt: skip
    wanted = {name: leaves[name] for name in wanted}
    held = {name: whole(storages[name], tensor.dtype) for name, tensor in held.items()}
    with untouched():
        try:
            said = observe(to_function(program), list(leaves.values()), wanted, held, cotangent)
        except Exception as error:  # torch refuses the program
            raise Inexpressible([f"its transcript raises {_line(error)}"]) from None
    difference = first_difference(own, said) or ("a write that no call in sight makes" if hidden else "")
    if difference:
        raise Inexpressible([difference])


def _seen(memory: Memory, function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    with torch.enable_grad(), memory:
        return function(*inputs)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _cotangent_of(tensor: torch.Tensor, seed: int) -> Cotangent | None:
    """The cotangent of a result, None for a result without gradient."""
    if not tensor.requires_grad:
        return None
    t = type_of(tensor)
    cotangent = Cotangent(t.dtype, t.shape, contiguous(t.shape))
    return replace(cotangent, values=Recipe("ones")) if t.shape == () else replace(cotangent, seed=seed)
