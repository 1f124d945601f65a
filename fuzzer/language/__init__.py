"""The program and all that can be said: its text, values, ops, regions, settings and routes; its one evaluator."""
