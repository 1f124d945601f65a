"""The loop: draw, run, judge; minimize, verify, diagnose, store."""
