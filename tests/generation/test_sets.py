"""Sets of ops, and lists of ops as a person writes them."""

from __future__ import annotations

import pytest

from fuzzer.generation.generate import CLOSING
from fuzzer.generation.sets import SETS, parse_ops
from fuzzer.language.errors import UnknownOp
from fuzzer.language.ops import OPS


@pytest.mark.parametrize("name", SETS)
def test_a_set_names_each_op_once_and_only_ops_that_exist(name: str) -> None:
    assert set(SETS[name]) <= OPS.keys()
    assert len(set(SETS[name])) == len(SETS[name])


def test_every_op_that_may_close_a_program_is_core() -> None:
    """Else programs of the set would end in fewer layouts than others."""
    assert set(CLOSING) <= set(SETS["core"])


def test_a_list_names_sets_and_ops_in_order_and_each_once() -> None:
    assert parse_ops("sort, core ,sum") == ("sort", *SETS["core"])


@pytest.mark.parametrize("text", ["", "core,", "pointwise"])
def test_what_is_no_op_is_refused(text: str) -> None:
    with pytest.raises(UnknownOp, match="no op or set of ops"):
        parse_ops(text)


def test_a_name_that_is_nearly_an_ops_is_told_with_it() -> None:
    with pytest.raises(UnknownOp, match="did you mean slice_scatter"):
        parse_ops("slice_scater")
