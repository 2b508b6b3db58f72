"""Communicators that run the table's choice, and are mpi4py's own in everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from mpi4py import MPI

from collplan.dropin.config import Family, read_table
from collplan.dropin.loading import load_all
from collplan.dropin.methods import Planned, Topological, making
from collplan.dropin.nonblocking_setup import lay_ground
from collplan.dropin.plans import MAX_PLANS, NATIVE_CALLS
from collplan.executors.mpi.errors import one_line
from collplan.tune.table import TuningTable

TABLE: Final = "COLLPLAN_TABLE"
"""Environment variable that names a table for communicators that are given none."""


class Comm(Planned, MPI.Intracomm):
    """A communicator that runs collectives by a tuning table; collective to make.

    It is an ``MPI.Intracomm`` with mpi4py's whole interface. The upper-case collectives
    with one count for all ranks run what the table says, everything else is native MPI.
    Communicators made from it are drop-ins, too.

    Parameters
    ----------
    comm : MPI.Intracomm
        Whose ranks; the handle is shared, not duplicated.
    table : TuningTable, str, Path or None
        What to run, or its file, which rank 0 reads; by default the file that the
        environment variable ``COLLPLAN_TABLE`` names, and without one all is native.
    force : bool
        Whether to use a table that was tuned elsewhere.
    operations : iterable of (MPI.Op, str)
        Operations of your own, and the names they are registered under with
        `collplan.register_operation`; others of your own run natively.
    max_plans : int
        Plans kept for each communicator.
    native_calls : int
        Equal calls that run natively before a plan is made for them; the same on all ranks.
    nonblocking_from : int or None
        From how many bytes on non-blocking forms run by plans; by default large ones whose
        plans gain much. The same on all ranks.

    Raises
    ------
    CollplanError
        If the table can't be read, or was tuned elsewhere; on all ranks.
    """

    def __new__(cls, comm: MPI.Comm | None = None, *_: Any, **__: Any) -> Self:
        """Share a communicator's handle."""
        made: Self = super().__new__(cls, comm)
        return made

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        table: TuningTable | str | Path | None = None,
        *,
        force: bool = False,
        operations: Iterable[tuple[MPI.Op, str]] = (),
        max_plans: int = MAX_PLANS,
        native_calls: int = NATIVE_CALLS,
        nonblocking_from: int | None = None,
    ) -> None:
        if comm is None or comm == MPI.COMM_NULL:
            return
        native = MPI.Intracomm(comm)
        if table is None:
            table = os.environ.get(TABLE)
        names = {op.handle: name for op, name in operations}
        read = read_table(native, table, force=force)
        family = Family(read, names, max_plans, native_calls, nonblocking_from)
        family.log_at_exit(native)
        self._join(family)
        if read is None:
            self._settle_on("no table")
            if native.rank == 0:
                _say_that_there_is_no_table()
            return
        try:
            load_all(native)
        except Exception as error:  # on all ranks; plans will say the same when they are made
            self._settle_on(f"non-blocking: {one_line(error)}")
        else:
            self._settle_on(lay_ground(native, read))


@cache
def _say_that_there_is_no_table() -> None:
    sys.stderr.write(
        "collplan: warning: collplan.Comm has no tuning table, so that all collectives run "
        f"natively; pass table= or set {TABLE} to a file that collplan tune wrote\n"
    )
    sys.stderr.flush()


class Cartcomm(Topological, MPI.Cartcomm):
    """A Cartesian drop-in, as ``Comm.Create_cart`` and ``Cartcomm.Sub`` make it."""

    Sub = making("Sub")


class Graphcomm(Topological, MPI.Graphcomm):
    """A drop-in with a graph, as ``Comm.Create_graph`` makes it."""


class Distgraphcomm(Topological, MPI.Distgraphcomm):
    """A drop-in with a distributed graph, as ``Comm.Create_dist_graph`` makes it."""


Planned.forms.update(
    {
        MPI.Intracomm: Comm,
        MPI.Cartcomm: Cartcomm,
        MPI.Graphcomm: Graphcomm,
        MPI.Distgraphcomm: Distgraphcomm,
    }
)
