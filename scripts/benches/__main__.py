"""`scripts/bench NAME`: figures that anyone can measure again. Each bench has its command in its own module."""

from __future__ import annotations

import sys

import click

from benches.agreement import agreement_command
from benches.arms import faults_command, time_to_fault_command
from benches.around import around_command
from benches.ceiling import ceiling_command
from benches.deaf import deaf_command
from benches.derivatives import derivatives_command
from benches.diagnosis import diagnosis_command
from benches.first_look import first_look_command
from benches.guidance import guidance_command
from benches.hearing import hearing_command
from benches.hostile import hostile_command
from benches.injection import injection_command
from benches.keys import keys_command
from benches.libraries import libraries_command
from benches.minimize import minimize_command
from benches.pictures import pictures_command
from benches.portability import portability_command
from benches.profile import profile_command
from benches.reach import reach_command
from benches.scale import scale_command
from benches.sensitivity import sensitivity_command
from benches.severity import severity_command
from benches.silence import silence_command
from benches.slopes import slopes_command
from benches.stages import stages_command
from benches.throughput import throughput_command
from benches.told import told_command
from fuzzer.language.errors import NoMachine, UsageError

BENCHES = (
    agreement_command,
    around_command,
    ceiling_command,
    deaf_command,
    derivatives_command,
    diagnosis_command,
    faults_command,
    first_look_command,
    guidance_command,
    hearing_command,
    hostile_command,
    injection_command,
    keys_command,
    libraries_command,
    minimize_command,
    pictures_command,
    portability_command,
    profile_command,
    reach_command,
    scale_command,
    sensitivity_command,
    severity_command,
    silence_command,
    slopes_command,
    stages_command,
    throughput_command,
    time_to_fault_command,
    told_command,
)


@click.group()
def main() -> None:
    """Measure backfuzz."""


for bench in BENCHES:
    main.add_command(bench)


if __name__ == "__main__":
    try:
        main(prog_name="scripts/bench")
    except (NoMachine, UsageError) as error:
        sys.exit(f"backfuzz: {error}")
