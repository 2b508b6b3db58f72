"""Script of the helper process, which one rank of a program starts on each node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LAST_DESCRIPTOR = 3


def main() -> int:
    """Close the descriptors inherited from the rank, and serve the ranks of the node.

    An inherited pipe or socket would otherwise stay open after the rank has closed it, and its
    reader would wait until the helper ends.
    """
    os.closerange(LAST_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    import mpi4py

    mpi4py.rc.initialize = False
    from collplan.preload.helper import main as serve

    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
