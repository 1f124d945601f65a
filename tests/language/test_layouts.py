"""Layouts as views: the text and the ops both give the stride that is promised."""

from __future__ import annotations

import pytest
import torch

from fuzzer.language.layouts import views, written
from fuzzer.language.program import Shape


@pytest.mark.parametrize(
    ("shape", "stride", "text"),
    [
        ((3, 7), (1, 3), ".t()"),
        ((1, 3, 7, 1), (3, 1, 3, 1), ".t()[None, :, :, None]"),
        ((2, 3, 4), (1, 8, 2), ".permute(2, 0, 1)"),
        ((64, 4), (1, 1), ".unfold(0, 4, 1)"),
        ((3, 4), (2, 1), ".unfold(0, 4, 2)"),
        ((4, 3), (1, 2), ".unfold(0, 4, 2).t()"),
        ((5, 3), (0, 1), "[None].expand(5, 3)"),
        ((5,), (0,), "[None].expand(5)"),
        ((1, 3, 4), (12, 1, 3), ".permute(0, 2, 1)"),
        ((2, 3), (3, 1), ""),
        ((3,), (2,), "[:, 0]"),
        ((1,), (12,), "[:, 0]"),
        ((2, 3), (4, 1), "[:, :3]"),
        ((3, 2), (1, 4), "[:, :3].t()"),
        ((2, 3), (12, 3), "[:, :3, 0]"),
        ((5, 3), (0, 2), "[:, 0][None].expand(5, 3)"),
    ],
)
def test_a_layout_is_written_as_the_views_that_give_it(shape: Shape, stride: Shape, text: str) -> None:
    view = written(shape, stride)
    assert view is not None
    assert view.text == text
    made = eval(f"torch.zeros({view.base}){text}")
    assert (tuple(made.shape), made.stride()) == (shape, stride)


@pytest.mark.parametrize(("shape", "stride"), [((2, 2), (3, 2)), ((0, 3), (1, 1)), ((2, 3, 2), (1, 1, 1))])
def test_what_no_view_of_a_dense_tensor_gives_is_not_written(shape: Shape, stride: Shape) -> None:
    assert written(shape, stride) is None


def test_the_ops_of_a_view_do_what_its_text_does() -> None:
    for shape, stride in (
        ((1, 2, 1, 2, 1), (2, 1, 1, 2, 2)),
        ((4, 3), (1, 2)),
        ((2, 5, 3), (3, 0, 1)),
        ((3, 2), (1, 4)),
        ((3,), (2,)),
    ):
        for view in views(shape, stride):
            made = torch.zeros(view.base)
            for op, attributes in view.steps:
                made = getattr(made, op)(*(value for _, value in attributes))
            assert tuple(made.shape) == shape
            assert made.stride() == view.stride == eval(f"torch.zeros({view.base}){view.text}").stride()
