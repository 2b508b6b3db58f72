"""Communicators that run the table's choice, and are mpi4py's own in everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, Self, cast

from mpi4py import MPI

from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.config import MAX_PLANS, NATIVE_CALLS, Config, read_share, read_table
from collplan.dropin.loading import load_all
from collplan.dropin.methods import COUNTED, COUNTED_ON_TOPOLOGIES, Collectives, counted
from collplan.dropin.nonblocking import NonBlockingPlans
from collplan.dropin.nonblocking_setup import NonBlockingSetup, set_up_nonblocking
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.statistics import Statistics
from collplan.executors.mpi.errors import one_line
from collplan.tune.table import TuningTable

TABLE: Final = "COLLPLAN_TABLE"
"""Environment variable that names a table for communicators that are given none."""


class Planned(Collectives):
    """Common part of the drop-ins of all topologies; mixed into mpi4py's classes."""

    def stats(self) -> Statistics:
        """Return what ran, on this communicator and all of its family.

        Print it, with rich or without, or take `Statistics.as_dict`.
        """
        if self._config is None:
            raise TypeError("the null communicator has run nothing")
        return self._config.statistics

    def __reduce__(self) -> Any:
        """Let the world be pickled by its name, as mpi4py does; others cannot be."""
        for name in ("COMM_WORLD", "COMM_SELF"):
            if self == getattr(MPI, name):
                return _predefined, (name,)
        return super().__reduce__()

    def let_go(self) -> None:
        """Free the plans of this communicator; collective. Later calls make them again."""
        for plans in (self._nonblocking, self._plans):
            if isinstance(plans, PlanCache):
                plans.free()

    def prepare(self) -> None:
        """Make the shared memory that non-blocking calls have asked for; collective.

        Otherwise the next blocking collective of this communicator makes it.
        """
        if isinstance(self._nonblocking, NonBlockingPlans):
            self._nonblocking.shared.make()

    def Free(self) -> None:
        """Free the communicator and its plans."""
        self._leave()
        super().Free()  # type: ignore[misc]

    def Disconnect(self) -> None:
        """Disconnect the communicator, and free its plans."""
        self._leave()
        super().Disconnect()  # type: ignore[misc]

    def _join(self, config: Config) -> None:
        self._config = config
        if self != MPI.COMM_NULL:
            self._plans = BlockingPlans(MPI.Intracomm(cast("MPI.Intracomm", self)), config)

    def _settle_on(self, setup: NonBlockingSetup | str) -> None:
        """Use a setup for non-blocking collectives, or say why there is none."""
        if isinstance(setup, str):
            self._nonblocking = setup
        elif self._plans is not None and self._config is not None:
            plans = self._plans
            self._nonblocking = NonBlockingPlans(plans.comm, self._config, setup, plans)

    def _leave(self) -> None:
        if self._plans is not None and self not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            if isinstance(self._nonblocking, NonBlockingPlans):
                self._nonblocking.free()
                self._nonblocking.setup.comm.Free()
                self._nonblocking = None
            self._plans.free()
            self._plans = None

    def _adopt(self, made: Any, waits: bool) -> Any:
        """Return a communicator made from this one as a drop-in of the same family.

        Where the call that made it `waits` for all of its ranks, they may meet again.
        """
        if isinstance(made, tuple):
            return (self._adopt(made[0], waits), *made[1:])
        if self._config is None:
            return made
        if not isinstance(made, Planned):
            form = _FORMS.get(type(made))
            if form is None:
                return made
            made = form.__new__(form, made)
        made._join(self._config)
        plans = self._nonblocking
        if waits and isinstance(plans, NonBlockingPlans) and made._plans is not None:
            try:
                made._settle_on(plans.setup.below(MPI.Intracomm(made)))
            except MPI.Exception as error:  # on all ranks: MPI's communicators are few
                made._settle_on(f"non-blocking: {one_line(error)}")
        return made


class Topological(Planned):
    """Additional part of drop-ins with a topology."""


def _predefined(name: str) -> Any:
    """Return what a name stands for where a pickle is opened."""
    return getattr(MPI, name)


def _making(name: str) -> Callable[..., Any]:
    """Return a method that makes a communicator: a drop-in of the same family."""
    waits = not name.startswith("I")
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self._adopt(native(self, *args, **options), waits)

    return method


_MAKING: Final = (
    *("Dup", "Clone", "Dup_with_info", "Idup", "Idup_with_info", "Create", "Create_group"),
    *("Split", "Split_type", "Shrink", "Ishrink", "Create_cart", "Create_graph"),
    *("Create_dist_graph", "Create_dist_graph_adjacent"),
)

for _name in _MAKING:
    if hasattr(MPI.Intracomm, _name):
        setattr(Planned, _name, _making(_name))
for _method in counted(COUNTED):
    setattr(Planned, _method.__name__, _method)
for _method in counted(COUNTED_ON_TOPOLOGIES):
    setattr(Topological, _method.__name__, _method)


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
    trials : float or None
        Share of the time of native calls that may go to trials of plans on ranks that no sweep
        speaks for; 0 for no trials. By default what the environment variable
        ``COLLPLAN_TRIALS`` says, or a tenth. Rank 0 decides.
    cores : sequence of int or None
        The processor of each core of a node: non-blocking plans advance on those of cores
        without a rank. By default on processors that ranks may use and leave free. The same on
        all ranks.

    Raises
    ------
    CollplanError
        If the table can't be read, or was tuned elsewhere, or cores are too few or cannot be
        used; on all ranks.
    """

    def __new__(cls, comm: MPI.Comm | None = None, *_: Any, **__: Any) -> Self:
        """Share a communicator's handle."""
        return super().__new__(cls, comm)

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
        trials: float | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        if comm is None or comm == MPI.COMM_NULL:
            return
        native = MPI.Intracomm(comm)
        names = {op.handle: name for op, name in operations}
        read = read_table(native, os.environ.get(TABLE) if table is None else table, force=force)
        share = read_share(native, trials)
        config = Config(read, names, max_plans, native_calls, nonblocking_from, share)
        config.log_at_exit(native)
        self._join(config)
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
            self._settle_on(set_up_nonblocking(native, read, cores))


@cache
def _say_that_there_is_no_table() -> None:
    sys.stderr.write(
        "collplan: warning: collplan.Comm has no tuning table, so that all collectives run "
        f"natively; pass table= or set {TABLE} to a file that collplan tune wrote\n"
    )


class Cartcomm(Topological, MPI.Cartcomm):
    """A Cartesian drop-in, as ``Comm.Create_cart`` and ``Cartcomm.Sub`` make it."""

    Sub = _making("Sub")


class Graphcomm(Topological, MPI.Graphcomm):
    """A drop-in with a graph, as ``Comm.Create_graph`` makes it."""


class Distgraphcomm(Topological, MPI.Distgraphcomm):
    """A drop-in with a distributed graph, as ``Comm.Create_dist_graph`` makes it."""


_FORMS: Final[dict[type, type]] = {
    MPI.Intracomm: Comm,
    MPI.Cartcomm: Cartcomm,
    MPI.Graphcomm: Graphcomm,
    MPI.Distgraphcomm: Distgraphcomm,
}
"""The drop-in for each of mpi4py's classes."""
