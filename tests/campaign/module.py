"""A module as text, whose lines a campaign reached in part."""

SOURCE = '''"""A module."""
import os


class Pass:
    limit = 3

    @property
    def size(
        self,
    ):
        """A size."""
        return self.limit

    def run(self, graph):
        def seen(node):
            return node in graph

        return [
            seen(n) for n in graph
        ]


def never(): return os.name
'''
