"""Script of the helper process, which one rank of a program starts on each node."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collplan.preload.connections import Answer

LISTENER = 3
"""File descriptor of the listening socket, which the helper inherits."""


def main() -> NoReturn:
    """Close the descriptors inherited from the rank, and serve the ranks of the node.

    An inherited pipe or socket would otherwise stay open after the rank has closed it, and its
    reader would wait until the helper ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.closerange(LISTENER + 1, os.sysconf("SC_OPEN_MAX"))
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.preload.connections import Connections

    connections = Connections(socket.socket(fileno=LISTENER))
    connections.start(parent=int(sys.argv[2]))
    connections.serve(_answer())


def _answer() -> Answer:
    """Return the function that answers requests; without its modules, it says why they fail."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from collplan.own_algorithms import import_own
        from collplan.preload.helper import Helper

        import_own()
        return Helper().answer
    except Exception as error:
        why = f"the helper process cannot start: {type(error).__name__}: {error}".encode()
        return lambda _request, _message: (1, why)


if __name__ == "__main__":
    main()
