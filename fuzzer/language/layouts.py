"""A layout as a chain of usual views of a dense tensor: `.t()`, `[None]`, `unfold`, `expand`. Pure arithmetic."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from fuzzer.language.program import Attributes, Shape, contiguous

Step = tuple[str, Attributes]


@dataclass(frozen=True)
class View:
    """A tensor made by views of a dense one.

    base    the dense tensor's shape.
    steps   the views, as ops of programs with their attributes.
    stride  of the result.
    text    the views as people write them behind the dense tensor.
    """

    base: Shape
    steps: tuple[Step, ...]
    stride: Shape
    text: str


def views(shape: Shape, stride: Shape) -> list[View]:
    """Views of this shape with the memory layout of this stride, the more usual first.

    Dimensions of size 1 may have any stride: first those inserted by None, then the dense tensor's own. Then views with
    gaps, made by slices of a larger tensor, and with exactly this stride. Overlaps only if expand or unfold makes them.
    """
    if 0 in shape:
        return []
    found = (_view(shape, stride, [a for a, n in enumerate(shape) if stride[a] and (n != 1 or ones)])
             for ones in (False, True))  # fmt: skip
    return [view for view in (*found, _sliced(shape, stride)) if view is not None]


def written(shape: Shape, stride: Shape) -> View | None:
    """The view with exactly this stride, if there is one."""
    if stride == contiguous(shape):
        return View(shape, (), stride, "")
    return next((view for view in views(shape, stride) if view.stride == stride), None)


def _view(shape: Shape, stride: Shape, core: list[int]) -> View | None:
    """The view whose dense tensor has these axes; the other axes are inserted."""
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
    view = _turned(View(base, tuple(steps), (), text), order, core)
    return _put_in(view, shape, [a for a in range(len(shape)) if a not in core], held)


def _sliced(shape: Shape, stride: Shape) -> View | None:
    """The view with exactly this stride, from slices of a dense tensor; an innermost step becomes a dimension of its
    own."""
    core = [a for a in range(len(shape)) if stride[a]]
    order = sorted(core, key=lambda a: (-stride[a], -shape[a], a))
    if not order:
        return None
    inner = stride[order[-1]]
    sizes = [shape[order[0]], *(stride[a] // stride[b] for a, b in itertools.pairwise(order))]
    uneven = any(stride[a] % stride[b] for a, b in itertools.pairwise(order))
    if uneven or any(size < shape[a] for size, a in zip(sizes, order, strict=True)):
        return None
    cut = [(i, shape[a]) for i, (size, a) in enumerate(zip(sizes, order, strict=True)) if size > shape[a]]
    steps: list[Step] = [("narrow", (("dim", i), ("start", 0), ("length", n))) for i, n in cut]
    marks = [f":{dict(cut)[i]}" if i in dict(cut) else ":" for i in range(len(sizes))]
    if inner > 1:
        steps.append(("select", (("dim", len(sizes)), ("index", 0))))
        marks.append("0")
        sizes.append(inner)
    text = f"[{', '.join(_trimmed(marks))}]" if steps else ""
    view = _turned(View(tuple(sizes), tuple(steps), (), text), order, core)
    return _put_in(view, shape, [a for a in range(len(shape)) if not stride[a]], {a: stride[a] for a in core})


def _trimmed(marks: list[str]) -> list[str]:
    """The marks of an index without trailing marks that select everything."""
    return marks if not marks or marks[-1] != ":" else _trimmed(marks[:-1])


def _turned(view: View, order: list[int], wanted: list[int]) -> View:
    """The view with its axes permuted from one order to another."""
    if order == wanted:
        return view
    dims = tuple(order.index(a) for a in wanted)
    text = ".t()" if len(dims) == 2 else f".permute({', '.join(map(str, dims))})"
    return View(view.base, (*view.steps, ("permute", (("dims", dims),))), (), view.text + text)


def _put_in(view: View, shape: Shape, put: list[int], held: dict[int, int]) -> View:
    """The view with these axes inserted, between those whose strides are known, and expanded to this shape."""
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
