"""One side of a trial of a Function: the callable itself runs, in eager or compiled, and leaves no trace.

Each run finds the author's tensors, modules and random state as the first one did: what a run changes is looked at, and
put back. Inputs are copies in guarded memory.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from fuzzer.judgement.oracles import same_bits
from fuzzer.judgement.trial import RAISED, RAN, UNCOMPILED, Observation, Subject
from fuzzer.language.devices import synchronise
from fuzzer.language.errors import UsageError
from fuzzer.language.fidelity import whole
from fuzzer.language.function import RESULT, Function, rebuilt, tree_leaves
from fuzzer.language.private import compiled_graphs, dispatch_kept, memory_of, negated, saved_tensor_hooks_kept
from fuzzer.language.program import NORMAL, Recipe
from fuzzer.language.randomness import numpy_drew, random_state, set_random_state
from fuzzer.language.values import DTYPE_NAMES, fill
from fuzzer.rounding.record import Recorder
from fuzzer.trial.guard import Guard
from fuzzer.trial.observe import operators, raised_by, thread_count
from fuzzer.workers.accelerator import on_host, poison
from fuzzer.workers.usage import Peak, cpu_seconds


class Uncheckable(UsageError):
    """A Function that cannot be judged; the message is a sentence that says why."""


# ---------------------------------------------------------------- the author's things


class Surroundings:
    """The tensors, modules and random state beside a Function, and their first values.

    differentiated  the names of inputs that require a gradient in each run.
    """

    def __init__(self, function: Function):
        self.function = function
        state = function.state()
        if lazy := [name for name, tensor in state.items() if torch.nn.parameter.is_lazy(tensor)]:
            raise Uncheckable(f"{lazy[0]} has no shape yet: call {function.name} once before the check")
        self.first = {name: _plain(tensor).clone() for name, tensor in state.items()}
        self.tensors = dict(state)
        self.gradients = {name: tensor.grad for name, tensor in state.items() if tensor.is_leaf}
        self.outside: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # that the trace met: now, at first
        self.held = [(part, _kept(part)) for m in function.modules.values() for part in m.modules()]
        self.random = random_state()
        self.differentiated = frozenset(name for name, tensor in function.inputs.items() if tensor.requires_grad)
        self.written: tuple[str, ...] = ()  # what eager writes, by name
        self.numpy_drew = False  # in the last run
        self.fresh: set[int] = set()  # storages that the last recording met and none before, by number

    def any_gradient(self) -> bool:
        """Whether an input, or a tensor beside the callable, requires a gradient."""
        return bool(self.differentiated) or any(t.requires_grad for t in self.tensors.values())

    def restore(self, gradients: bool = False) -> None:
        """Put back values, modules and random state; `.grad` too at the end, and none before a run."""
        for part, kept in self.held:
            _put_back(part, kept)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if not same_bits(tensor, self.first[name]):
                    _plain(tensor).copy_(self.first[name])
            for tensor, first in self.outside.values():
                if not same_bits(tensor, first):
                    tensor.copy_(first)
        for name, tensor in self.tensors.items():
            if tensor.is_leaf:
                tensor.grad = self.gradients[name] if gradients else None
        set_random_state(self.random)

    def changed(self) -> dict[str, torch.Tensor]:
        """The tensors beside the callable that do not hold what they held at first, by name; also those that took
        another's place."""
        first = {**self.first, **{name: before for name, (_, before) in self.outside.items()}}
        return {n: t.detach() for n, t in self.now().items() if n not in first or not same_bits(t, first[n])}

    def now(self) -> dict[str, torch.Tensor]:
        """The tensors beside the callable as they are, by name."""
        return {**self.function.state(), **{name: tensor for name, (tensor, _) in self.outside.items()}}

    def adopt(self, results: Iterable[torch.Tensor], known: Iterable[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Keep the variables behind these results that are not known yet, and return them by name."""
        reached = {id(t) for t in known}
        found = [variable for variable in variables_behind(results) if id(variable) not in reached]
        named = {f"a leaf {list(t.shape)} from outside{chr(39) * i}": t for i, t in enumerate(found)}
        self.first |= {name: _plain(tensor).clone() for name, tensor in named.items()}
        self.gradients |= {name: tensor.grad for name, tensor in named.items()}
        self.tensors |= named
        return named

    def meet(self, recorder: Recorder) -> None:
        """Keep the contents of storages that a trace met and that no name reaches."""
        named = [*self.tensors.values(), *(tensor for tensor, _ in self.outside.values())]
        known = {memory_of(t) for t in named}
        self.fresh = set()
        for number, tensor, first in recorder.outside(known):
            name = f"a tensor of {tensor.numel()} from outside"
            while name in self.outside:
                name += "'"
            self.outside[name] = tensor, first
            self.fresh.add(number)


def variables_behind(results: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that require a gradient and on which these results depend, in the order in which autograd's graph
    names them."""
    todo, seen = [t.grad_fn for t in results if t.grad_fn is not None], set[Any]()
    found: dict[int, torch.Tensor] = {}
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            found[id(variable)] = variable
        todo += [before for before, _ in node.next_functions if before is not None]
    return list(found.values())


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its subclass and its graph."""
    return tensor.detach().as_subclass(torch.Tensor)


_SHALLOW = (list, dict, set)


def _kept(part: torch.nn.Module) -> dict[str, tuple[Any, Any]]:
    """A module's attributes, each with a shallow copy of its contents where it is a container."""
    return {name: (value, value.copy() if isinstance(value, _SHALLOW) else None) for name, value in vars(part).items()}


def _put_back(part: torch.nn.Module, kept: dict[str, tuple[Any, Any]]) -> None:
    own = vars(part)
    for name in [name for name in own if name not in kept]:
        del own[name]
    for name, (value, contents) in kept.items():
        if own.get(name) is not value:
            own[name] = value
        if contents is not None and not _same_contents(value, contents):
            value.clear()
            value.extend(contents) if isinstance(value, list) else value.update(contents)


def _same_contents(now: Any, then: Any) -> bool:
    """Whether a container holds the same objects in the same order."""
    if len(now) != len(then):
        return False
    if isinstance(now, dict):
        return all(a is b and now[a] is then[b] for a, b in zip(now, then, strict=True))
    return all(a is b for a, b in zip(now, then, strict=True))


# ---------------------------------------------------------------- one side


class Call(Function):
    """A Function whose sides a trial runs; `around` keeps the author's things from the first side on.

    cotangents  of results by name, in place of drawn ones.
    """

    def __init__(self, *given: Any, cotangents: Mapping[str, torch.Tensor] | None = None):
        super().__init__(*given)
        self.cotangents = dict(cotangents or {})

    @functools.cached_property
    def around(self) -> Surroundings:
        return Surroundings(self)

    def side(self, subject: Subject, phase: Callable[[str], None]) -> FunctionSide:
        """One side of a trial."""
        return FunctionSide(self, subject, phase)


class FunctionSide:
    """One side of a trial of a Function."""

    def __init__(self, call: Call, subject: Subject, phase: Callable[[str], None]):
        self.call, self.around, self.subject, self.phase = call, call.around, subject, phase
        self.run = call.function
        if subject.backend not in UNCOMPILED:
            try:
                self.run = torch.compile(call.function, backend=subject.backend)
            except RuntimeError as error:  # of a scripted module
                raise Uncheckable(f"torch.compile does not take {call.name}: {str(error).splitlines()[0]}") from None
        self.entered = ""

    def observe(self, recorder: Recorder | None = None) -> Observation:
        """The record of one run, with the second run; `raised` where the code under test does."""
        started, cpu_started = time.perf_counter(), cpu_seconds()
        try:
            with compiled_graphs() as graphs:
                seen = self._run(recorder)
            seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu_started
            again = None
            if recorder is None and self.subject.backend not in UNCOMPILED and not seen.written and not seen.touched:
                with Peak(self.subject.device) as peak:
                    again = replace(self._run(None), peak=peak.bytes)
        except (Exception, SystemExit) as error:  # whatever the code under test raises
            told, seconds = raised_by(error, self.subject), time.perf_counter() - started
            return Observation(RAISED, phase=self.entered, raised=told, seconds=seconds)
        finally:
            self.around.restore()
        seen = replace(seen, again=again, seconds=seconds, cpu_seconds=cpu)
        return replace(seen, graphs=graphs.made, breaks=tuple(graphs.breaks))

    def _enter(self, name: str) -> None:
        synchronise(self.subject.device)
        self.entered = name
        self.phase(name)

    def _run(self, recorder: Recorder | None) -> Observation:
        """The forward, the backward of every result that requires a gradient, and a look at everything."""
        self.around.restore()
        guard = Guard()
        variables, inputs, args, kwargs = copied(self.call, guard, self.around.differentiated)
        first = {name: t.detach().clone() for name, t in inputs.items() if t is not variables[name]}
        if recorder is not None:
            recorder.given("leaf", {name: t for name, t in inputs.items() if t.layout is torch.strided})
        poison(self.subject.device)
        torch.manual_seed(0)
        self._enter("forward")
        with self._watched(recorder):
            returned = self.run(*args, **kwargs)
        results = dict(tree_leaves(returned, RESULT, objects=True))
        tensors = {name: value for name, value in results.items() if isinstance(value, torch.Tensor)}
        aliases = _aliases(tensors, inputs | self.around.now())
        variables |= {name: t for name, t in self.around.tensors.items() if t.is_leaf}
        if recorder is not None:
            self.call.result_names = tuple(tensors)
            variables |= self.around.adopt(tensors.values(), variables.values())
        self._enter("backward")
        cotangents = _cotangents(self.call, tensors)
        if recorder is not None:
            recorder.given("cotangent", cotangents)
        variables = {name: t for name, t in variables.items() if t.is_leaf}  # a write may make a node of an input
        if cotangents and all(t.grad is None for t in variables.values()):  # else it ran a backward of its own
            with self._watched(recorder):
                torch.autograd.backward([tensors[name] for name in cotangents], list(cotangents.values()))
        synchronise(self.subject.device)
        self.around.numpy_drew = numpy_drew(self.around.random)
        gradients = {name: t.grad for name, t in variables.items() if t.requires_grad}
        moved = [name for name, then in first.items() if not same_bits(inputs[name], then)]
        touched = dict.fromkeys((*guard.written(inputs), *moved), self.entered)
        changed = self.around.changed()
        now = inputs | self.around.now()
        if recorder is not None:
            self.around.written = (*(name for name in touched if name in inputs), *changed)
        found = [tensors.get(name) for name in self.call.result_names]
        structure = {name: "tensor" if name in tensors else _told(value) for name, value in results.items()}
        written = {name: now[name].detach() for name in self.around.written if name in now}
        seen = Observation(
            RAN, found, gradients, phase=self.entered, written=written,
            touched=touched | dict.fromkeys(changed, self.entered), structure=structure, aliases=aliases,
        )  # fmt: skip
        if recorder is not None:
            self.around.meet(recorder)
            self.call.size = sum(not step.backward for step in recorder.trace.steps)
            return seen  # its tensors are those that the recorder knows
        return on_host(_copied_results(seen))

    @contextlib.contextmanager
    def _watched(self, recorder: Recorder | None) -> Iterator[None]:
        if recorder is not None:
            with torch.enable_grad(), recorder:
                yield
            return
        subject = self.subject
        with (
            torch.enable_grad(), operators(subject), thread_count(subject), saved_tensor_hooks_kept(), dispatch_kept(),
        ):  # fmt: skip
            yield


def copied(
    function: Function, guard: Guard, differentiated: frozenset[str]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], tuple[Any, ...], dict[str, Any]]:
    """Variables that get the gradients, copies of the inputs, both by name, and the arguments with the copies in place.

    A copy is its own variable, unless the input has a history: torch lets a function write to such a tensor, and to no
    variable that requires a gradient. Views of one storage stay views of one; a tensor of a subclass that dispatches by
    itself, or without a storage, is passed on as it is.
    """
    storages: dict[int, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}
    variables: dict[str, torch.Tensor] = {}
    inputs: dict[str, torch.Tensor] = {}
    known: dict[int, torch.Tensor] = {}
    for name, tensor in function.inputs.items():
        if id(tensor) not in made:
            variable = known[id(tensor)] = _copy(tensor, guard, storages, name in differentiated)
            with torch.enable_grad():
                made[id(tensor)] = variable.clone() if tensor.grad_fn is not None and variable.is_leaf else variable
        variables[name], inputs[name] = known[id(tensor)], made[id(tensor)]

    def change(leaf: Any) -> Any:
        return made.get(id(leaf), leaf)

    return variables, inputs, rebuilt(function.args, change), rebuilt(function.kwargs, change)


def _copy(tensor: torch.Tensor, guard: Guard, storages: dict[int, torch.Tensor], differentiated: bool) -> torch.Tensor:
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or tensor.layout is not torch.strided:
        return tensor
    if (key := memory_of(tensor)) not in storages:
        storages[key] = guard.allocate(whole(tensor.untyped_storage(), tensor.dtype))
    base = storages[key]
    base = base if base.dtype == tensor.dtype else base.view(tensor.dtype)  # which is no differentiable view
    made = torch.as_strided(base, tensor.shape, tensor.stride(), tensor.storage_offset())
    made = made.conj() if tensor.is_conj() else made
    made = negated(made) if tensor.is_neg() else made
    made = made if tensor._base is not None else made.detach()  # torch asks whether two inputs are views of one base
    made = made if kind in (torch.Tensor, torch.nn.Parameter) else made.as_subclass(kind)
    return made.requires_grad_(differentiated)


def _cotangents(call: Call, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A cotangent for every result that requires a gradient: the call's own; else one for a scalar, and normal values
    by the result's place."""
    found = {}
    for place, name in enumerate(call.result_names):
        tensor = tensors.get(name)
        if tensor is None or not tensor.requires_grad:
            continue
        if name in call.cotangents:
            found[name] = call.cotangents[name]
        else:
            shape = tuple(tensor.shape)
            values = fill(Recipe("ones") if shape == () else NORMAL, place + 1, DTYPE_NAMES[tensor.dtype], shape)
            found[name] = values.to(tensor.device, copy=True)
    return found


def _aliases(results: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> dict[str, tuple[str, ...]]:
    """By the name of each result, the names of the tensors whose memory it shares."""
    places: dict[int, list[str]] = {}
    for name, tensor in others.items():
        if tensor.layout is torch.strided and tensor.numel():
            places.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    found = {name: t.untyped_storage().data_ptr() for name, t in results.items() if t.layout is torch.strided}
    return {name: tuple(places[at]) for name, at in found.items() if at in places}


def _told(value: Any) -> str:
    """A result that is no tensor, as text: its value where Python compares that exactly, else its type."""
    return repr(value) if isinstance(value, bool | int | str | None) else type(value).__name__


def _copied_results(seen: Observation) -> Observation:
    """The Observation with copies of its tensors: the callable's own are put back."""

    def own(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else _plain(tensor).clone(memory_format=torch.preserve_format)

    return replace(
        seen,
        outputs=[own(t) for t in seen.outputs],
        gradients={name: own(t) for name, t in seen.gradients.items()},
        written={name: own(t) for name, t in seen.written.items()},
    )
