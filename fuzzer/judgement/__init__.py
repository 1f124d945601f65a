"""Observations of a program, and the verdicts of oracles about them."""
