"""Test of the functions of MPI that plans need, also as a script for ranks of `doctor`."""

from __future__ import annotations

import json
from typing import Any


def hello(comm: Any) -> dict[str, Any]:
    """Test messages, reductions and shared memory of MPI; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.

    Returns
    -------
    dict
        Results and properties of MPI by name.
    """
    import numpy as np
    from mpi4py import MPI

    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    arrives = comm.sendrecv(comm.rank, right, source=left) == left
    least = {}
    for name in "int64", "uint64":
        # The minimum is 1: rank 0 has 1, and all others have the largest number of the type.
        mine = np.array([1 if comm.rank == 0 else np.iinfo(name).max], name)
        found = np.empty_like(mine)
        comm.Iallreduce(mine, found, MPI.MIN).Wait()
        least[name] = int(found[0])
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    window = MPI.Win.Allocate_shared(8, 8, comm=node)
    memory, _ = window.Shared_query(0)
    window.Lock_all()
    if node.rank == 0:
        memory[0] = 7
    window.Sync()
    node.Barrier()
    window.Sync()
    shares = memory[0] == 7
    window.Unlock_all()
    window.Free()
    firsts = comm.allreduce(int(node.rank == 0))
    node.Free()
    levels = ("THREAD_SINGLE", "THREAD_FUNNELED", "THREAD_SERIALIZED", "THREAD_MULTIPLE")
    provided = MPI.Query_thread()
    return {
        "size": comm.size,
        "nodes": firsts,
        "arrives": bool(comm.allreduce(int(arrives), MPI.MIN)),
        "tag_ub": comm.Get_attr(MPI.TAG_UB),
        "least": least,
        "shares": bool(comm.allreduce(int(shares), MPI.MIN)),
        "threads": next(name for name in levels if getattr(MPI, name) == provided),
    }


def main() -> None:
    """Print the results as JSON on rank 0."""
    from mpi4py import MPI

    seen = hello(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(seen))  # noqa: T201


if __name__ == "__main__":
    main()
