"""A user's function as a Program: every torch call that it makes on example inputs, written down as a node.

The calls are recorded as the user wrote them (torch functions, methods and operators), before autograd or a compiler
decomposes them. A call becomes the first op whose table entry accepts its arguments and which gives the same result,
bit by bit, on the same tensors: the program computes what the function computed. Regions are not recorded: calls under
autocast, without gradients or within torch.func are refused, those under a checkpoint written without it. Effects that
only autograd sees (a Function's own backward, a hook) are refused by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fuzzer.language.infer import IllTyped, type_of
from fuzzer.language.interpret import apply
from fuzzer.language.ops import OPS
from fuzzer.language.ops.spec import REQUIRED, OpSpec
from fuzzer.language.private import in_transform, schema_parameters
from fuzzer.language.program import (
    DIFFERENTIABLE,
    NORMAL,
    Argument,
    Cotangent,
    Dtype,
    Leaf,
    Node,
    Output,
    Program,
    Recipe,
    Value,
    contiguous,
)
from fuzzer.language.values import DTYPE_NAMES, as_data, fill

# Leaves of at most this many elements keep their values in the text; larger ones only their type and layout.
_MOST_VALUES = 64
_MOST_RESULTS = 64  # of an op whose table entry gives no number
# Calls that turn a tensor into a Python value: later code may depend on it, and the program would not show that.
_LEAVES_TORCH = frozenset("item tolist numpy __bool__ __float__ __int__ __index__ __array__ backward".split())
# Calls that make autograd do something beside operations.
_HOOKS = frozenset("register_hook register_post_accumulate_grad_hook".split())
# Calls without an effect on a program.
_HARMLESS = frozenset("requires_grad_ retain_grad".split())


class Inexpressible(ValueError):
    """A function that no program can express; `calls` names every obstacle."""

    def __init__(self, calls: Sequence[str]):
        super().__init__("no op of the tables says: " + "; ".join(calls))
        self.calls = tuple(calls)


@dataclass
class _Transcript(TorchFunctionMode):
    """The transcript so far: leaves, nodes, and the names of tensors."""

    leaves: list[Leaf] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # by id; `tensors` keeps them alive
    drawn: list[str] = field(default_factory=list)  # leaves whose values are a recipe's, not the user's
    missing: list[str] = field(default_factory=list)
    unknown: list[torch.Tensor] = field(default_factory=list)  # results of calls that no node expresses
    made: dict[int, tuple[torch.Tensor, str]] = field(default_factory=dict)  # by id: results of calls without operands
    constants: list[str] = field(default_factory=list)  # leaves that are such results, with the call

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        call = _TorchCall(func, args, dict(kwargs or {}))
        if call.name == "__getitem__" and _is_plain_index(args[1]):
            with self:
                return _index_by_calls(args[0], args[1])
        before = {id(t): t.detach().clone() for t in call.tensors} if call.writes else {}
        state = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        found = _tensors_in(result)
        if not self.write(call, found, before, state):
            self.give_up(call, found)
        return result

    def write(
        self, call: _TorchCall, found: list[torch.Tensor], before: dict[int, torch.Tensor], state: torch.Tensor
    ) -> bool:
        """Write down the first op that gives the call's results. Returns whether there is one."""
        if not found or not call.tensors or self.lost(call):
            return False
        if _context(found):
            return False
        for spec, args, attrs in _matches(call):
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                results = _evaluate(spec, args, attrs, before)
            if _same_results(results, found):
                names = tuple(map(self.named, args))
                count = sum(len(n.outs) for n in self.nodes)
                outs = tuple(f"v{count + i}" for i in range(len(found)))
                self.nodes.append(Node(outs, spec.name, names, attrs))
                for name, tensor in zip(outs, found, strict=True):
                    self.bind(name, tensor)
                return True
        return False

    def give_up(self, call: _TorchCall, found: list[torch.Tensor]) -> None:
        """Note a call that no node expresses; later calls that depend on it are not noted again."""
        if call.writes or call.name in _LEAVES_TORCH | _HOOKS:
            self.missing.append(str(call))
        elif call.tensors and call.name not in _HARMLESS and any(id(t) not in self.names for t in found):
            if not self.lost(call):
                self.missing.append(f"{call}{_context(found)}")
            self.unknown += found
        elif not call.tensors:
            self.made |= {id(t): (t, call.name) for t in found}

    def lost(self, call: _TorchCall) -> bool:
        return any(t is u for t in call.tensors for u in self.unknown)

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        self.tensors[name] = tensor
        self.names[id(tensor)] = name

    def named(self, argument: Any) -> Argument:
        """The names of an operand's tensors; a new tensor, or a number, becomes a leaf."""
        if argument is None:
            return None
        if isinstance(argument, list | tuple):
            return tuple(None if t is None else self.name(t) for t in argument)
        return self.name(argument)

    def name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self.names:
            self.add_leaf(tensor)
        return self.names[id(tensor)]

    def add_leaf(self, tensor: torch.Tensor) -> None:
        """Add an input tensor of the program: its type and layout, and its values if they are few."""
        name, seed = f"x{len(self.leaves)}", len(self.leaves) + 1
        t = type_of(tensor)
        offset, floating = tensor.storage_offset(), t.differentiable
        shared = tensor.untyped_storage().data_ptr()
        base = next((b for b in self.leaves if b.base is None and b.dtype == t.dtype and t.numel
                     and self.tensors[b.name].untyped_storage().data_ptr() == shared), None)  # fmt: skip
        leaf = Leaf(name, t.dtype, t.shape, t.stride, offset, floating and tensor.requires_grad, conj=tensor.is_conj())
        if base is not None:
            leaf = replace(leaf, base=base.name)
        else:
            recipe, exact = recipe_of(tensor)
            leaf = replace(leaf, values=recipe, seed=0 if exact else seed)
            self.drawn += [] if exact else [name]
        if id(tensor) in self.made:
            self.constants.append(f"{name} ({self.made[id(tensor)][1]})")
        self.leaves.append(leaf)
        self.bind(name, tensor)


def _context(found: Sequence[torch.Tensor]) -> str:
    """The context of a call with these results that no node expresses, "" for none."""
    if in_transform():
        return " within torch.func"
    if not torch.is_grad_enabled():
        return " without gradients"
    return " under autocast" if torch.is_autocast_enabled(found[0].device.type) else ""


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

    def lend(argument: Any) -> Argument:
        if argument is None:
            return None
        if isinstance(argument, list | tuple):
            return tuple(map(lend, argument))  # type: ignore[arg-type]
        env[f"a{len(env)}"] = before.get(id(argument), argument)
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


def recipe_of(tensor: torch.Tensor) -> tuple[Recipe, bool]:
    """A recipe for a leaf's values, and whether it gives exactly these values."""
    values = tensor.detach().cpu()
    values = values.conj() if values.is_conj() else values  # the values in the storage
    dtype, shape = DTYPE_NAMES[values.dtype], tuple(values.shape)
    if torch.equal(values, fill(Recipe("ones"), 0, dtype, shape)):
        return Recipe("ones"), True
    if values.numel() <= _MOST_VALUES:
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
        return _tensors_in([*self.args, *self.kwargs.values()])

    @property
    def writes(self) -> bool:
        """Whether it writes into one of its operands."""
        in_place = self.name.endswith("_") and not self.name.endswith("__") and self.name not in _HARMLESS
        return in_place or self.name == "__setitem__" or self.kwargs.get("out") is not None

    def __str__(self) -> str:
        shown = [_described(a) for a in self.args] + [f"{k}={_described(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{DTYPE_NAMES.get(value.dtype, value.dtype)}{list(value.shape)}"
    return f"[{', '.join(map(_described, value))}]" if isinstance(value, list | tuple) else repr(value)


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, of a list, tuple or dict, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors_in(v)] if isinstance(value, list | tuple) else []


def _same_results(results: list[torch.Tensor], found: list[torch.Tensor]) -> bool:
    """Equal types and equal values, NaN equal to itself."""
    if [(t.dtype, t.shape, t.stride()) for t in results] != [(t.dtype, t.shape, t.stride()) for t in found]:
        return False
    pairs = zip(results, found, strict=True)
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in pairs)


def _is_plain_index(index: Any) -> bool:
    """Whether an index is made of integers, slices, None and at most one ellipsis, or of tensors and full slices."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, torch.Tensor) for p in parts):
        return all(isinstance(p, torch.Tensor) or p == slice(None) for p in parts)
    return all(p is None or p is Ellipsis or type(p) is int or isinstance(p, slice) for p in parts)


def _index_by_calls(x: torch.Tensor, index: Any) -> torch.Tensor:
    """x[index] by the calls that compose it."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, torch.Tensor) for p in parts):
        return torch.ops.aten.index.Tensor(x, [p if isinstance(p, torch.Tensor) else None for p in parts])
    dim = 0
    for i, part in enumerate(parts):
        if part is Ellipsis:
            dim = x.dim() - sum(p is not None for p in parts[i + 1 :])
        elif part is None:
            x, dim = torch.unsqueeze(x, dim), dim + 1
        elif isinstance(part, slice):
            if part != slice(None):
                x = torch.ops.aten.slice.Tensor(x, dim, part.start, part.stop, part.step or 1)
            dim += 1
        else:
            x = torch.select(x, dim, part)
    return x


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


_Match = tuple[OpSpec, list[Any], tuple[tuple[str, Value], ...]]


def _matches(call: _TorchCall) -> Iterator[_Match]:
    """Every (op, operands, attributes) that may express the call; numbers as tensors last."""
    for numbers in (False, True):
        for spec in sorted(_ops_by_reported_name().get(call.name, []), key=lambda spec: not _fits_rank(spec, call)):
            for parameters in (*_parameter_names(call.func), [p.name for p in spec.params]):
                found = _match_overload(spec, parameters, call, numbers)
                if found is not None:
                    yield found


def _fits_rank(spec: OpSpec, call: _TorchCall) -> bool:
    """Whether the first operand has a rank that the table allows: grid_sample is one op for images and one for
    volumes."""
    first = spec.operands[0] if spec.operands else None
    return first is not None and first.rank[0] <= call.tensors[0].dim() <= first.rank[1]


def _parameter_names(func: Any) -> Iterator[list[str]]:
    """Names of the parameters, in order, of each overload of a torch function."""
    if isinstance(func, FunctionType):
        yield list(inspect.signature(func).parameters)
    yield from schema_parameters(func)


def _match_overload(spec: OpSpec, parameters: Sequence[str], call: _TorchCall, numbers: bool) -> _Match | None:
    """The call's arguments as operands and attributes of this op, None where they do not fit."""
    args = list(call.args)
    if len(args) > len(parameters) and all(type(a) is int for a in args[1:]):
        args = [args[0], tuple(args[1:])]  # x.view(2, 3)
    if len(args) > len(parameters):
        return None
    given = {**dict(zip(parameters, args, strict=False)), **call.kwargs}
    slots = [o.name for o in spec.operands]
    operands: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, value in given.items():
        tensor = bool(_tensors_in(value)) or (numbers and name in slots and type(value) in (int, float))
        if tensor:
            slot = name if name in slots else next((s for s in slots if s not in operands), None)
            if slot is None:
                return None
            operands[slot] = value if _tensors_in(value) else torch.tensor(value, dtype=call.tensors[0].dtype)
        elif name in {a.name for a in spec.attributes}:
            attributes[name] = value
        elif not _is_ignorable(call.func, name, value):
            return None
    return _canonical_arguments(spec, operands, attributes)


def _is_ignorable(func: Any, name: str, value: Any) -> bool:
    """Whether an argument has no effect: private, None, a flag that is off, or at its default."""
    if value is None or value is False or name.startswith("_"):
        return True
    known = inspect.signature(func).parameters.get(name) if isinstance(func, FunctionType) else None
    return known is not None and known.default == value


def _canonical_arguments(spec: OpSpec, operands: dict[str, Any], attributes: dict[str, Any]) -> _Match | None:
    """Operands in place, attributes in the table's order without those at their default; None where a required one is
    missing."""
    args = [operands.get(o.name) for o in spec.operands]
    for operand, arg in zip(spec.operands, args, strict=True):
        if arg is None and not operand.absent:
            return None
        if arg is not None and (operand.count is None) != isinstance(arg, torch.Tensor):
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
    elif value is None or isinstance(value, bool | int | float | str):
        return value
    elif isinstance(value, list | tuple):
        return tuple(map(_as_value, value))
    raise TypeError(f"an attribute cannot be {value!r}")


# ---------------------------------------------------------------- the function


@dataclass(frozen=True)
class Transcribed:
    """The result of `transcribe`.

    drawn      the leaves whose values come from a recipe, not from the user.
    constants  the leaves that the function itself made, each with the call: "x2 (zeros)".
    """

    program: Program
    drawn: tuple[str, ...]
    constants: tuple[str, ...]


def transcribe(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Transcribed:
    """The program of one call function(*inputs).

    Tensors from elsewhere (parameters, constants) become leaves after the inputs. If no input requires grad, every
    floating input does in the program. Every floating result that depends on such a leaf is differentiated: a result of
    one element with a cotangent of one, others with random values. Raises Inexpressible.
    """
    transcript = _Transcript()
    inputs = [
        t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) if _none_requires_grad(inputs) else t
        for t in inputs
    ]
    for tensor in inputs:
        transcript.name(tensor)
    try:
        with torch.enable_grad(), transcript:
            results = _tensors_in(function(*inputs))
    except IllTyped as error:
        raise Inexpressible([*transcript.missing, str(error)]) from None
    missing = list(dict.fromkeys([*transcript.missing, *_own_backwards(results)]))
    if not results and not missing:
        missing = ["a function that returns no tensor"]
    if missing:
        raise Inexpressible(missing)
    outputs: dict[str, Output] = {}
    for tensor in results:
        name = transcript.name(tensor)
        outputs[name] = Output(name, _cotangent_of(tensor, len(transcript.leaves) + len(outputs) + 1))
    if not any(o.cotangent for o in outputs.values()):
        raise Inexpressible(["a function without a differentiable result"])
    program = Program(tuple(transcript.leaves), tuple(transcript.nodes), tuple(outputs.values()))
    return Transcribed(program, tuple(transcript.drawn), tuple(transcript.constants))


def _none_requires_grad(inputs: Sequence[torch.Tensor]) -> bool:
    return not any(t.requires_grad for t in inputs)


def _cotangent_of(tensor: torch.Tensor, seed: int) -> Cotangent | None:
    """The cotangent of a result, None for a result without gradient."""
    if not tensor.requires_grad:
        return None
    t = type_of(tensor)
    cotangent = Cotangent(t.dtype, t.shape, contiguous(t.shape))
    return replace(cotangent, values=Recipe("ones")) if t.shape == () else replace(cotangent, seed=seed)
