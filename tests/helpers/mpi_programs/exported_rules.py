"""Run collectives under a library's exported rules; say what an allreduce did.

Every result is compared with numpy's. An operation of our own counts how often it is
called, and on how much: which algorithm ran.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

COMM = MPI.COMM_WORLD


def calls_of_allreduce(comm: MPI.Intracomm, n_bytes: int) -> list[int]:
    """Return the bytes of every call of the operation on this rank."""
    found: list[int] = []

    def add(left: Any, right: Any, _: MPI.Datatype) -> None:
        found.append(len(left))
        out = np.frombuffer(right)
        out += np.frombuffer(left)

    op = MPI.Op.Create(add, commute=True)
    sendbuf = np.arange(n_bytes // 8) + comm.rank * 1.0
    recvbuf = np.empty_like(sendbuf)
    comm.Allreduce(sendbuf, recvbuf, op)
    op.Free()
    np.testing.assert_array_equal(
        recvbuf, sum(np.arange(n_bytes // 8) + k for k in range(comm.size))
    )
    return found


def run_all(n_bytes: int) -> None:
    """Run every collective of doubles, the predefined sum among the operations, out of place."""
    n, size, rank = n_bytes // 8, COMM.size, COMM.rank
    root = size - 1
    blocks = np.arange(size * n).reshape(size, n) * 1.0
    mine = blocks[rank]
    out, one = np.zeros((size, n)), np.zeros(n)

    def expect(found: Any, expected: Any) -> None:
        np.testing.assert_array_equal(found, expected, f"{n_bytes} bytes")

    COMM.Barrier()
    one[:] = mine
    COMM.Bcast(one, root)
    expect(one, blocks[root])
    COMM.Allgather(mine, out)
    expect(out, blocks)
    COMM.Alltoall(blocks + rank, out)
    expect(out, blocks[rank] + np.arange(size)[:, None])
    COMM.Gather(mine, out if rank == root else None, root)
    expect(out if rank == root else blocks, blocks)
    COMM.Gather(MPI.IN_PLACE if rank == root else mine, out if rank == root else None, root)
    expect(out if rank == root else blocks, blocks)
    COMM.Scatter(blocks if rank == root else None, one, root)
    expect(one, mine)
    COMM.Allreduce(mine, one)
    expect(one, blocks.sum(0))
    COMM.Reduce(mine, one, root=root)
    expect(one if rank == root else 0, blocks.sum(0) if rank == root else 0)
    COMM.Reduce_scatter_block(blocks, one)
    expect(one, size * mine)
    COMM.Scan(mine, one)
    expect(one, blocks[: rank + 1].sum(0))
    COMM.Exscan(mine, one)
    expect(one if rank else 0, blocks[:rank].sum(0) if rank else 0)


def main() -> None:
    """Print what two sizes did on all ranks and on all but one."""
    small, large = 1024, 262_144
    for n_bytes in map(int, sys.argv[1:]):
        run_all(n_bytes)
    less = COMM.Split(COMM.rank > 0)
    found = {
        "small": calls_of_allreduce(COMM, small),
        "large": calls_of_allreduce(COMM, large),
        "less": calls_of_allreduce(less, small) if COMM.rank else [],
    }
    less.Free()
    gathered = COMM.gather(found)
    if gathered is not None:
        print(json.dumps(gathered))


if __name__ == "__main__":
    main()
