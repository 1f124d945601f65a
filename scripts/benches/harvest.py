"""`scripts/harvest-opinfo`: what the samples of torch's own database of ops hold, once, into `corpus/opinfo.json`.

The file is for review and for `scripts/opinfo-coverage --attributes`: corners that the samples show are put into the
tables by hand, where they are drawn over their whole legal range. Programs are drawn without it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

from benches.opinfo import HARVEST, NoDatabase, database, wanted

_MOST = 12  # distinct values kept of each argument


def _plain(value: Any) -> Any:
    """A value as JSON holds it: a tensor by dtype and shape, a dtype or any other object by its name."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, torch.dtype | slice) else type(value).__name__


def _arguments(sample: Any) -> Iterator[tuple[str, Any]]:
    """Each argument with its name, or its position where it has none; the input is position 0."""
    yield "0", _plain(sample.input)
    for at, value in enumerate(sample.args, 1):
        yield str(at), _plain(value)
    for name, value in sample.kwargs.items():
        yield name, _plain(value)


def _harvested(infos: list[Any]) -> dict[str, Any]:
    """The number of samples, the dtypes, and the first distinct values of each argument."""
    found: dict[str, list[Any]] = {}
    count = 0
    for info in infos:
        for sample in info.sample_inputs("cpu", torch.float32, requires_grad=True):
            count += 1
            for name, value in _arguments(sample):
                values = found.setdefault(name, [])
                if value not in values and len(values) < _MOST:
                    values.append(value)
    dtypes = sorted({str(dtype).removeprefix("torch.") for info in infos for dtype in info.dtypes})
    return {"samples": count, "dtypes": dtypes, "arguments": found}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=HARVEST, show_default=True)
def main(out: Path) -> None:
    """Write what the samples of torch's own database of ops hold: one line an entry."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    entries = database()
    lines = [f"{json.dumps(name)}: {json.dumps(_harvested(entries[name]))}" for name in wanted(entries)]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    click.echo(f"{out}: {len(lines)} entries of torch {torch.__version__}")


if __name__ == "__main__":
    try:
        main(prog_name="scripts/harvest-opinfo")
    except NoDatabase as problem:
        sys.exit(f"backfuzz: {problem}")
