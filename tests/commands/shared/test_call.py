"""A person's own function, by the name of its file or module."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzzer.commands.shared.call import find_call, running
from fuzzer.language.errors import UsageError

SOURCE = "import torch\ninputs = (torch.ones(2),)\ndef double(x): return x * 2\n"


def test_a_function_of_a_file_or_of_a_module_comes_with_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module_of_a_person.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    for reference in (f"{tmp_path}/own_module_of_a_person.py", "own_module_of_a_person:double"):
        call = find_call(reference)
        assert call.name == "double"
        assert torch.equal(call.function(*call.inputs), torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("math:cos", "math: it has no tuple of tensors called `inputs`"),
        ("math", "math: no such file"),
        ("no_such_module_here:f", "no such module (no_such_module_here is not installed)"),
        ("a b:f", "a b: no such file; name FILE.py"),
    ],
)
def test_what_cannot_be_called_is_refused_in_words(reference: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_call(reference)
    assert said in str(raised.value)


def test_what_the_person_s_code_raises_is_told_in_one_line() -> None:
    with pytest.raises(UsageError, match="own raised ValueError: no way"), running("own"):
        raise ValueError("no\n  way")
    with pytest.raises(KeyError), running("own", but=KeyError):
        raise KeyError("a")
