"""How rare faults get into the compiler: each function returns what plants one, and notes when it changed something."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benches import conditions
from fuzzer.judgement.planted.fault import Fault
from fuzzer.judgement.trial import Observation
from fuzzer.language.private import (
    decomposition,
    inner_graphs,
    replaced_decomposition,
    replaced_fake,
    replaced_lowering,
)
from fuzzer.language.settings import in_effect

_Note = Callable[[], None]
Plant = Callable[[_Note], AbstractContextManager[Any]]


def recorded(plants: Mapping[str, Plant]) -> Fault:
    """These faults in one run, which says which of them acted."""
    fired = set[str]()

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        fired.clear()
        with contextlib.ExitStack() as stack:
            for name, planted in plants.items():
                stack.enter_context(planted(partial(fired.add, name)))
            yield

    def tamper(observation: Observation) -> Observation:
        return replace(observation, fired=tuple(sorted(fired)))

    return Fault(plant, tamper, batched=True)


def in_pass(target: Any, when: Callable[[Any], bool], change: Callable[[Any, Any], Any]) -> Plant:
    """In backward graphs, change(node, the same call before it) stands in for a call of an overload."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        def graphs(module: Any, backward: bool) -> bool:
            for node in list(module.graph.nodes) if backward else ():
                if node.target is target and conditions.settled(node) and when(node):
                    with node.graph.inserting_before(node):
                        right = node.graph.node_copy(node)
                    node.replace_all_uses_with(change(node, right))
                    node.graph.erase_node(node)
                    if not right.users:
                        node.graph.erase_node(right)
                    note()
            return True

        return inner_graphs(graphs)

    return plant


def under_setting(name: str, value: Any, planted: Plant) -> Plant:
    """The fault, where a setting has this value."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        return planted(note) if in_effect(name) == value else contextlib.nullcontext()

    return plant


def in_formula(op: Any, when: Callable[..., bool], change: Callable[..., Any]) -> Plant:
    """change(inductor's decomposition, *arguments) stands in for the decomposition of a gradient."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        right = decomposition(op)

        def gradient(*args: Any, **kwargs: Any) -> Any:
            if not (conditions.known(args[0]) and when(*args, **kwargs)):
                return right(*args, **kwargs)
            note()
            return change(right, *args, **kwargs)

        return replaced_decomposition(op, gradient)

    return plant


def in_lowering(op: Any, change: Callable[..., tuple[Any, ...] | None]) -> Plant:
    """change(*arguments) stand in for the arguments with which a backward's call is lowered; None: they are right."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        def lowered(right: Callable[..., Any], backward: bool, *args: Any, **kwargs: Any) -> Any:
            wrong = change(*args) if backward and not kwargs else None
            if wrong is not None:
                note()
            return right(*(args if wrong is None else wrong), **kwargs)

        return replaced_lowering(op, lowered)

    return plant


def in_layout(op: Any) -> Plant:
    """The result is declared to be laid out as its first operand, even where that's elements share memory."""

    def plant(note: _Note) -> AbstractContextManager[None]:
        def declared(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
            if not (conditions.known(x) and conditions.broadcast(x)):
                return torch.empty_like(x)
            note()
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)

        return replaced_fake(op, declared)

    return plant
