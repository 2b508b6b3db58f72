"""A trial of what plans need of ranks; also a script, for ranks that `doctor` starts."""

from __future__ import annotations

import json
from typing import Any


def hello(comm: Any) -> dict[str, Any]:
    """Let ranks exchange messages, reduce, and share memory; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.

    Returns
    -------
    dict
        What came of it, the same on all ranks.
    """
    import numpy as np
    from mpi4py import MPI

    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    arrives = comm.sendrecv(comm.rank, right, source=left) == left
    least = {}
    for name in "int64", "uint64":
        # Not above 1 on rank 0, the type's largest number on all others.
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
    """Print what came of it, on rank 0, as JSON."""
    from mpi4py import MPI

    seen = hello(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(seen))  # noqa: T201


if __name__ == "__main__":
    main()
