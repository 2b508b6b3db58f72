"""Reading and checking of what a program passes to `collplan.Comm`, on all ranks alike."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mpi4py import MPI

from collplan.deciding.options import check_choices
from collplan.deciding.trial_share import SHARE, TRIALS, parse_share
from collplan.executors.mpi.errors import one_line
from collplan.measure.lanes import node_of_ranks
from collplan.planner.collective.operations import get_operation
from collplan.specs import CollplanError
from collplan.specs.loading import machine_at_hand
from collplan.tables.fingerprint import take_fingerprint
from collplan.tables.table import TuningTable, load_table


def check_operations(operations: Iterable[tuple[MPI.Op, str]]) -> None:
    """Check that operations are registered.

    Raises
    ------
    CollplanError
        If one is not, or its name has a space.
    """
    for _, name in operations:
        get_operation(name)
        if " " in name:
            raise CollplanError(f"operations: the name {name!r} has a space; register another one")


def check_places(comm: MPI.Intracomm, cores: Sequence[int], numa_domains: int) -> None:
    """Check that ranks may use the cores that the user names; collective.

    Raises
    ------
    CollplanError
        On all ranks, if a node has fewer cores than ranks, or ranks may not use the cores.
    """
    # Imported late, as this takes a tenth of a second.
    from collplan.programs.progress_places import find_places

    find_places(comm, node_of_ranks(comm), cores, numa_domains)


def read_table(
    comm: MPI.Intracomm, table: TuningTable | str | Path | None, *, force: bool, named: str = ""
) -> TuningTable | None:
    """Return the table on all ranks, after rank 0 has read and checked it; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    table : TuningTable, str, Path or None
        Table, or the path of its file. The value of rank 0 is used.
    force : bool
        Whether to accept a table with another fingerprint.
    named : str
        Environment variable with the path, for messages; empty if there is none.

    Returns
    -------
    TuningTable or None
        The table, the same on all ranks; None if `table` is None on all ranks.

    Raises
    ------
    CollplanError
        On all ranks, if the table cannot be read, names algorithms that do not exist, or was
        tuned on another machine or with other software. Also if rank 0 has no table and another
        rank has one.
    """
    is_any = comm.allreduce(table is not None, MPI.LOR)
    if not is_any:
        return None
    fingerprint = None
    if not force:
        machine = machine_at_hand()
        fingerprint = take_fingerprint(comm, None if machine is None else machine.n_lanes)
    text, problem = None, None
    if comm.Get_rank() == 0:
        try:
            if table is None:
                raise CollplanError("table: rank 0 has none, others do; give all the same")
            if not isinstance(table, TuningTable | str | os.PathLike):
                raise CollplanError(
                    f"table: is a {type(table).__name__}; give a TuningTable, or the path of one"
                )
            found = table if isinstance(table, TuningTable) else load_table(table)
            check_choices(found)
            if fingerprint is not None:
                found.check(fingerprint)
            text = json.dumps(found.model_dump(mode="json"))
        except Exception as error:
            problem = one_line(error)
    text, problem = comm.bcast((text, problem))
    if text is None:
        before = f"{named}: " if named else ""
        raise CollplanError(before + (problem or "table: rank 0 could not read it"))
    return TuningTable.model_validate_json(text)


def read_share(comm: MPI.Intracomm, share: float | None) -> float:
    """Return the share of time for trials that rank 0 passes, on all ranks; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    share : float or None
        Time of trials as a fraction of the time of native calls; None for the value of the
        environment variable `TRIALS`, or `SHARE` if it is not set.

    Raises
    ------
    CollplanError
        On all ranks, if the share is not a finite number of at least 0.
    """
    given = os.environ.get(TRIALS, SHARE) if share is None else share
    given, name = comm.bcast((given, TRIALS if share is None else "trials"))
    return parse_share(given, name)
