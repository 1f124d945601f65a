"""Where programs run, as a person names it: a device, two sides, and the task that workers get."""

from __future__ import annotations

from typing import Any

from fuzzer.judgement.trial import UNCOMPILED, Place, Subject, parse_subject
from fuzzer.language.devices import DEVICE_NAMES, is_device
from fuzzer.language.errors import UsageError, meant


def pick_device(device: str | None) -> str:
    """The device asked for; else the machine's accelerator, else cpu. None is touched."""
    if device is not None:
        if not is_device(device):
            raise UsageError(f"--device takes {DEVICE_NAMES}, not {device!r}")
        return device
    from fuzzer.workers.accelerator import default_device_type

    return default_device_type()


def runs_here(device: str) -> bool:
    """Whether this machine has a device of this type."""
    return device.split(":")[0] in ("cpu", pick_device(None))


def _make_place(device: str, backend: str, compare: tuple[str, str] | None) -> Place:
    """The two sides of a trial. Raises UsageError for an unknown backend, NoMachine where flag_gems cannot run."""
    from fuzzer.workers.accelerator import check_flag_gems

    if compare:
        place = Place(parse_subject(compare[0], device), parse_subject(compare[1], device))
    else:
        place = Place(parse_subject("eager", device), parse_subject(backend, device))
    for side in (place.reference, place.subject):
        if not is_device(side.device):
            raise UsageError(f"a device is one of {DEVICE_NAMES}, not {side.device!r}")
        _check_backend(side)
        if side.backend != side.compiler:
            _check_stage(side)
    if place.reference.backend != "eager":
        raise UsageError(f"the reference side records ATen operations, so it is eager, not {place.reference.backend!r}")
    if place.reference.threads > 1:
        raise UsageError(f"the reference side runs with one thread, not {place.reference}")
    if place.subject.backend == "flag_gems":
        check_flag_gems(place.subject.device)
    return place


def _check_backend(side: Subject) -> None:
    """Raises UsageError where this torch has no backend that a side names."""
    if side.compiler in (*UNCOMPILED, "inductor"):
        return  # no need to ask torch, whose list imports most of its compiler
    import torch

    known = {*UNCOMPILED, *torch.compiler.list_backends(exclude_tags=())}
    if side.compiler not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"no backend {side.compiler!r}; this torch has {listed}{meant(side.compiler, known)}")


def _check_stage(side: Subject) -> None:
    """Raises UsageError where a side names a stage that does not exist."""
    from fuzzer.stages import STAGES

    known = [f"inductor:{name}" for name in STAGES]
    if side.backend not in known:
        raise UsageError(f"no stage {side.backend!r}; there are {', '.join(known)}")


def make_task(device: str | None, backend: str, compare: tuple[str, str] | None, **fields: Any) -> Any:
    """The Task of a comparison at this place; `fields` are its other fields. Raises UsageError, NoMachine."""
    from fuzzer.workers.messages import Task

    return Task(place=_make_place(pick_device(device), backend, compare), **fields)
