"""Run two collectives and a computation of one's own as one program.

Run it with ``mpiexec -n 4 python examples/bind_program.py``.
"""

from __future__ import annotations

from mpi4py import MPI

import collplan


def main() -> None:
    """Sum vectors and send another one, while a rank computes."""
    comm = MPI.COMM_WORLD
    program = collplan.Program.model_validate(
        {
            "machine": {"ranks_per_node": comm.size},
            "buffers": {"x": {"count": 1000}, "y": {"count": 1000}},
            "steps": [
                {"name": "work", "compute": {"seconds": 1e-4}, "writes": "x"},
                {"name": "sum", "collective": "allreduce", "receive": "x"},
                {"name": "send", "collective": {"kind": "bcast", "root": 0}, "receive": "y"},
            ],
        }
    )
    buffers = {}

    def work() -> None:
        buffers["x"][:] = comm.rank

    with collplan.bind(program, comm, computations={"work": work}) as bound:
        buffers |= bound.buffers
        buffers["y"][:] = comm.rank
        bound.start()  # from here to completion the buffers are the program's
        bound.wait()
    assert (buffers["x"] == sum(range(comm.size))).all()
    assert (buffers["y"] == 0).all()
    if comm.rank == 0:
        print(f"a sum and a bcast on {comm.size} ranks are right")


if __name__ == "__main__":
    main()
