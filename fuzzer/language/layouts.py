"""A layout as the views that people take: `.t()`, `[None]`, `unfold`, `expand` of a dense tensor. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from fuzzer.language.program import Attributes, Shape, contiguous

Step = tuple[str, Attributes]


@dataclass(frozen=True)
class View:
    """A tensor made by views of a dense one.

    base    the dense tensor's shape.
    steps   the views, as ops of programs with their attributes.
    stride  what comes of them.
    text    the same as people write it behind the dense tensor.
    """

    base: Shape
    steps: tuple[Step, ...]
    stride: Shape
    text: str


def views(shape: Shape, stride: Shape) -> list[View]:
    """Views of this shape that lie in memory as this stride says, but for dimensions of size 1: first as dimensions
    put in by None, then as the dense tensor's own. Nothing where there are gaps or other overlaps."""
    if 0 in shape:
        return []
    found = (_view(shape, stride, [a for a, n in enumerate(shape) if stride[a] and (n != 1 or ones)])
             for ones in (False, True))  # fmt: skip
    return [view for view in found if view is not None]


def written(shape: Shape, stride: Shape) -> View | None:
    """The view with this very stride, if there is one."""
    if stride == contiguous(shape):
        return View(shape, (), stride, "")
    return next((view for view in views(shape, stride) if view.stride == stride), None)


def _view(shape: Shape, stride: Shape, core: list[int]) -> View | None:
    """The view whose dense tensor has these axes; the others are put in."""
    order = sorted(core, key=lambda a: (-stride[a], a))
    base, steps, text = tuple(shape[a] for a in order), list[Step](), ""
    held = dict(zip(order, contiguous(base), strict=True))
    if any(held[a] != stride[a] and shape[a] != 1 for a in order):
        if len(order) != 2 or stride[order[1]] != 1 or stride[order[0]] >= shape[order[1]]:
            return None
        (count, window), step = base, stride[order[0]]
        base, held = ((count - 1) * step + window,), {order[0]: step, order[1]: 1}
        steps, text = (
            [("unfold", (("dimension", 0), ("size", window), ("step", step)))],
            f".unfold(0, {window}, {step})",
        )
    if order != core:
        dims = tuple(order.index(a) for a in core)
        steps.append(("permute", (("dims", dims),)))
        text += ".t()" if len(dims) == 2 else f".permute({', '.join(map(str, dims))})"
    put = [a for a in range(len(shape)) if a not in core]
    return _put_in(View(base, tuple(steps), (), text), shape, put, held)


def _put_in(view: View, shape: Shape, put: list[int], held: dict[int, int]) -> View:
    """The view with these axes put in, between those whose strides are known, and expanded to this shape."""
    text, steps = view.text, list(view.steps)
    known = sorted(held)
    for a in put:
        after = next((b for b in known if b > a), None)
        held[a] = 1 if after is None else shape[after] * held[after]
        steps.append(("unsqueeze", (("dim", a),)))
    if put:
        text += f"[{', '.join('None' if a in put else ':' for a in range(max(put) + 1))}]"
    if any(shape[a] != 1 for a in put):
        held |= {a: 0 for a in put if shape[a] != 1}
        steps.append(("expand", (("size", shape),)))
        text += f".expand{shape if len(shape) > 1 else f'({shape[0]})'}"
    return View(view.base, tuple(steps), tuple(held[a] for a in range(len(shape))), text)
