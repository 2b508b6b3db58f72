"""What tasks of one rank's program wait for on other ranks of their node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints


@dataclass(frozen=True, eq=False, slots=True)
class Foreign:
    """What one rank's program waits for in the programs of other ranks of its node, in CSR.

    Rows ``indptr[i]:indptr[i+1]`` belong to task i of the program; all wait
    for completion. A plan of all ranks has these edges among its `deps`.

    Parameters
    ----------
    indptr : ndarray of int32, shape (n_tasks + 1,)
    rank : ndarray of int32, shape (n_edges,)
        Whose task it is.
    task : ndarray of int32, shape (n_edges,)
        Its row in that rank's own program.
    flag : ndarray of int32, shape (n_edges,)
        Its number among that rank's awaited tasks.
    awaited : ndarray of int32, shape (n_awaited,)
        Rows of this program that others of the node wait for, ascending;
        place k is their flag k.
    """

    indptr: Ints
    rank: Ints
    task: Ints
    flag: Ints
    awaited: Ints

    @classmethod
    def none(cls, n_tasks: int) -> Foreign:
        """Return what waits for nothing elsewhere."""
        nothing = np.zeros(0, dtype=np.int32)
        indptr = np.broadcast_to(np.int32(0), (n_tasks + 1,))
        return cls(indptr, nothing, nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.rank)
