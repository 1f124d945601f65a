"""The features of programs, and which of them are new: traces, compiled graphs and code, source lines of the
compiler."""
