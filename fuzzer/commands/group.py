"""The command `backfuzz`, to which every verb adds itself."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="backfuzz", prog_name="backfuzz")
def main() -> None:
    """Fuzz the backward pass of compiled PyTorch."""
