"""`scripts/harvest-opinfo`: the samples of torch's own database of ops, in two files.

`corpus/opinfo.json` holds the arguments of every sample. It is for review and for `scripts/opinfo-coverage
--attributes`: corners that the samples show are put into the tables by hand, where they are drawn over their whole
legal range. Programs are drawn without it.

`fuzzer/campaign/parents.json.xz` holds samples as programs, with their strides, values and attributes, and the programs
of corpus/reach: campaigns run mutants of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import lzma
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

from benches.opinfo import HARVEST, NoDatabase, database, wanted
from fuzzer.campaign.parents import WRITTEN
from fuzzer.language.program import Program, contiguous
from fuzzer.language.text import parse, show
from fuzzer.language.transcribe import Inexpressible, transcribe

REACH = Path(__file__).parents[2] / "corpus" / "reach"

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


# ---------------------------------------------------------------- samples as programs

_SAMPLES = 40  # of an entry, each as it is and with other strides, are looked at
_KEPT = 6  # programs of an entry
_LARGEST = 1 << 11  # elements of all leaves


def _programs(infos: list[Any]) -> list[str]:
    """Texts of an entry's samples that a program says and whose ops, attributes, layouts or dtypes differ."""
    found: dict[Any, str] = {}
    for info in infos:
        samples = info.sample_inputs("cpu", torch.float32, requires_grad=True)
        for sample in itertools.islice(samples, _SAMPLES):
            for own in (sample, *_strided(sample)):
                if len(found) == _KEPT:
                    return list(found.values())
                program = _program(info, own)
                if program is not None and sum(leaf.type.numel for leaf in program.leaves) <= _LARGEST:
                    found.setdefault(_kind(program), show(program))
    return list(found.values())


def _strided(sample: Any) -> Iterator[Any]:
    """The sample with other strides; nothing for tensors that have none."""
    with contextlib.suppress(RuntimeError):
        yield sample.noncontiguous()


def _program(info: Any, sample: Any) -> Program | None:
    """The program of a sample's call; None where no program says it, or torch refuses the call."""
    given = (sample.input, sample.args, sample.kwargs)
    leaves, tree = torch.utils._pytree.tree_flatten(given)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*inputs: torch.Tensor) -> Any:
        fresh = iter(inputs)
        filled = [next(fresh) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        own, args, kwargs = torch.utils._pytree.tree_unflatten(filled, tree)
        return sample.output_process_fn_grad(info.op(own, *args, **kwargs))

    try:
        return transcribe(call, tensors).program
    except (Inexpressible, RuntimeError, ValueError, TypeError):
        return None


def _kind(program: Program) -> Any:
    """What makes one sample another: ops, attributes, and of each leaf its dtype, rank, sizes of 0 and 1, and order in
    memory."""
    nodes = tuple((node.op, node.attrs) for node in program.nodes)
    leaves = tuple(
        (leaf.dtype, tuple(min(size, 2) for size in leaf.shape), leaf.stride == contiguous(leaf.shape))
        for leaf in program.leaves
    )
    return nodes, leaves


def _reported() -> dict[str, list[str]]:
    """The programs of reported faults, each a cause of its own."""
    return {f"reach/{path.stem}": [show(parse(path.read_text()))] for path in sorted(REACH.glob("*.prog"))}


def write_parents(entries: dict[str, list[Any]], out: Path) -> int:
    """Write the programs of reported faults, and of these entries of the database. Returns how many there are."""
    causes = _reported()
    for name in wanted(entries):
        torch.manual_seed(0)
        if texts := _programs(entries[name]):
            causes[f"opinfo/{name}"] = texts
    out.write_bytes(lzma.compress(json.dumps(causes, indent=0).encode(), preset=9))
    return sum(map(len, causes.values()))


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=HARVEST, show_default=True)
@click.option("--parents", type=click.Path(path_type=Path), default=WRITTEN, show_default=True)
def main(out: Path, parents: Path) -> None:
    """Write what the samples of torch's own database of ops hold: their arguments, and them as programs."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    entries = database()
    lines = [f"{json.dumps(name)}: {json.dumps(_harvested(entries[name]))}" for name in wanted(entries)]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    click.echo(f"{out}: {len(lines)} entries of torch {torch.__version__}")
    click.echo(f"{parents}: {write_parents(entries, parents)} programs")


if __name__ == "__main__":
    try:
        main(prog_name="scripts/harvest-opinfo")
    except NoDatabase as problem:
        sys.exit(f"backfuzz: {problem}")
