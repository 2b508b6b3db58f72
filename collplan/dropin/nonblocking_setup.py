"""Collective setup of a communicator for non-blocking plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.started_decisions import passing_messages
from collplan.executors.mpi.binding.instances import n_tag_spaces
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.host.cores import ranks_per_core, share_cores_as
from collplan.executors.mpi.together import own_communicator
from collplan.measure.lanes import node_of_ranks
from collplan.tune.table import TuningTable

if TYPE_CHECKING:
    from collplan.programs.progress_places import ProgressPlaces

LEAST_TAG_SPACES: Final = 64
"""Smallest number of concurrent collectives whose messages must have different tags."""
NO_THREADS: Final = "non-blocking: plans need MPI initialized with MPI_THREAD_MULTIPLE"
FEW_TAGS: Final = "non-blocking: this MPI has too few tags to keep collectives apart"
NOT_SET_UP: Final = "non-blocking: the next blocking call or prepare() makes what plans need"


@dataclass(eq=False)
class NonBlockingSetup:
    """Prerequisites of non-blocking plans that require collective calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator that only messages of plans use.
    rank_to_node : list of int
        Node of each rank.
    table : TuningTable
        Table whose winners use no shared memory where possible, see `passing_messages`, because
        ranks cannot allocate shared memory in a non-blocking call.
    n_tag_spaces : int
        Number of concurrent programs whose messages can have different tags; the same on all
        ranks.
    places : ProgressPlaces
        Processors of the threads that advance this rank's programs.
    plans_of : callable
        Class of the plans, `NonBlockingPlans`, whose module must not be imported without need.
    whole : NonBlockingSetup, optional
        Setup of all ranks, from which this one was made for a subset of them.
    """

    comm: MPI.Intracomm
    rank_to_node: list[int]
    table: TuningTable
    n_tag_spaces: int
    places: ProgressPlaces
    plans_of: Callable[..., PlanCache]
    whole: NonBlockingSetup | None = None

    def for_subset(self, subset: MPI.Intracomm) -> NonBlockingSetup:
        """Return a setup for a communicator of a subset of the ranks; collective over `subset`."""
        if self.whole is not None:  # the communicator of this setup may have been freed
            return self.whole.for_subset(subset)
        group, whole = subset.Get_group(), self.comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, range(subset.size), whole)
        nodes = [self.rank_to_node[rank] for rank in ranks]
        whole.Free()
        group.Free()
        comm = own_communicator(subset)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        share_cores_as(comm, self.comm)
        return replace(self, comm=comm, rank_to_node=nodes, whole=self)


class FutureSetup:
    """Setup for non-blocking plans of a communicator, which its first non-blocking call requests.

    A non-blocking call cannot make the setup, as it must not wait for other ranks. All ranks make
    calls in the same order. When they make the next blocking call, they have therefore all
    requested the setup, and make it in that call.

    Parameters
    ----------
    setup : NonBlockingSetup
        Setup of a communicator that has all ranks of this one.
    blocking : BlockingPlans
        Blocking plans of the communicator.
    use : callable
        Function that takes the setup, or the reason why there is none.
    """

    def __init__(
        self,
        setup: NonBlockingSetup,
        blocking: BlockingPlans,
        use: Callable[[NonBlockingSetup | str], object],
    ) -> None:
        self.setup, self._blocking, self._use = setup, blocking, use

    def request(self) -> str:
        """Request that the next blocking call makes the setup, for a kind of which there are plans.

        Return the reason why the present call is native.
        """
        if self._blocking.pending_task is None:
            self._blocking.pending_task = self.make
            # Without routes in `ready`, the next blocking call looks its route up, and thus runs
            # the pending task, on all ranks.
            self._blocking.ready.clear()
        return NOT_SET_UP

    def make(self) -> None:
        """Make the setup; collective."""
        self._blocking.pending_task = None
        try:
            self._use(self.setup.for_subset(self._blocking.comm))
        except MPI.Exception as error:  # on all ranks, when MPI has no communicators left
            self._use(f"non-blocking: {one_line(error)}")


def set_up_nonblocking(
    comm: MPI.Intracomm,
    table: TuningTable,
    plans_of: Callable[..., PlanCache],
    cores: Sequence[int] | None = None,
) -> NonBlockingSetup | str:
    """Set up a communicator for non-blocking plans; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    table : TuningTable
        Tuning table that chooses plans.
    plans_of : callable
        Class of the plans, `NonBlockingPlans`.
    cores : sequence of int, optional
        Processor ids of the cores of each node, the same on all ranks; see `find_places`.

    Returns
    -------
    NonBlockingSetup or str
        The setup, or the reason why there are no non-blocking plans.

    Raises
    ------
    CollplanError
        On all ranks, if a node has fewer cores than ranks, or ranks may not use the cores.
    """
    # Imported late, as this takes a tenth of a second, which tables without plans do not need.
    from collplan.programs.progress_places import find_places

    least = np.array([MPI.Query_thread() == MPI.THREAD_MULTIPLE, n_tag_spaces(comm)])
    comm.Allreduce(MPI.IN_PLACE, least, MPI.MIN)
    has_threads, least_tag_spaces = least.tolist()
    if not has_threads:
        return NO_THREADS
    if least_tag_spaces < LEAST_TAG_SPACES:
        return FEW_TAGS
    own = own_communicator(comm)
    own.Set_errhandler(MPI.ERRORS_RETURN)
    ranks_per_core(own)
    nodes = node_of_ranks(own)
    places = find_places(own, nodes, cores, table.numa_domains)
    passing = passing_messages(table)
    return NonBlockingSetup(own, nodes, passing, least_tag_spaces, places, plans_of)
