"""Errors whose message is for people have one base, by which a command knows them."""

from __future__ import annotations

import pytest

from fuzzer.export.script import ExportError
from fuzzer.language.errors import UnknownOp, UsageError
from fuzzer.language.infer import IllTyped
from fuzzer.language.regions import UnknownRegion
from fuzzer.language.routes import UnknownRoute
from fuzzer.language.settings import UnknownSetting
from fuzzer.language.text import ParseError, parse
from fuzzer.language.values import UnknownRecipe
from fuzzer.ledger.errors import StoreError

FOR_PEOPLE = (ExportError, IllTyped, ParseError, StoreError, UnknownOp, UnknownRecipe, UnknownRegion, UnknownRoute,
              UnknownSetting)  # fmt: skip


@pytest.mark.parametrize("error", FOR_PEOPLE)
def test_what_a_person_asked_for_in_vain_is_a_usage_error(error: type[Exception]) -> None:
    assert issubclass(error, UsageError)


def test_a_text_that_is_no_program_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^line 1, column 1: [^\n]+$"):
        parse("nonsense")
