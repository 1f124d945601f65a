"""How a program is drawn: vocabulary, draft, generator, mutators."""
