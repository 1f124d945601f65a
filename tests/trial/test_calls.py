"""What an author's function may take, do and return: `check` compares all of it, by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backfuzz

BACKEND = "aot_eager"

# The plants are gross: what is asked here is where they are said to be.
pytestmark = pytest.mark.usefixtures("fewer_replicas")


def compiling() -> float:
    """1 in eager, 2 under the compiler: a factor that is a plant."""
    return 2.0 if torch.compiler.is_compiling() else 1.0


def drawn(*shape: int, gradient: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).requires_grad_(gradient)


# ---------------------------------------------------------------- results


@dataclass
class Answer:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    count: int = 3
    rest: Any = None


@dataclass(frozen=True)
class Late:
    """A field that the constructor does not take."""

    first: torch.Tensor
    second: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "second", self.first * compiling())


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Held:
    """No structure that torch knows."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {  # by the name of the one that is wrong
    "output": lambda x: x.sin() * compiling(),
    "output[1]": lambda x: (x.cos(), x.sin() * compiling()),
    "output['loss']": lambda x: {"all": x.sin(), "loss": x.sum() * compiling(), "none": None},
    "output['more'][0][1]": lambda x: {"more": [(x.cos(), x.sin() * compiling())]},
    "output.loss": lambda x: Answer(x.sin(), x.sum() * compiling()),
    "output.rest['a']": lambda x: Answer(x.sin(), rest={"a": x.cos() * compiling()}),
    "output.second": lambda x: Late(x.sin()),
    "output[0].second": lambda x: [Pair(x.sin(), x.cos() * compiling())],
    "output.tensor": lambda x: Held(x.sin() * compiling()),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_wrong_result_has_the_name_of_its_place(name: str) -> None:
    told = backfuzz.check(RESULTS[name], drawn(3), backend=BACKEND)
    assert told.signature.verdict == "wrong"
    assert told.detail.startswith((f"{name}[", f"{name}:"))


@pytest.mark.parametrize("name", RESULTS)
def test_the_same_structure_agrees_where_nothing_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "compiling", lambda: 1.0)
    assert backfuzz.check(RESULTS[name], drawn(3), backend=BACKEND).agrees


OTHER_RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {  # by the start of the verdict's detail
    "output[1] is None, the reference's is float32[3]": lambda x: (x.sin(), None if compiling() > 1 else x.cos()),
    "output[1] is 2, the reference's is 1": lambda x: (x.sin(), int(compiling())),
    "output is float64[3], the reference's is float32[3]": lambda x: x.double() if compiling() > 1 else x.sin(),
    "x.grad is None, the reference's is float32[3]": lambda x: x.sin().detach() if compiling() > 1 else x.sin(),
    "x.grad is float32[3], the reference's is None": lambda x: x.sin() if compiling() > 1 else x.sin().detach(),
}


@pytest.mark.parametrize("start", OTHER_RESULTS)
def test_results_of_another_kind_are_wrong(start: str) -> None:
    told = backfuzz.check(OTHER_RESULTS[start], drawn(3), backend=BACKEND)
    assert told.signature.oracle == "metadata_agrees"
    assert told.detail.startswith(start)


# ---------------------------------------------------------------- arguments


def with_all(
    x: torch.Tensor,
    mask: torch.Tensor | None,
    times: int,
    more: list[torch.Tensor],
    batch: Mapping[str, torch.Tensor],
    *,
    scale: float | None = 2.0,
    mode: str = "",
) -> torch.Tensor:
    kept = x if mask is None else x.masked_fill(mask, 0.0)
    last = batch["w"][batch["ids"]] * (compiling() if mode == "wrong" else 1.0)
    return (kept * times + more[0] * more[1] + last) * (1.0 if scale is None else scale)


def all_arguments() -> tuple[Any, ...]:
    more, batch = [drawn(3, gradient=False), drawn(3)], {"ids": torch.tensor([0, 1, 1]), "w": drawn(2)}
    return drawn(3), None, 2, more, batch


def test_arguments_of_any_kind_pass_through_and_gradients_have_their_names() -> None:
    told = backfuzz.check(with_all, *all_arguments(), scale=None, backend=BACKEND)
    assert told.agrees
    assert told.detail.startswith("outputs and 3 gradient(s)")  # of x, more[1] and batch['w']
    assert not backfuzz.check(with_all, *all_arguments(), mode="wrong", backend=BACKEND).agrees


def test_a_wrong_gradient_of_an_argument_inside_another_has_its_name() -> None:
    def function(x: torch.Tensor, batch: Mapping[str, Any]) -> torch.Tensor:
        (a,) = batch["of"]
        return x * (a * compiling() + a.detach() * (1 - compiling()))

    told = backfuzz.check(function, drawn(3), {"of": [drawn(3)]}, backend=BACKEND)
    assert told.detail.startswith("batch['of'][0].grad[")


def test_keyword_arguments_and_those_without_a_name_of_their_own() -> None:
    def function(*many: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return many[0] * many[1] * (named["last"] * compiling() + named["last"].detach() * (1 - compiling()))

    told = backfuzz.check(function, drawn(3), drawn(3), last=drawn(3), backend=BACKEND)
    assert told.detail.startswith("last.grad[")


def test_inputs_is_another_way_to_give_the_positional_arguments() -> None:
    assert backfuzz.check(torch.mul, inputs=(drawn(3), drawn(3)), backend=BACKEND).agrees


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x * 2 + 1, torch.arange(6)),
        (lambda x: ~x, torch.arange(6) > 2),
        (lambda x: x.argmax(), torch.tensor([1.0, 3.0, 2.0])),
        (lambda x: torch.full((2,), 3.0), torch.tensor([1.0])),
    ],
)
def test_without_a_gradient_results_are_judged_and_the_verdict_says_so(function: Any, x: torch.Tensor) -> None:
    told = backfuzz.check(function, x, backend=BACKEND)
    assert told.agrees
    assert "(no gradient)" in told.detail


def test_a_wrong_integer_is_wrong() -> None:
    told = backfuzz.check(lambda x: x + int(compiling()), torch.arange(6), backend=BACKEND)
    assert told.detail.startswith("output[")


def test_where_nothing_requires_a_gradient_floating_inputs_do_and_the_verdict_says_so() -> None:
    told = backfuzz.check(torch.atan2, drawn(3, gradient=False), drawn(3, gradient=False), backend=BACKEND)
    assert "(no input requires a gradient; here x0, x1 did)" in told.detail


def test_where_one_does_the_others_stay_as_they_are() -> None:
    told = backfuzz.check(torch.atan2, drawn(3, gradient=False), drawn(3), backend=BACKEND)
    assert told.detail.startswith("outputs and 1 gradient(s)")
    assert "requires" not in told.detail


# ---------------------------------------------------------------- writes and shared memory


def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y.detach() * compiling())
    return y * 2


def test_a_function_may_write_to_an_input_which_then_requires_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "compiling", lambda: 1.0)
    x, y = drawn(3, gradient=False), drawn(3, gradient=False)
    before = x.clone()
    told = backfuzz.check(adds, x, y, backend=BACKEND)
    assert told.agrees
    assert "here y did" in told.detail
    assert torch.equal(x, before)


def test_a_wrong_write_to_an_input_has_its_name() -> None:
    told = backfuzz.check(adds, drawn(3, gradient=False), drawn(3), backend=BACKEND)
    assert told.detail.startswith("x[")


def test_a_write_that_one_side_leaves_out_is_wrong() -> None:
    def forgets(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if compiling() > 1:
            return y * 2
        x.add_(1)
        return y * 2

    def alone(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if compiling() > 1:
            x.add_(1)
        return y * 2

    for function in (forgets, alone):
        told = backfuzz.check(function, drawn(3, gradient=False), drawn(3), backend=BACKEND)
        assert told.signature.verdict == "wrong"
        assert told.detail.startswith(("x[", "x does not hold what it held before"))


def test_what_inputs_share_they_share_in_every_run() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * z

    whole = torch.arange(6.0)
    assert backfuzz.check(function, whole[:4], whole[2:], drawn(4), backend=BACKEND).agrees


def test_statistics_of_a_batch_norm_are_compared_and_put_back() -> None:
    norm = nn.BatchNorm1d(3)
    assert backfuzz.check(norm, drawn(5, 3), backend=BACKEND).agrees
    assert norm.running_mean is not None
    assert not norm.running_mean.any()
    assert norm.num_batches_tracked == 0

    class Forgetful(nn.BatchNorm1d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            statistics = (None, None) if compiling() > 1 else (self.running_mean, self.running_var)
            return F.batch_norm(input, *statistics, self.weight, self.bias, training=True)

    told = backfuzz.check(Forgetful(3), drawn(5, 3), backend=BACKEND)
    assert told.detail.startswith(("running_mean[", "running_var["))


def test_what_a_module_stores_in_itself_is_compared_and_taken_away() -> None:
    class Storing(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            made = super().forward(input)
            self.last = made.detach() * compiling()
            return made

    module = Storing(3, 2)
    assert backfuzz.check(module, drawn(4, 3), backend=BACKEND).detail.startswith("last[")
    assert "last" not in vars(module)


def _cloning(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    return lambda *args: [out.clone() for out in graph(*args)]


def test_a_result_that_shares_an_inputs_memory_on_one_side_only_is_wrong() -> None:
    torch._dynamo.register_backend(_cloning, name="cloning")
    told = backfuzz.check(lambda x: (x[1:], x.sin()), drawn(3), backend="cloning")
    assert told.detail.startswith("output[0] shares memory with nothing, the reference's with x")

    def views(x: torch.Tensor) -> torch.Tensor:
        return x.view(3) if compiling() > 1 else x.clone()

    told = backfuzz.check(views, drawn(3), backend=BACKEND)
    assert told.detail.startswith("output shares memory with x, the reference's with nothing")


# ---------------------------------------------------------------- what runs inside


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.factor * grad, None


def hooked(x: torch.Tensor, factor: float) -> torch.Tensor:
    inner = x * 2
    inner.register_hook(lambda gradient: gradient * factor)
    return inner.sin()


def half(x: torch.Tensor, factor: float) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=factor == 2):
        return (x @ x.mT).float()


def unseen(x: torch.Tensor, factor: float) -> torch.Tensor:
    with torch.no_grad():
        scale = x * factor
    return x * scale


def of_func(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.func.grad(lambda t: (t.sin() * t * factor).sum())(x)


def recomputed(x: torch.Tensor, factor: float) -> torch.Tensor:
    return checkpoint(lambda t: (t * factor).sin().exp(), x, use_reentrant=False)


def broken(x: torch.Tensor, factor: float) -> torch.Tensor:
    made = x.sin()
    torch._dynamo.graph_break()
    return made * factor


def branching(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x.sin() * factor if x.sum() > -100 else x.cos()


INSIDE = (Doubled.apply, hooked, half, unseen, of_func, recomputed, broken, branching)


@pytest.mark.parametrize("inner", INSIDE, ids=lambda inner: getattr(inner, "__name__", "Function"))
def test_what_runs_inside_runs_as_it_is(inner: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
    assert backfuzz.check(lambda x: inner(x, 1.0), drawn(4, 4), backend=BACKEND).agrees
    told = backfuzz.check(lambda x: inner(x, compiling()), drawn(4, 4), backend=BACKEND)
    assert told.signature.verdict == "wrong"


def test_hooks_of_a_module_run() -> None:
    module = nn.Linear(3, 3)
    module.register_forward_hook(lambda module, args, result: result * compiling())
    module.weight.register_hook(lambda gradient: gradient * 3)
    assert backfuzz.check(module, drawn(2, 3), backend=BACKEND).detail.startswith("output[")


def test_graph_breaks_are_told() -> None:
    told = backfuzz.check(lambda x: broken(x, 1.0), drawn(3), backend=BACKEND)
    assert "(compiled as 2 graphs (Call to `torch._dynamo.graph_break()`))" in told.detail


def test_random_numbers_are_the_same_on_both_sides_and_the_verdict_says_so() -> None:
    said = "(random numbers are eager's: inductor.fallback_random is set)"
    told = backfuzz.check(nn.Dropout(0.5), drawn(30), backend=BACKEND)
    assert told.agrees
    assert said in told.detail
    for still in (nn.Dropout(0.0), nn.Dropout(0.5).eval()):
        told = backfuzz.check(lambda x, still=still: still(x) * 2, drawn(30), backend=BACKEND)
        assert told.agrees
        assert said not in told.detail


@pytest.mark.slow
def test_random_numbers_are_the_same_under_inductor() -> None:
    assert backfuzz.check(lambda x: F.dropout(x, 0.5).sin(), drawn(30)).agrees
    told = backfuzz.check(lambda x: F.dropout(x, 0.5) * compiling(), drawn(30))
    assert told.signature.verdict == "wrong"


def test_random_states_are_those_of_before() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + torch.rand(3)) * random.random() * compiling()

    torch.manual_seed(11)
    random.seed(11)
    before = torch.get_rng_state(), random.getstate()
    assert not backfuzz.check(function, drawn(3), backend=BACKEND).agrees
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


# ---------------------------------------------------------------- no verdict


def fails(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no such\nthing")


REFUSED: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "fails raises in eager, in the forward: ValueError: no such": (fails, (drawn(3),), {}),
    "returns no tensor and changes none": (lambda x: x.sum().item(), (drawn(3),), {}),
    "torch.compile compiled nothing of this function": (
        lambda x: torch.compiler.disable(lambda t: t.sin())(x), (drawn(3),), {},
    ),
    "isolated=True sends the function to another process, and <lambda> cannot be pickled": (
        lambda x: x.sin(), (drawn(3),), {"isolated": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_judged_is_refused_in_a_sentence(reason: str) -> None:
    function, args, options = REFUSED[reason]
    with pytest.raises(backfuzz.Uncheckable) as told:
        backfuzz.check(function, *args, backend=BACKEND, **options)
    assert reason in str(told.value)
    assert "\n" not in str(told.value)


# ---------------------------------------------------------------- no verdict, and a sentence that says why

CALLS = 0


def counted(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return x * CALLS


@pytest.mark.parametrize(
    ("function", "inputs", "told"),
    [
        (counted, (torch.ones(3),), "counted gives another output when it runs again on the same inputs"),
        (torch.jit.script(nn.Linear(3, 3)), (torch.ones(2, 3),), "torch.compile does not take RecursiveScriptModule"),
        (torch.sin, (torch.ones(3, device="meta"),), "x0 is a meta tensor"),
        (torch.sin, (torch.eye(3).to_sparse(),), "x0 is a sparse tensor"),
        (nn.Embedding(5, 3, sparse=True), (torch.tensor([1, 2]),), "Embedding makes a tensor without a storage"),
        (nn.LazyLinear(3), (torch.ones(2, 3),), "weight has no shape yet: call LazyLinear once before the check"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_a_function_without_a_verdict_is_refused_in_a_sentence(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], told: str
) -> None:
    with pytest.raises(backfuzz.Uncheckable, match=told):
        backfuzz.check(function, *inputs, backend=BACKEND)


def test_what_is_compiled_already_is_refused_in_a_sentence() -> None:
    with pytest.raises(backfuzz.Uncheckable, match=r"this is a result of torch\.compile"):
        backfuzz.check(torch.compile(torch.sin), torch.ones(3), backend=BACKEND)


def test_an_input_with_a_history_may_be_written_to() -> None:
    told = backfuzz.check(nn.ReLU(inplace=True), torch.linspace(-1, 1, 4).requires_grad_() * 2, backend=BACKEND)
    assert told.agrees
    assert "1 gradient(s)" in told.detail


def test_a_tensor_that_a_module_keeps_in_a_container_is_compared() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = [torch.zeros(2)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept[0] = x * compiling()
            return x.sin()

    module = Cache()
    told = backfuzz.check(module, torch.ones(2), backend=BACKEND)
    assert told.detail.startswith("kept[0][0]: compiled 2, eager 1")
    assert module.kept[0].tolist() == [0.0, 0.0]


def test_a_python_float_is_named_as_not_compared() -> None:
    told = backfuzz.check(lambda x: (x * 2, x.sum().item()), torch.ones(2), backend=BACKEND)
    assert "(not compared: output[1], a Python float)" in told.detail


def test_numpy_draws_the_same_numbers_on_both_sides() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(numpy.random.rand(4).astype("float32"))

    told = backfuzz.check(noisy, torch.ones(4), backend=BACKEND)
    assert told.agrees
    assert "dynamo.use_numpy_random_stream is set" in told.detail
