"""A pool whose one worker is this process, for benches of which a test asks little."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

from fuzzer.workers.messages import Report


class Here:
    """In place of a Pool: what is submitted has ended when `submit` returns."""

    workers = 1

    def __init__(self, *given: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Callable[..., Report], *given: Any) -> Future[Report]:
        future: Future[Report] = Future()
        future.set_result(function(*given))
        return future

    def result(self, future: Future[Report], task: Any) -> Report:
        return future.result()
