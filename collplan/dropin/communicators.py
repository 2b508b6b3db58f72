"""Drop-in communicators: subclasses of mpi4py's classes that run collectives by a tuning table."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Any, Final, Self, cast

from mpi4py import MPI

from collplan.deciding.options import (
    MAX_PLANS,
    NATIVE,
    CallOptions,
    check_choices,
    parse_native_calls,
)
from collplan.deciding.statistics import Statistics
from collplan.deciding.trial_share import SHARE, TRIALS, parse_share
from collplan.dropin.family import Family
from collplan.executors.mpi.errors import one_line
from collplan.measure.lanes import node_of_ranks
from collplan.planner.collective.operations import get_operation
from collplan.specs import CollplanError
from collplan.specs.loading import machine_at_hand
from collplan.specs.syntax.calling import explains_calls, require_comm, wrong_type
from collplan.tables.fingerprint import take_fingerprint
from collplan.tables.table import TuningTable, load_table

TABLE: Final = "COLLPLAN_TABLE"
"""Environment variable with the path of the table, for communicators created without one."""


class Planned:
    """Common base of all drop-in communicators, mixed into mpi4py's classes."""

    _family: Family | None = None

    def stats(self) -> Statistics:
        """Return the statistics of calls on this communicator and its family.

        The family consists of a drop-in and all drop-ins created from it, directly or
        indirectly. The statistics can be printed; `Statistics.as_dict` returns them for
        programs.

        Returns
        -------
        Statistics

        Raises
        ------
        TypeError
            If this is the null communicator.
        """
        if self._family is None:
            raise TypeError("the null communicator has run nothing")
        return self._family.statistics()

    def __reduce__(self) -> Any:
        """Pickle ``COMM_WORLD`` and ``COMM_SELF`` by name; leave other communicators to mpi4py."""
        for name in ("COMM_WORLD", "COMM_SELF"):
            if self == getattr(MPI, name):
                return _predefined, (name,)
        return super().__reduce__()

    def let_go(self) -> None:
        """Free the plans of this communicator; collective. Later calls make new plans."""
        if self._family is not None:
            self._family.join(cast("MPI.Comm", self))

    def prepare(self) -> None:
        """Make the shared-memory plans that non-blocking calls have requested; collective.

        Without this call, the next blocking collective of the communicator makes them. The same
        holds for what the plans of non-blocking calls need on a communicator made from another one.
        """
        if self._family is not None:
            self._family.prepare(cast("MPI.Comm", self))

    def _join(self, family: Family) -> None:
        """Join the family of communicators that follow a table."""
        self._family = family
        family.join(cast("MPI.Comm", self))

    def _adopt(self, created: Any) -> Any:
        """Return a communicator that was created from this one as a drop-in of its family.

        Parameters
        ----------
        created : MPI.Comm or tuple
            Result of mpi4py's method; the first item of a tuple is the communicator.
        """
        if isinstance(created, tuple):
            return (self._adopt(created[0]), *created[1:])
        if self._family is None:
            return created
        if not isinstance(created, Planned):
            drop_in = _DROP_INS.get(type(created))
            if drop_in is None:
                return created
            created = drop_in.__new__(drop_in, created)
        created._join(self._family)
        return created


def _predefined(name: str) -> Any:
    """Return the predefined communicator with a name; unpickling calls this function."""
    return getattr(MPI, name)


def _creating(name: str) -> Callable[..., Any]:
    """Return a method that calls mpi4py's method `name` and returns a drop-in of the family."""
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self._adopt(native(self, *args, **options))

    return method


_CREATING: Final = (
    *("Dup", "Clone", "Dup_with_info", "Idup", "Idup_with_info", "Create", "Create_group"),
    *("Split", "Split_type", "Shrink", "Ishrink", "Create_cart", "Create_graph"),
    *("Create_dist_graph", "Create_dist_graph_adjacent"),
)

for _name in _CREATING:
    if hasattr(MPI.Intracomm, _name):
        setattr(Planned, _name, _creating(_name))


class Comm(Planned, MPI.Intracomm):
    """A communicator that runs collectives by a tuning table; creating it is collective.

    It is an ``MPI.Intracomm`` with the complete interface of mpi4py. Its
    collectives, including non-blocking and persistent ones, run by plans if the table has a plan
    that is faster than native MPI; all other calls are native. Communicators that are created from
    it are drop-ins, too.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator, whose handle is shared, not duplicated.
    table : TuningTable, str, Path or None
        Table, or the path of its file, which rank 0 reads. By default, the environment
        variable ``COLLPLAN_TABLE`` gives the path; without a table all calls are native.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.
    operations : iterable of (MPI.Op, str)
        User-defined operations, with the names under which they were registered by
        `collplan.register_operation`. Calls with other user-defined operations run natively.
    max_plans : int
        Largest number of plans kept per communicator; it must be the same on all ranks.
    native_calls : int or None
        Number of equal calls that run natively before a plan is made for them; it must be the
        same on all ranks. The default is the environment variable ``COLLPLAN_NATIVE_CALLS`` of
        rank 0 or, if it is not set, at least two, and as many as would have saved the time of
        making the plan, according to the table.
    nonblocking_from : int or None
        Message size in bytes, over all blocks, from which non-blocking calls run by plans; it
        must be the same on all ranks. By default, the table decides for collectives whose
        non-blocking calls were measured. Other calls run by plans from 1 MiB on, if the gain
        exceeds the cost of a non-blocking start.
    trials : float or None
        Largest time of trials of plans, as a fraction of the time of native calls, for
        placements that no sweep covers; 0 for no trials. The default is the environment
        variable ``COLLPLAN_TRIALS``, or 0.1 if it is not set. The value of rank 0 is used.
    cores : sequence of int or None
        Processor ids of the cores of each node; it must be the same on all ranks.
        Non-blocking plans advance on the cores without a rank. By default, they advance on
        processors of the ranks' affinity masks that have no rank.

    Raises
    ------
    CollplanError
        On all ranks, if the table cannot be read or was tuned on another machine or with other
        software, if `trials` is not a finite number of at least 0, or if there are too few
        cores or the ranks may not use them. Also if an operation is not registered, or if
        `max_plans` or `native_calls` is too small.
    """

    def __new__(cls, comm: MPI.Comm | None = None, *_: Any, **__: Any) -> Self:
        """Create an object that shares the handle of `comm`."""
        if comm is not None:
            require_comm(comm, may_be_null=True)
        return super().__new__(cls, comm)

    @explains_calls("Comm", checks_types=False)
    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        table: TuningTable | str | Path | None = None,
        *,
        force: bool = False,
        operations: Iterable[tuple[MPI.Op, str]] = (),
        max_plans: int = MAX_PLANS,
        native_calls: int | None = None,
        nonblocking_from: int | None = None,
        trials: float | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        if comm is None or comm == MPI.COMM_NULL:
            return
        for name, given in (("operations", operations), ("cores", cores)):
            if not isinstance(given, Iterable | None):
                raise wrong_type(name, given, "a list")
        native, named = MPI.Intracomm(comm), [*operations]
        check_operations(named)
        if table is None:
            found = read_table(native, os.environ.get(TABLE), force=force, named=TABLE)
        else:
            found = read_table(native, table, force=force)
        share = read_share(native, trials)
        if native_calls is None:
            native_calls = parse_native_calls(native.bcast(os.environ.get(NATIVE)))
        places = None if cores is None else tuple(cores)
        options = CallOptions(max_plans, native_calls, nonblocking_from, share, places)
        if found is not None and places is not None:
            check_places(native, places, found.numa_domains)
        try:
            self._family = Family(native, found, options, named)
        except Exception as error:  # on all ranks
            if native.rank == 0:
                sys.stderr.write(f"collplan: {one_line(error)}; all collectives are native\n")
            self._family = Family(native, None, options, named)
        self._family.log_at_exit(native)
        if found is None and native.rank == 0:
            _warn_of_missing_table()


# mpi4py's classes take their arguments in __new__, which would hide those of __init__.
_made_with = signature(Comm.__init__)
Comm.__signature__ = _made_with.replace(  # type: ignore[attr-defined]
    parameters=[*_made_with.parameters.values()][1:], return_annotation=Signature.empty
)


@cache
def _warn_of_missing_table() -> None:
    """Write a warning to standard error, once per process."""
    sys.stderr.write(
        "collplan: warning: collplan.Comm has no tuning table, so that all collectives run "
        f"natively; pass table= or set {TABLE} to a file that collplan tune wrote\n"
    )


class Cartcomm(Planned, MPI.Cartcomm):
    """A Cartesian drop-in, which ``Comm.Create_cart`` and ``Cartcomm.Sub`` create."""

    Sub = _creating("Sub")


class Graphcomm(Planned, MPI.Graphcomm):
    """A drop-in with a graph topology, which ``Comm.Create_graph`` creates."""


class Distgraphcomm(Planned, MPI.Distgraphcomm):
    """A drop-in with a distributed graph, which ``Comm.Create_dist_graph`` creates."""


_DROP_INS: Final[dict[type, type]] = {
    MPI.Intracomm: Comm,
    MPI.Cartcomm: Cartcomm,
    MPI.Graphcomm: Graphcomm,
    MPI.Distgraphcomm: Distgraphcomm,
}
"""Drop-in class for each communicator class of mpi4py."""


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
