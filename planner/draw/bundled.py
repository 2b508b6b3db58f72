"""Render dot text from standard input with the graphviz inside pygraphviz's wheel.

Run as a program, with the format as its argument; imports nothing of collplan.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Read dot text, write the picture to standard output."""
    import pygraphviz

    graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
    # An AGraph warns of slow layouts above 1,000 nodes unless it has one: the positions given.
    graph.has_layout = True
    sys.stdout.buffer.write(graph.draw(format=sys.argv[1]))


if __name__ == "__main__":
    main()
