"""Candidates beside computation: calls of MPI that follow a table, as in programs under `exec`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from collplan.deciding.options import CallOptions
from collplan.dropin.family import Family, load_library
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.together import first_alone, own_communicator
from collplan.measure.native import NativeCollective
from collplan.measure.overlap.computation import Computation
from collplan.measure.overlap.overlapped import (
    Overlapped,
    overlapped_native,
    require_multiple_threads,
)
from collplan.measure.run import Case
from collplan.tables.table import TuningTable

_FIRST_CALLS: Final = 2
"""Number of first calls, in which plans are made. All later calls must run by the plan."""


class Beside:
    """A computation on this rank, and candidates that run at the same time.

    A candidate is measured as the non-blocking call of MPI that follows a table in which the
    candidate has won, so that the same code runs as in programs that use the table. Construction
    is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    seconds : float
        Duration of the computation of each rank in s, if the rank has a core of its own.
    cores : sequence of int or None
        Processor of each core of a node, as in `CallOptions`.
    table_of : callable
        Function from the name of a candidate to a table in which it is the only winner.

    Raises
    ------
    CollplanError
        On all ranks, if MPI was not initialized with ``MPI_THREAD_MULTIPLE``, or if calls of MPI
        cannot follow a table.
    """

    def __init__(
        self,
        comm: Any,
        seconds: float,
        cores: Sequence[int] | None,
        table_of: Callable[[str], TuningTable],
    ) -> None:
        require_multiple_threads()
        self._compute = first_alone(comm, lambda: Computation(seconds))
        load_library(comm)
        places = None if cores is None else tuple(cores)
        self._options = CallOptions(native_calls=0, trials=0.0, cores=places)
        self._table_of = table_of

    def natively(self, native: NativeCollective) -> Overlapped:
        """Return a call that overlaps MPI's own collective with the computation."""
        return overlapped_native(native, self._compute)

    def follow(self, name: str, case: Case) -> Overlapped:
        """Return a call that runs a candidate and the computation at the same time; collective.

        Parameters
        ----------
        name : str
            Name of the candidate.
        case : Case
            Collective and buffers.

        Raises
        ------
        UnsupportedPlanError
            On all ranks, if the call does not run by a plan on every rank.
        """
        comm = own_communicator(case.comm)
        call = NativeCollective(case.collective, comm, case.sendbuf, case.recvbuf)
        family = Family(comm, self._table_of(name), self._options, ())

        def free() -> None:
            call.__exit__()
            comm.Free()
            family.close()

        run = replace(overlapped_native(call, self._compute), free=free)
        for _ in range(_FIRST_CALLS):
            run.alone()
            family.prepare(comm)
        before = _n_planned(family)
        run.alone()
        if not all(case.comm.allgather(_n_planned(family) > before)):
            whys = [row.why for row in family.statistics().rows if not row.planned]
            free()
            raise UnsupportedPlanError(f"non-blocking calls stay native: {'; '.join(whys)}")
        return run


def _n_planned(family: Family) -> int:
    """Return the number of this rank's calls that ran by plans."""
    return sum(row.calls for row in family.statistics().rows if row.planned)
