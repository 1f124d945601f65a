"""How a program is drawn: knobs, vocabulary, draft, generator."""
