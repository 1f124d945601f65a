from typing import Any


def dependent(trace: Any, refs: Any) -> dict[str, tuple[str, ...]]:
    return {}
