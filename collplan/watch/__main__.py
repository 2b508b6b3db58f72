"""Script of the process that watches the ranks of a Python program on one node."""

from __future__ import annotations

import sys
from pathlib import Path


def main(pid: str, descriptor: str, nonce: str, n_ranks: str, *words: str) -> None:
    """Watch ranks until all of them have ended.

    Parameters
    ----------
    pid, descriptor, nonce, n_ranks : str
        Arguments of `collplan.watch.area.open_area`.
    *words : str
        Arguments of `collplan.watch.options.of_words`.
    """
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.watch.area import open_area
    from collplan.watch.options import of_words
    from collplan.watch.watcher import Watcher

    area = open_area(int(pid), int(descriptor), int(nonce), int(n_ranks))
    Watcher(area, of_words(*words)).watch()


if __name__ == "__main__":
    main(*sys.argv[1:])
