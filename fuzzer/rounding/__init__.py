"""What a right result may be: the trace of eager, replayed with roundings that move."""
