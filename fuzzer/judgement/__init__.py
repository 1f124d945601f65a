"""What was observed, and what oracles say of it."""
