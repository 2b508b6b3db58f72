"""Kernel counters of the bytes that a rank's node has received and sent on every lane."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_COUNTERS: Final = Path("/proc/self/net/dev")
_LANE: Final = re.compile(r"\s*lane(\d+):(.*)")


def lane_bytes(text: str | None = None) -> dict[int, tuple[int, int]]:
    """Return the bytes that a node has received and sent on each lane.

    The kernel counts whole frames. They include 1 to 5 % of headers for messages of MPI, and
    acknowledgments in the opposite direction. The launcher's own messages use lane 0.

    Parameters
    ----------
    text : str, optional
        Table in the format of ``/proc/net/dev``; by default that of the node of this process.

    Returns
    -------
    dict of int to (int, int)
        Received and sent bytes by lane; empty if there are no lanes.

    Examples
    --------
    >>> lane_bytes(" lane1: 70 1 0 0 0 0 0 0 1514 1 0 0 0 0 0 0\\n    lo: 9")
    {1: (70, 1514)}
    """
    found = {}
    for line in (_COUNTERS.read_text() if text is None else text).splitlines():
        match = _LANE.fullmatch(line)
        if match is not None:
            # Each direction has eight counters; the first counts bytes.
            counters = match[2].split()
            found[int(match[1])] = (int(counters[0]), int(counters[8]))
    return dict(sorted(found.items()))
