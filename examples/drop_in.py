"""A communicator that runs what a tuning table says, with an operation of one's own.

Run it with a table that ``collplan tune`` has written:

    mpiexec -n 4 python examples/drop_in.py table.yaml
"""

import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import collplan


def compose(left: Any, right: Any, out: Any) -> None:
    """Compose maps x -> a x + b, of which a complex number holds a and b: first left."""
    slope = left.real * right.real
    shift = left.imag * right.real + right.imag
    out[...] = slope + 1j * shift


def compose_in_mpi(left: Any, right: Any, _: MPI.Datatype) -> None:
    """Do the same for MPI, which gives bytes."""
    out = np.frombuffer(right, complex)
    compose(np.frombuffer(left, complex), out.copy(), out)


def main(table: str) -> None:
    my_op = MPI.Op.Create(compose_in_mpi, commute=False)
    collplan.register_operation("compose", compose, commutative=False)
    comm = collplan.Comm(  # collective
        MPI.COMM_WORLD, table=table, force=True, operations=[(my_op, "compose")]
    )
    sendbuf, recvbuf = np.full(10_000, 2.0 + comm.rank), np.empty(10_000)
    maps, result = np.array([2 + 1j * comm.rank]), np.empty(1, complex)
    for _ in range(5):
        comm.Allreduce(sendbuf, recvbuf)
        comm.Allreduce(maps, result, my_op)
    assert (recvbuf == sum(2.0 + rank for rank in range(comm.size))).all()
    assert result[0].real == 2.0**comm.size
    my_op.Free()
    if comm.rank == 0:
        print(comm.stats())


if __name__ == "__main__":
    main(sys.argv[1])
