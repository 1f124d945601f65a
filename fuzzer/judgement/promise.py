"""What torch does not promise: a difference there is `unsupported`, whatever it looks like.

Three kinds: settings that exist for torch's own tests (`Setting.promised`), internal operators (a torch function whose
name begins with an underscore), and dynamo saying that it does not trace with dynamic sizes what holds both directions,
which is a call of `torch.func.vjp`.
"""

from __future__ import annotations

from fuzzer.language.ops import OPS
from fuzzer.language.program import Program
from fuzzer.language.routes import ROUTES
from fuzzer.language.settings import SETTINGS


def why_unsupported(program: Program, pattern: str) -> str:
    """Why torch promises nothing of a program that differs with this pattern; "" where it does.

    "setting NAME", "operator NAME" or "route NAME with dynamic sizes".
    """
    of_tests = {s.name for s in SETTINGS if not s.promised}
    for name, _ in program.settings:
        if name in of_tests:
            return f"setting {name}"
    for node in program.nodes:
        source = OPS[node.op].source if node.op in OPS else ""
        if any(part.startswith("_") and not part.startswith("__") for part in source.split(".")):
            return f"operator {source}"
    untraced = pattern.startswith(("Unsupported", "TorchRuntimeError < unimplemented"))
    route = ROUTES[program.route.name]
    if untraced and route.joint and route.torch_compile and dict(program.route.options).get("dynamic"):
        return f"route {program.route.name} with dynamic sizes"
    return ""
