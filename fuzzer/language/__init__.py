"""The language of programs: text, values, ops, regions, settings and routes; and the one evaluator."""
