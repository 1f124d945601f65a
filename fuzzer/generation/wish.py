"""A wish: the op of a node, and the classes of its operands' and attributes' values.

Generation fulfils a wish as far as the op's row allows; a wish may be impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fuzzer.language.classes import (
    AT_OFFSET,
    CHANNELS_LAST,
    OVERLAPPING,
    PERMUTED,
    SCALAR,
    SIZE_ONE,
    attribute_class,
)
from fuzzer.language.ops.spec import UNHELD, ZERO, Attribute, Draw
from fuzzer.language.program import Shape, Value

TRIES = 40  # draws of an attribute's or a shape's own rule, which takes microseconds
WISH_STEPS = 5  # of `Wish.relaxed`
AFTER, BESIDE = "after", "beside"


@dataclass(frozen=True)
class Wish:
    """A request for one node.

    dtype       of the op's main operand; "": any.
    attributes  the class that each shall have, by name.
    operand     the place of the operand to which `layout` (a class of LAYOUTS) and `values` (a recipe's name) belong.
    link        AFTER: operand number `reads` is a result of the node before, where one fits; BESIDE: one of its
                operands.
    strict      a draw in which an attribute has another class is refused.
    """

    op: str
    dtype: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    operand: int = 0
    layout: str = ""
    values: str = ""
    link: str = ""
    reads: int = 0
    strict: bool = False

    def attribute(self, attribute: Attribute, d: Draw) -> Value:
        """A value of the wished class, if some draws give one."""
        wanted = self.attributes.get(attribute.name)
        value = attribute.draw(d)
        for _ in range(TRIES if wanted is not None else 0):
            if attribute_class(attribute, value, d) == wanted:
                break
            value = attribute.draw(d)
        return value

    def keeps(self, attribute: Attribute, value: Value, d: Draw) -> bool:
        """Whether a value is of the class that a strict wish requires."""
        wanted = self.attributes.get(attribute.name) if self.strict else None
        return wanted is None or attribute_class(attribute, value, d) == wanted

    def asks_for(self, place: int) -> bool:
        """Whether the wish names an optional operand."""
        return bool(self.layout_at(place) or self.values_at(place) or (self.link and place == self.reads))

    def decides(self) -> bool:
        """Whether the wish is for a number that half precision rounds: beside it lie the operands for which that
        decides."""
        return UNHELD in self.attributes.values()

    def wants_no_elements(self) -> bool:
        """Whether the wish is for windows without elements, of which torch has no gradient, and maxima are infinite."""
        return self.attributes.get("kernel_size") == ZERO

    def relaxed(self, step: int) -> Wish:
        """The wish with one more requirement dropped at each step: the recipe, the layout, the link, all but the op."""
        if step >= WISH_STEPS - 1:
            return Wish(self.op)
        kept = [self.values, self.layout, self.link]
        values, layout, link = [""] * step + kept[step:]
        return replace(self, values=values, layout=layout, link=link)

    def layout_at(self, place: int) -> str:
        """The wished layout of the operand at this place; "": any."""
        return self.layout if place == self.operand else ""

    def values_at(self, place: int) -> str:
        """The wished recipe of the operand at this place; "": any."""
        return self.values if place == self.operand else ""


def can_lie(shape: Shape, layout: str) -> bool:
    """Whether a tensor of this shape can have this layout."""
    wide = sum(size > 1 for size in shape)
    if layout == SCALAR:
        return not shape
    if layout == SIZE_ONE:
        return 1 in shape
    if 0 in shape or not wide:
        return layout in ("", AT_OFFSET)
    if layout == CHANNELS_LAST:
        return len(shape) in (4, 5) and shape[1] > 1 and any(size > 1 for size in shape[2:])
    return wide > 1 or layout not in (PERMUTED, OVERLAPPING)
