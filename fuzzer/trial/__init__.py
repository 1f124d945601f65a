"""Both sides of one program, run and judged, alone or in a batch."""
