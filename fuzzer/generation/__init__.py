"""Generation of programs: knobs, vocabulary, draft, generator."""
