"""Drop-in communicators: subclasses of mpi4py's classes that run collectives by a tuning table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Any, Final, Self, cast

from mpi4py import MPI

from collplan.dropin.blocking import BlockingPlans, plan_making
from collplan.dropin.config import (
    MAX_PLANS,
    NATIVE,
    Config,
    parse_native_calls,
    read_share,
    read_table,
)
from collplan.dropin.methods import COUNTED, COUNTED_ON_TOPOLOGIES, Collectives, counted
from collplan.dropin.nonblocking_setup import FutureSetup, NonBlockingSetup, set_up_nonblocking
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.statistics import Statistics
from collplan.executors.mpi.errors import one_line
from collplan.tune.table import TuningTable

TABLE: Final = "COLLPLAN_TABLE"
"""Environment variable with the path of the table, for communicators created without one."""


class Planned(Collectives):
    """Common base of all drop-in communicators, mixed into mpi4py's classes."""

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
        if self._config is None:
            raise TypeError("the null communicator has run nothing")
        return self._config.statistics

    def __reduce__(self) -> Any:
        """Pickle ``COMM_WORLD`` and ``COMM_SELF`` by name; leave other communicators to mpi4py."""
        for name in ("COMM_WORLD", "COMM_SELF"):
            if self == getattr(MPI, name):
                return _predefined, (name,)
        return super().__reduce__()

    def let_go(self) -> None:
        """Free the plans of this communicator; collective. Later calls make new plans."""
        for plans in (self._nonblocking, self._plans):
            if isinstance(plans, PlanCache):
                plans.free()

    def prepare(self) -> None:
        """Make the shared-memory plans that non-blocking calls have requested; collective.

        Without this call, the next blocking collective of the communicator makes them. The same
        holds for what the plans of non-blocking calls need on a communicator made from another one.
        """
        if isinstance(self._nonblocking, FutureSetup):
            self._nonblocking.make()
        elif isinstance(self._nonblocking, PlanCache):
            self._nonblocking.prepare()

    def Free(self) -> None:
        """Free the communicator and its plans; collective."""
        self._free_plans()
        super().Free()  # type: ignore[misc]

    def Disconnect(self) -> None:
        """Disconnect the communicator and free its plans; collective."""
        self._free_plans()
        super().Disconnect()  # type: ignore[misc]

    def _join(self, config: Config) -> None:
        """Join the family of communicators that share a configuration."""
        self._config, self._rows = config, {}
        if self != MPI.COMM_NULL:
            self._plans = BlockingPlans(MPI.Intracomm(cast("MPI.Intracomm", self)), config)

    def _use_setup(self, setup: NonBlockingSetup | str) -> None:
        """Use a setup for non-blocking plans, or store the reason why there is none."""
        if isinstance(setup, str):
            self._nonblocking = setup
        elif self._plans is not None and self._config is not None:
            plans = self._plans
            self._nonblocking = setup.plans_of(plans.comm, self._config, setup, plans)

    def _free_plans(self) -> None:
        if self._plans is not None and self not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            if isinstance(self._nonblocking, PlanCache):
                self._nonblocking.free()
                self._nonblocking.private.Free()
            self._nonblocking = None
            self._plans.free()
            self._plans = None

    def _adopt(self, created: Any, is_blocking: bool) -> Any:
        """Return a communicator that was created from this one as a drop-in of its family.

        Parameters
        ----------
        created : MPI.Comm or tuple
            Result of mpi4py's method; the first item of a tuple is the communicator.
        is_blocking : bool
            Whether the method was blocking. Only a blocking method can set up non-blocking
            plans, as the setup is collective over the new communicator.
        """
        if isinstance(created, tuple):
            return (self._adopt(created[0], is_blocking), *created[1:])
        if self._config is None:
            return created
        if not isinstance(created, Planned):
            drop_in = _DROP_INS.get(type(created))
            if drop_in is None:
                return created
            created = drop_in.__new__(drop_in, created)
        created._join(self._config)
        plans = self._nonblocking
        if isinstance(plans, str):
            created._nonblocking = plans
        elif is_blocking and plans is not None and created._plans is not None:
            created._nonblocking = FutureSetup(plans.setup, created._plans, created._use_setup)
        return created


class Topological(Planned):
    """Common base of drop-in communicators with a topology."""


def _predefined(name: str) -> Any:
    """Return the predefined communicator with a name; unpickling calls this function."""
    return getattr(MPI, name)


def _creating(name: str) -> Callable[..., Any]:
    """Return a method that calls mpi4py's method `name` and returns a drop-in of the family."""
    is_blocking = not name.startswith("I")
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self._adopt(native(self, *args, **options), is_blocking)

    return method


_CREATING: Final = (
    *("Dup", "Clone", "Dup_with_info", "Idup", "Idup_with_info", "Create", "Create_group"),
    *("Split", "Split_type", "Shrink", "Ishrink", "Create_cart", "Create_graph"),
    *("Create_dist_graph", "Create_dist_graph_adjacent"),
)

for _name in _CREATING:
    if hasattr(MPI.Intracomm, _name):
        setattr(Planned, _name, _creating(_name))
for _method in counted(COUNTED):
    setattr(Planned, _method.__name__, _method)
for _method in counted(COUNTED_ON_TOPOLOGIES):
    setattr(Topological, _method.__name__, _method)


class Comm(Planned, MPI.Intracomm):
    """A communicator that runs collectives by a tuning table; creating it is collective.

    It is an ``MPI.Intracomm`` with the complete interface of mpi4py. The upper-case
    collectives run by plans if the table has a plan faster than native MPI; all other calls are
    native. Communicators that are created from it are drop-ins, too.

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
        return super().__new__(cls, comm)

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
        native = MPI.Intracomm(comm)
        names = {op.handle: name for op, name in operations}
        if table is None:
            found = read_table(native, os.environ.get(TABLE), force=force, named=TABLE)
        else:
            found = read_table(native, table, force=force)
        share = read_share(native, trials)
        if native_calls is None:
            native_calls = parse_native_calls(native.bcast(os.environ.get(NATIVE)))
        config = Config(found, names, max_plans, native_calls, nonblocking_from, share)
        config.log_at_exit(native)
        self._join(config)
        if found is None:
            self._use_setup("no table")
            if native.rank == 0:
                _warn_of_missing_table()
            return
        if not config.has_plans:
            self._use_setup("the table has no plan")
            return
        try:
            plan_making().load_all(native)
        except Exception as error:  # on all ranks; blocking plans fail for the same reason
            self._use_setup(f"non-blocking: {one_line(error)}")
            if native.rank == 0:
                sys.stderr.write(f"collplan: {one_line(error)}; all collectives are native\n")
        else:
            # Imported late, as plan makers take long to import.
            from collplan.dropin.nonblocking import NonBlockingPlans

            self._use_setup(set_up_nonblocking(native, found, NonBlockingPlans, cores))


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


class Cartcomm(Topological, MPI.Cartcomm):
    """A Cartesian drop-in, which ``Comm.Create_cart`` and ``Cartcomm.Sub`` create."""

    Sub = _creating("Sub")


class Graphcomm(Topological, MPI.Graphcomm):
    """A drop-in with a graph topology, which ``Comm.Create_graph`` creates."""


class Distgraphcomm(Topological, MPI.Distgraphcomm):
    """A drop-in with a distributed graph, which ``Comm.Create_dist_graph`` creates."""


_DROP_INS: Final[dict[type, type]] = {
    MPI.Intracomm: Comm,
    MPI.Cartcomm: Cartcomm,
    MPI.Graphcomm: Graphcomm,
    MPI.Distgraphcomm: Distgraphcomm,
}
"""Drop-in class for each communicator class of mpi4py."""
