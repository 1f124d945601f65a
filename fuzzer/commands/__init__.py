"""The command line: a module a verb, thin over the library. Exit codes stand in each verb's help.

A new verb is one new module here, whose function is decorated with `@main.command()`.
"""

from fuzzer.commands.shared.group import main

__all__ = ["main"]
