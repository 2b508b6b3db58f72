"""Non-blocking forms of the drop-in where MPI has no threads, and where the table is empty."""

import threading

import numpy as np
from mpi4py import MPI

import collplan
from tables_everywhere import planning_table

WORLD = MPI.COMM_WORLD


def main() -> None:
    # A library may give more than it was asked for.
    level = MPI.Query_thread()
    assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
    ones, out = np.ones(9), np.zeros(9)
    for table in (planning_table(WORLD.size), None):
        comm = collplan.Comm(WORLD, table=table, force=True, native_calls=0, nonblocking_from=0)
        comm.Iallreduce(ones, out).Wait()
        assert (out == WORLD.size).all()
        rows = comm.stats().as_dict()["rows"]
        if table is None:
            assert not rows
        elif level < MPI.THREAD_MULTIPLE:
            (row,) = (row for row in rows if row["collective"] == "Iallreduce")
            assert row["why"].endswith("MPI_THREAD_MULTIPLE"), row
            assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
        comm.let_go()
    if WORLD.rank == 0:
        print(f"passed with thread level {level}", flush=True)


main()
