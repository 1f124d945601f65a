"""A Function: one call of a Python callable, with a name for every tensor that goes in, lies beside it or comes out.

Inputs have the names of the callable's own parameters (`x`, `batch['ids']`), results that of their place (`output`,
`output[0]`, `output.logits`), parameters and buffers those that their module gives them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from fuzzer.language.program import Attributes

RESULT = "output"


class Function:
    """One call function(*args, **kwargs), under these settings of the compiler.

    modules  the torch.nn.Modules that the callable is, is bound to, closes over, names or is given, by name; "" for its
             own.
    inputs   the tensors among the arguments, by name.
    result_names, size   the names of the tensors that it returns and the number of its ATen operations, once it ran.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        settings: Attributes = (),
    ):
        self.function, self.args, self.kwargs, self.settings = function, args, dict(kwargs or {}), settings
        named = _arguments(function, args, self.kwargs)
        self.inputs = {name: leaf for name, leaf in tree_leaves(named) if isinstance(leaf, torch.Tensor)}
        self.modules, self.beside = _surroundings(function, named)
        self.result_names: tuple[str, ...] = ()
        self.size = 0

    @property
    def name(self) -> str:
        """The callable's own name, for people."""
        return getattr(self.function, "__name__", "") or type(self.function).__name__

    def role(self, name: str) -> str:
        """The kind of a tensor by its name: `leaf` of an input, else `parameter` or `buffer`, or `tensor`."""
        if name in self.inputs:
            return "leaf"
        found = self.state().get(name)
        return "parameter" if isinstance(found, torch.nn.Parameter) else "tensor" if name in self.beside else "buffer"

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors that the callable reads beside its arguments, as they are now: parameters, buffers and other
        tensors that its modules hold, and tensors in its closure, by name."""
        found = dict(self.beside)
        for root, module in self.modules.items():
            for prefix, part in module.named_modules():
                held = {**part.__dict__, **part._parameters, **part._buffers}
                for name, value in held.items():
                    tensors = tree_leaves(value, ".".join(filter(None, (root, prefix, name))))
                    if not name.startswith("_") or name in part._buffers or isinstance(value, torch.Tensor):
                        found |= {path: leaf for path, leaf in tensors if isinstance(leaf, torch.Tensor)}
        return found


# ---------------------------------------------------------------- structures


def tree_leaves(tree: Any, path: str = "", objects: bool = False) -> Iterator[tuple[str, Any]]:
    """Every leaf of nested dicts, lists, tuples and dataclasses, with its path.

    objects  whether the tensors that any other object holds as attributes (torch.distributions.Normal) are leaves too.
    """
    parts = list(_parts(tree, path))
    if objects and parts[:1] and parts[0][1] is tree and not isinstance(tree, torch.Tensor):
        held = getattr(tree, "__dict__", {}).items()
        parts = [(f"{path}.{name}", value) for name, value in held if isinstance(value, torch.Tensor)] or parts
    for name, part in parts:
        if name == path:
            yield path, part
        else:
            yield from tree_leaves(part, name, objects)


def _parts(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The parts of a structure by their paths; a leaf is its own part, at the same path."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in dataclasses.fields(tree):
            yield f"{path}.{field.name}", getattr(tree, field.name)
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield f"{path}[{key!r}]" if path or not isinstance(key, str) else key, value
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        for key in tree._fields:
            yield f"{path}.{key}", getattr(tree, key)
    elif isinstance(tree, list | tuple | set | frozenset):
        for number, value in enumerate(tree):
            yield f"{path}[{number}]", value
    else:
        yield path, tree


def rebuilt(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with every leaf replaced by change(leaf); a structure whose leaves all stay is itself."""
    parts = list(_parts(tree, ""))
    if len(parts) == 1 and parts[0][0] == "" and parts[0][1] is tree:
        return change(tree)
    changed = [rebuilt(part, change) for _, part in parts]
    if all(new is old for new, (_, old) in zip(changed, parts, strict=True)):
        return tree
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        given = zip(dataclasses.fields(tree), changed, strict=True)
        return dataclasses.replace(tree, **{field.name: value for field, value in given if field.init})
    if isinstance(tree, Mapping):
        if isinstance(tree, dict):
            made = copy.copy(tree)
            made.update(zip(tree, changed, strict=True))
            return made
        return type(tree)(zip(tree, changed, strict=True))  # type: ignore[call-arg]
    if hasattr(tree, "_fields"):
        return type(tree)(*changed)
    return type(tree)(changed)


# ---------------------------------------------------------------- names


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the callable's own parameters; `x0`, `x1`, ... where it shows none."""
    try:
        target = function.forward if isinstance(function, torch.nn.Module) else function
        signature = inspect.signature(target)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {f"x{i}": arg for i, arg in enumerate(args)} | kwargs
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        named |= value if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named


def _surroundings(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> tuple[dict[str, torch.nn.Module], dict[str, torch.Tensor]]:
    """The modules around a callable, and the tensors that it closes over or names, both by name."""
    modules: dict[str, torch.nn.Module] = {}
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()

    def look(name: str, value: Any, deep: bool = True) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, torch.nn.Module):
            modules[name] = value
        elif isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, functools.partial):
            look(name, value.func)
            for path, leaf in tree_leaves({"": value.args, **value.keywords}, name):
                look(path, leaf)
        elif inspect.ismethod(value):
            look(name, value.__self__)
            look(name, value.__func__)
        elif inspect.isfunction(value) and deep:
            for inner, found in _read_by(value):
                for path, leaf in tree_leaves(found, inner):
                    look(path, leaf, deep=not inspect.isfunction(leaf) or inner in value.__code__.co_freevars)
            look(name, getattr(value, "__wrapped__", None))
        elif type(value).__module__ != "builtins" and callable(value) and hasattr(value, "__dict__"):
            for inner, found in vars(value).items():
                for path, leaf in tree_leaves(found, f"{name}.{inner}" if name else inner):
                    look(path, leaf, deep=False)

    look("", function)
    for path, leaf in tree_leaves(arguments):
        if not isinstance(leaf, torch.Tensor):
            look(path, leaf, deep=False)
    return modules, tensors


def _read_by(function: Any) -> Iterator[tuple[str, Any]]:
    """What a Python function closes over and the globals that its code names, by name."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # a cell that nothing has filled yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__ and not inspect.ismodule(function.__globals__[name]):
            yield name, function.__globals__[name]
