"""A node or a write, generated and added to a draft if eager accepts it."""

from __future__ import annotations

from typing import Any

import torch

from fuzzer.generation.draft import Draft, Rejected
from fuzzer.generation.nodes import draw_node, has_useful_values, run_node, within_limits
from fuzzer.language.interpret import apply, materialise
from fuzzer.language.ops.spec import OpSpec
from fuzzer.language.program import Node

# The share that is kept of results that are not finite, huge or all zero, and of gradients in which no error could be
# seen: passes fold constants, and NaN and infinities have rules of their own.
KEPT = 0.1
OVERWRITTEN = "modified by an inplace operation"  # part of autograd's message about a saved tensor


def add_node(draft: Draft, spec: OpSpec) -> bool:
    """Draw and run a node of this op; returns whether the draft kept it. Raises Rejected where torch refuses it.

    The complex form of an op may not take everything that the op's entry allows for real numbers: then the node is
    dropped.
    """
    mark = draft.mark()
    try:
        node = draw_node(draft, spec)
        if all(within_limits(leaf, draft.limits) for leaf in draft.leaves[mark[0] :]):
            run_node(draft, node, spec)
            if has_eager_gradient(draft, spec) and (has_useful_values(draft, node) or draft.rng.random() < KEPT):
                return True
    except Rejected:
        if not spec.takes_complex:
            raise
    draft.undo(mark)
    draft.target = ""
    return False


def has_eager_gradient(draft: Draft, spec: OpSpec) -> bool:
    """Whether eager has the gradient of an op's complex results; for real ones it is assumed."""
    return not spec.takes_complex or _requires_grad_in_eager(draft) is not None


def prepare_write(draft: Draft, groups: dict[str, list[OpSpec]]) -> None:
    """Often draw a result for an in-place op to write to, and then a view of that result, through which the op
    writes."""
    rng = draft.rng
    results = [name for node in draft.nodes for name in node.outs if name not in draft.dead and draft.may_write(name)]
    ordinary = [family for family, specs in groups.items() if not any(spec.effects for spec in specs)]
    if not results and ordinary and rng.random() < 0.75:
        add_node(draft, rng.choice(groups[rng.choice(ordinary)]))
        results = [name for node in draft.nodes[-1:] for name in node.outs if draft.may_write(name)]
    views = [spec for spec in groups.get("view", ()) if spec.results == 1]  # torch forbids it for several views
    if results and views and len(draft.nodes) < draft.limits.max_nodes and rng.random() < 0.5:
        draft.anchor = rng.choice(results)
        if add_node(draft, rng.choice(views)):
            draft.anchor = draft.nodes[-1].outs[0]


def add_write(draft: Draft, spec: OpSpec, node: Node | None = None) -> None:
    """Draw a node of this in-place op, or take this one. It is kept where eager can still compute all gradients, or is
    allowed to refuse them."""
    mark = draft.mark()
    try:
        stays = len(draft.nodes) < draft.limits.max_nodes
        if node is not None and stays:
            run_node(draft, node, spec)
        elif stays:
            stays = add_node(draft, spec)
    except Rejected:
        stays = False
    shared = draft.sharing(draft.nodes[-1].outs[0]) if stays else []
    tracked = _requires_grad_in_eager(draft) if stays else None
    if tracked is None:
        draft.target = ""
        draft.undo(mark)
    else:
        # a base carries the gradient of a value written through its view
        draft.tracked |= {name for name in shared if name in tracked and spec.differentiable}


def _requires_grad_in_eager(draft: Draft) -> set[str] | None:
    """The names that require grad in eager; None where an in-place node makes it raise.

    The forward raises on writes to one of several views or to a partial overlap, the backward on an overwritten saved
    value.
    """
    draft.announced([name for name in draft.types if name.startswith("v") and name not in draft.dead], backward=True)
    leaves = materialise(draft.leaves)
    env: dict[str, Any] = dict(leaves)
    wanted = [leaves[leaf.name] for leaf in draft.leaves if leaf.requires_grad]
    try:
        for node in draft.nodes:
            apply(node, env)
        results = {name: env[name] for node in draft.nodes for name in node.outs if env[name].requires_grad}
        if results and wanted:
            ones = [torch.ones_like(t) for t in results.values()]
            torch.autograd.grad(list(results.values()), wanted, ones, allow_unused=True)
    except Exception as error:  # torch's refusal may have any type
        if not (draft.overwrites and OVERWRITTEN in str(error)):
            return None
    return {name for name, t in env.items() if isinstance(t, torch.Tensor) and t.requires_grad}
