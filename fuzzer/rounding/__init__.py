"""The rounding model: eager's trace, replayed with random legal roundings, bounds the right results."""
