"""Leaves and cotangents as Python expressions: small ones as literals, others by the recipe that fills them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace

import torch

from fuzzer.export.sides import Sides
from fuzzer.language.interpret import cotangents, materialise
from fuzzer.language.layouts import written
from fuzzer.language.program import Cotangent, Leaf, Recipe, Shape, contiguous, extent, is_tracked
from fuzzer.language.routes import ROUTES
from fuzzer.language.routes.writing import WIDTH, input_names
from fuzzer.language.values import TORCH_DTYPES, expression, real_parts

_INLINE = 64  # tensors of at most this many elements are written as literals


def inputs(sides: Sides) -> Iterator[list[str]]:
    """The function that builds leaves and cotangents, preceded by its imports and helpers."""
    program = sides.program
    tensors = materialise([replace(leaf, conj=False) for leaf in program.leaves])
    offsets = {leaf.name: leaf.offset for leaf in program.leaves}
    detached = ".detach()" if is_tracked(program) else ""  # as in `materialise`
    rows: list[str] = []
    for leaf in program.leaves:
        if leaf.base is None:
            expression = _tensor(leaf, tensors[leaf.name], sides)
        else:
            # by default it would be the base's
            offset = f", {leaf.offset}" if leaf.offset != offsets[leaf.base] else ""
            expression = f"{leaf.base}{detached}.as_strided({leaf.shape}, {leaf.stride}{offset})"
        rows.append(f"{leaf.name} = {expression}{'.conj()' if leaf.conj else ''}")
    if ROUTES[program.route.name].script.tracked:
        # after all views are taken, as in the trial
        rows = [
            row + (".requires_grad_()" if leaf.requires_grad else "")
            for row, leaf in zip(rows, program.leaves, strict=True)
        ]
    declared = [output.cotangent for output in program.outputs if output.cotangent is not None]
    for i, (c, tensor) in enumerate(zip(declared, cotangents(program), strict=True)):
        rows.append(f"c{i} = {_tensor(c, tensor, sides)}")
    names = ", ".join(input_names(program))
    if any(re.search(r"(?<!_)strided\(", row) for row in rows):
        yield _strided(sides)
    draws = sides.draws or any("torch.randn(" in row for row in rows)
    drawn = ["    torch.manual_seed(0)  # every run draws the same"] if draws else []
    head = [f"def inputs({'device' if sides.moves else ''}):", *drawn]
    listed = "    return [" + ", ".join(row.partition(" = ")[2] for row in rows) + "]"
    if len(listed) <= WIDTH and "\n" not in listed and not any(leaf.base for leaf in program.leaves):
        yield [*head, listed]
    else:
        yield [*head, textwrap.indent("\n".join(rows), "    "), f"    return [{names}]"]


def _strided(sides: Sides) -> list[str]:
    device = ", device" if sides.moves else ""
    move = ".to(device)" if sides.moves else ""
    return [
        f"def strided(values, size, stride, offset{device}):",
        "    storage = torch.zeros(size, dtype=values.dtype)",
        "    positions = torch.arange(size).as_strided(values.shape, stride, offset)",
        "    storage[positions.flatten()] = values.flatten()",
        f"    return storage{move}.as_strided(values.shape, stride, offset)",
    ]


def _tensor(t: Leaf | Cotangent, tensor: torch.Tensor, sides: Sides) -> str:
    """An expression for a tensor with these values and this layout."""
    offset, size = t.offset, extent(t.shape, t.stride, t.offset)
    move = ".to(device)" if sides.moves else ""
    if sides.drawn and (text := _as_people_write(t)):
        return text + move
    if t.stride == contiguous(t.shape) and not offset:
        return _values(tensor, t.values, t.seed, t.dtype, t.shape) + move
    if not any(t.stride) and 0 not in t.shape and not offset:
        return f"{_literal(tensor.flatten()[0])}{move}.expand({t.shape})"
    if size <= _INLINE:
        at = f", {offset}" if offset else ""
        return f"{_literal(tensor.as_strided((size,), (1,), 0))}{move}.as_strided({t.shape}, {t.stride}{at})"
    device = ", device" if sides.moves else ""
    return f"strided({expression(t.values, t.seed, t.dtype, t.shape)}, {size}, {t.stride}, {offset}{device})"


def _as_people_write(t: Leaf | Cotangent) -> str:
    """Normal values by torch.randn (other numbers than the trial's), and ones, in a layout made by views; "" for other
    values."""
    view = None if t.offset else written(t.shape, t.stride)
    make = {"normal": "randn", "ones": "ones"}.get(t.values.name)
    if view is None or make is None or not t.type.differentiable:
        return ""
    kind = "" if t.dtype == "f32" else f", dtype={TORCH_DTYPES[t.dtype]}"
    return f"torch.{make}({', '.join(map(str, view.base)) or '()'}{kind}){view.text}"


def _values(tensor: torch.Tensor, recipe: Recipe, seed: int, dtype: str, shape: Shape) -> str:
    if tensor.numel() > _INLINE and not _constant(tensor):
        return expression(recipe, seed, dtype, shape)
    return _literal(tensor)


def _constant(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        return False
    flat = tensor.double().flatten()
    return flat.numel() > 0 and bool((flat == flat[0]).all()) and not bool((flat == 0).any() and flat.signbit().any())


def _literal(tensor: torch.Tensor) -> str:
    """The shortest plain expression for a small contiguous tensor, exact in its dtype."""
    if tensor.is_complex():
        real, imag = (part.contiguous() for part in real_parts(tensor).unbind(-1))
        return f"torch.complex({_literal(real)}, {_literal(imag)})"
    shape, dtype = tuple(tensor.shape), tensor.dtype
    kind = "" if dtype == torch.float32 else f", dtype={dtype}"
    if not tensor.numel():
        return f"torch.empty({shape}{kind})"
    first = tensor.flatten()[0].item()
    if _constant(tensor) and tensor.dim() and dtype != torch.bool:
        if first in (0, 1):
            return f"torch.{'ones' if first else 'zeros'}({', '.join(map(str, shape))}{kind})"
        number = _numbers(tensor.flatten()[:1])[0]
        return f"torch.full({shape}, {number}, dtype={dtype})"
    numbers = _numbers(tensor.flatten())
    if dtype in (torch.float32, torch.int64, torch.bool):
        kind = ""  # the dtype that torch infers from such a list
    return _listed(numbers, shape).replace("KIND", kind)


def _numbers(flat: torch.Tensor) -> list[str]:
    """Each element as the shortest decimal that its dtype reads back exactly."""
    if not flat.dtype.is_floating_point:
        return [repr(value) for value in flat.tolist()]
    found = []
    for value in flat.double().tolist():
        if value != value or value in (float("inf"), float("-inf")):
            found.append(f'float("{value}")')
            continue
        short = (float(f"{value:.{digits}g}") for digits in range(1, 18))
        found.append(repr(next(s for s in short if torch.tensor(s, dtype=flat.dtype).double().item() == value)))
    return found


def _listed(numbers: list[str], shape: Shape) -> str:
    """Numbers as nested lists if a row fits in a line, else as one list that is reshaped."""
    rows = _rows(numbers, shape)
    if len(rows) <= WIDTH - 30:
        return f"torch.tensor({rows}KIND)"
    if len(shape) == 2 and max(map(len, parts := _parts(numbers, shape))) <= WIDTH - 20:
        return "torch.tensor([\n" + "".join(f"    {part},\n" for part in parts) + "]KIND)"
    wrapped = textwrap.fill(", ".join(numbers), WIDTH, initial_indent="    ", subsequent_indent="    ")
    reshaped = f".reshape{shape}" if len(shape) > 1 else ""
    return f"torch.tensor([\n{wrapped},\n]KIND){reshaped}"


def _rows(numbers: list[str], shape: Shape) -> str:
    return "[" + ", ".join(_parts(numbers, shape)) + "]" if shape else numbers[0]


def _parts(numbers: list[str], shape: Shape) -> list[str]:
    step = len(numbers) // shape[0]
    return [_rows(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
