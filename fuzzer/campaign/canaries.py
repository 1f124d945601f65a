"""CANARIES: for every oracle, planted faults that it must flag, beside a benign run of the same program.

An oracle is trusted only after it flagged its canary and all oracles were silent on the canary's twin: the same program
with nothing planted. The faults themselves stand in `fuzzer.judgement.planted`, the programs in corpus/canaries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fuzzer.judgement.oracles import ASKED
from fuzzer.judgement.trial import TIMED_OUT, Place, Subject
from fuzzer.trial.tasks import examine
from fuzzer.workers.messages import Report, Task
from fuzzer.workers.pool import DEADLINE_SECONDS, Pool

PROGRAMS = Path(__file__).with_name("canary_programs")  # in the source, a link to corpus/canaries
# A worker that sleeps is killed after this; its program takes 3 s to compile on one idle core, 8 s on a busy one.
_HANG_DEADLINE_SECONDS = 20.0


@dataclass(frozen=True)
class Canary:
    """One expectation: with `name` (a fault of FAULTS) planted in `program`, `oracle` says `verdict`.

    program  a file in corpus/canaries without its ending;  direction  what the signature must say;  quick  run at the
    start of every campaign;  deadline  seconds;  twin  what is planted in the benign run, nothing unless the running
    torch may have the fault itself;  built  whether only code that is built shows it.
    """

    name: str
    program: str
    oracle: str
    verdict: str
    direction: str = "backward"
    quick: bool = False
    deadline: float = DEADLINE_SECONDS
    twin: str = ""
    built: bool = False


@dataclass(frozen=True)
class CanaryResult:
    """Whether the oracle flagged the fault as expected, and whether all oracles were silent on the twin.

    detail   what the oracles said instead; "" where all is well.
    seconds  the canary's own time in a worker; for a death, the time since all canaries were submitted.
    late     whether the canary or its twin met its deadline where it should not. That says nothing of an oracle.
    """

    name: str
    oracle: str
    flagged: bool
    silent: bool
    detail: str
    seconds: float
    late: bool = False

    @property
    def passed(self) -> bool:
        return self.flagged and self.silent


CANARIES: tuple[Canary, ...] = (
    Canary("compiler_aborts", "three_activations", "worker_survives", "crashes", "forward", quick=True),
    Canary("compiler_raises", "three_activations", "compile_does_not_raise", "raises", "forward", quick=True),
    Canary("eager_aborts", "three_activations", "eager_survives", "crashes", quick=True),
    Canary("eager_refuses", "three_activations", "errors_agree", "raises", "forward", quick=True),
    Canary("seven_at_once", "three_activations", "metadata_agrees", "wrong", quick=True),
    Canary("seven_at_once", "three_activations", "inputs_untouched", "wrong", quick=True),
    Canary("seven_at_once", "three_activations", "no_new_nonfinite", "wrong", quick=True),
    Canary("seven_at_once", "three_activations", "outputs_agree", "wrong", "forward", quick=True),
    Canary("seven_at_once", "three_activations", "gradients_agree", "wrong", quick=True),
    Canary("seven_at_once", "three_activations", "finiteness_agrees", "nonfinite-differs", "forward", quick=True),
    Canary("seven_at_once", "three_activations", "seen_zero_signs_agree", "signed-zero", "forward", quick=True),
    Canary("two_at_once", "three_activations", "rerun_is_identical", "nondeterministic", quick=True),
    Canary("two_at_once", "three_activations", "compile_is_timely", "costly", "", quick=True),
    Canary("compiled_backward_takes_memory", "sigmoid", "memory_is_sane", "costly", "", quick=True, built=True),
    Canary("compiled_backward_aborts", "sigmoid", "worker_survives", "crashes"),
    Canary("compiled_backward_segfaults", "sigmoid", "worker_survives", "crashes"),
    Canary("compiled_backward_hangs", "sigmoid", "worker_survives", "hangs", deadline=_HANG_DEADLINE_SECONDS),
    Canary("compiled_backward_raises", "sigmoid", "compile_does_not_raise", "raises"),
    Canary("gradients_doubled", "sigmoid", "gradients_agree", "wrong"),
    Canary("gradient_in_float64", "sigmoid", "metadata_agrees", "wrong"),
    Canary("gradient_flattened", "sigmoid", "metadata_agrees", "wrong"),
    Canary("gradient_missing", "sigmoid", "metadata_agrees", "wrong"),
    Canary("output_in_float64", "sigmoid", "metadata_agrees", "wrong", "forward"),
    Canary("cotangent_overwritten", "sigmoid", "inputs_untouched", "wrong"),
    Canary("written_behind_cotangent", "sigmoid", "inputs_untouched", "wrong"),
    Canary("compiled_backward_alternates", "sigmoid", "rerun_is_identical", "nondeterministic"),
    Canary("compile_takes_long", "sigmoid", "compile_is_timely", "costly", ""),
    Canary("sigmoid_gradient_without_a_setting", "sigmoid_under_a_setting", "settings_agree", "wrong"),
    Canary("relu_gradient_masked_by_minus_zero", "ties", "zero_signs_agree", "signed-zero"),
    Canary("softplus_gradient_without_threshold", "three_activations", "no_new_nonfinite", "wrong"),
    Canary("relu_accuracy", "relu", "outputs_agree", "wrong", "forward", built=True),
    Canary("sigmoid_gradient_without_complement", "sigmoid", "gradients_agree", "wrong"),
    Canary("one_gradient_element_scaled", "sigmoid", "gradients_agree", "wrong"),
    Canary("gradient_all_zero", "tanh_vjp", "gradients_agree", "wrong"),
    Canary("accumulation_forgotten", "value_used_twice", "gradients_agree", "wrong"),
    Canary("broadcast_summed_over_columns", "value_used_twice", "gradients_agree", "wrong"),
    Canary("recomputed_of_another_value", "value_used_twice", "gradients_agree", "wrong"),
    Canary("softmax_gradient_beyond_its_tail", "rows", "gradients_agree", "wrong"),
    Canary("size_one_dim_of_the_first_row", "rows", "gradients_agree", "wrong"),
    Canary("elu_gradient_beside_a_vector", "rows", "gradients_agree", "wrong"),
    Canary("ties_not_shared", "ties", "gradients_agree", "wrong"),
    Canary("hardtanh_gradient_at_its_limits", "ties", "gradients_agree", "wrong"),
    Canary(
        "hardtanh_gradient_at_rounded_limits",
        "limits_in_half_precision",
        "gradients_agree",
        "wrong",
        twin="hardtanh_gradient_at_its_own_limits",
    ),
    Canary("output_not_overflown", "range_and_zeros", "finiteness_agrees", "nonfinite-differs", "forward"),
    Canary("output_of_minus_zero", "range_and_zeros", "seen_zero_signs_agree", "signed-zero", "forward"),
    Canary("relu_gradient_by_multiplication", "ties", "no_new_nonfinite", "wrong"),
    Canary("scatter_overwrites", "scatters", "gradients_agree", "wrong"),
    Canary("window_one_further", "scatters", "gradients_agree", "wrong"),
    Canary("scan_not_reversed", "scatters", "gradients_agree", "wrong"),
    Canary("product_not_transposed", "products", "gradients_agree", "wrong"),
    Canary("average_of_padding_too", "products", "gradients_agree", "wrong"),
    Canary("tanh_gradient_in_single_precision", "products", "gradients_agree", "wrong"),
    Canary("layer_norm_gradient_without_mean", "products", "gradients_agree", "wrong"),
    Canary("sigmoid_gradient_under_a_setting", "sigmoid_under_a_setting", "gradients_agree", "wrong"),
    Canary(
        "slice_scatter_of_2_11",
        "slice_scatter_under_sum",
        "gradients_agree",
        "wrong",
        twin="slice_scatter_since_2_12",
    ),
    Canary("eager_gradient_scaled", "sigmoid", "gradients_agree", "eager-suspect"),
    Canary("eager_gradient_scaled", "sigmoid", "gradients_are_derivatives", "eager-suspect"),
    Canary("product_not_rounded", "contraction", "outputs_agree", "rounding-sensitive", "forward"),
    Canary(
        "roundings_dropped", "narrowing", "narrowings_agree", "narrowing-sensitive", "forward", twin="roundings_kept"
    ),
    Canary("relu_compile_error", "relu", "compile_does_not_raise", "raises", "forward", built=True),
    # last, because on CUDA it costs its worker the context
    Canary("relu_runtime_error", "relu", "compile_does_not_raise", "raises", "forward", built=True),
)


def selected_canaries(quick: bool) -> tuple[Canary, ...]:
    """All canaries, or the quick ones: one for each oracle that always speaks, in four short runs and a twin."""
    return tuple(c for c in CANARIES if c.quick or not quick)


def runs_of(canaries: Iterable[Canary]) -> int:
    """How many programs are run for these canaries, their twins among them."""
    wanted = tuple(canaries)
    return len({(c.name, c.program) for c in wanted}) + len({(c.program, c.twin) for c in wanted})


def read_program(name: str) -> str:
    """The text of a canary's program."""
    return (PROGRAMS / f"{name}.prog").read_text()


def run_canaries(pool: Pool, device: str = "cpu", quick: bool = False) -> list[CanaryResult]:
    """Run the canaries and, once a program, their twins, in the pool's workers. The quick ones are staged."""
    return canary_results(pool, device, selected_canaries(quick), staged=quick)


def canary_results(pool: Pool, device: str, canaries: Iterable[Canary], staged: bool = False) -> list[CanaryResult]:
    """The result of each canary, in order. staged: whether code is built only for those that are about code; an oracle
    sees no difference, and the others take a quarter of the time. Of the canaries the quick ones alone go through
    the final look, which costs most. A twin costs that only where an earlier look flags it, and then needs it."""

    def task(canary: Canary, plant: str) -> Task:
        backend = "inductor:ir" if staged and not canary.built else "inductor"
        place = Place(Subject("eager", device), Subject(backend, device))
        return Task(place, final=canary.quick or plant != canary.name, fresh=True, also=ASKED, canary=plant)

    wanted = tuple(canaries)
    texts = {c.program: read_program(c.program) for c in wanted}
    longest_first = sorted(wanted, key=lambda c: not c.built)
    # by task and program, since one run serves several canaries
    twins, rung = (
        {(task(c, plant(c)), c.program): c for c in longest_first} for plant in (lambda c: c.twin, lambda c: c.name)
    )
    started = time.perf_counter()
    # the twins first: a device-side assertion of a canary leaves its worker without a CUDA context
    running = {key: pool.submit(examine, key[0], texts[key[1]], seconds=DEADLINE_SECONDS) for key in twins}
    ringing = {key: pool.submit(examine, key[0], texts[key[1]], seconds=c.deadline) for key, c in rung.items()}
    found: dict[tuple[Task, str], tuple[Report, float]] = {}
    for key, future in ringing.items():
        report = pool.result(future, key[0])
        found[key] = report, sum(report.seconds.values()) or time.perf_counter() - started
    calm = {key: pool.result(future, key[0]) for key, future in running.items()}
    return [
        canary_result(c, report, calm[task(c, c.twin), c.program], seconds)
        for c in wanted
        for report, seconds in [found[task(c, c.name), c.program]]
    ]


def canary_result(canary: Canary, report: Report, twin: Report, seconds: float) -> CanaryResult:
    """What the reports of a canary and its twin say about the oracle."""
    wanted = (canary.oracle, canary.verdict, canary.direction)
    said = [v.signature for v in report.verdicts]
    flagged = wanted in [(s.oracle, s.verdict, s.direction) for s in said]
    silent = twin.verdict == "agree"
    detail = []
    if not flagged:
        seen = report.rejected or ", ".join(map(str, said)) or "silence"
        detail.append(f"expected {'/'.join(wanted)}, got {seen}")
    if not silent:
        detail.append(f"its benign twin gave {twin.rejected or ', '.join(str(v.signature) for v in twin.verdicts)}")
    late = not (flagged and silent) and (_timed_out(twin) or (_timed_out(report) and canary.verdict != "hangs"))
    return CanaryResult(canary.name, canary.oracle, flagged, silent, "; ".join(detail), seconds, late)


def _timed_out(report: Report) -> bool:
    """Whether the program ran until its deadline."""
    return TIMED_OUT in report.rejected or any(v.signature.verdict == "hangs" for v in report.verdicts)
