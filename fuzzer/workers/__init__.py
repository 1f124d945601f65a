"""Processes that run tasks, die, hang and are replaced: on this machine, or on those of a Ray cluster."""
