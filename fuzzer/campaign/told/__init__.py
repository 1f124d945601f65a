"""The figures of a running campaign: counted, written down, shown."""
