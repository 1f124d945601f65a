"""The parts of the command line that several verbs use."""
