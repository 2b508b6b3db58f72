"""Collective setup of a communicator for non-blocking plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.compiling_together import own_communicator
from collplan.executors.mpi.binding.instances import n_tag_spaces
from collplan.executors.mpi.host.cores import ranks_per_core, share_cores_as
from collplan.measure.lanes import node_of_ranks
from collplan.progress_places import ProgressPlaces, find_places
from collplan.specs.request import MESSAGES
from collplan.tune.sweep import NATIVE_LABEL, Point, Sweep
from collplan.tune.table import TuningTable

LEAST_TAG_SPACES: Final = 64
"""Smallest number of concurrent collectives whose messages must have different tags."""
NO_THREADS: Final = "non-blocking: plans need MPI initialized with MPI_THREAD_MULTIPLE"
FEW_TAGS: Final = "non-blocking: this MPI has too few tags to keep collectives apart"


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
    planned : set of str
        Kinds of collectives that a plan has won at any size.
    whole : NonBlockingSetup, optional
        Setup of all ranks, from which this one was made for a subset of them.
    """

    comm: MPI.Intracomm
    rank_to_node: list[int]
    table: TuningTable
    n_tag_spaces: int
    places: ProgressPlaces
    planned: set[str]
    whole: NonBlockingSetup | None = None

    def for_subset(self, subset: MPI.Intracomm) -> NonBlockingSetup:
        """Return a setup for a communicator of a subset of the ranks; collective over `subset`."""
        if self.whole is not None:  # the communicator of this setup may have been freed
            return self.whole.for_subset(subset)
        group, whole = subset.Get_group(), self.comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, None, whole)
        nodes = [self.rank_to_node[rank] for rank in ranks]
        whole.Free()
        group.Free()
        comm = own_communicator(subset)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        share_cores_as(comm, self.comm)
        return replace(self, comm=comm, rank_to_node=nodes, whole=self)


def set_up_nonblocking(
    comm: MPI.Intracomm, table: TuningTable, cores: Sequence[int] | None = None
) -> NonBlockingSetup | str:
    """Set up a communicator for non-blocking plans; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    table : TuningTable
        Tuning table that chooses plans.
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
    return NonBlockingSetup(own, nodes, passing, least_tag_spaces, places, planned_kinds(table))


def planned_kinds(table: TuningTable) -> set[str]:
    """Return the kinds of collectives that a plan has won at any size."""
    return {
        sweep.collective
        for sweep in table.sweeps
        if any(not sweep.choices[point.winner].native for point in sweep.points)
    }


def passing_messages(table: TuningTable) -> TuningTable:
    """Return a table whose winners are the fastest choices without shared memory.

    The native collective is one of these choices. A point at which no such choice was measured
    keeps its winner.
    """
    return table.replace(sweeps=tuple(_passing(sweep) for sweep in table.sweeps))


def _passing(sweep: Sweep) -> Sweep:
    usable = {label for label, choice in sweep.choices.items() if choice.transport == MESSAGES}
    return sweep.replace(points=tuple(_won_by(point, usable) for point in sweep.points))


def _won_by(point: Point, usable: set[str]) -> Point:
    if point.winner in usable:
        return point
    # The native collective comes first, so that it wins among equally fast choices.
    labels = sorted(usable & set(point.times), key=lambda label: label != NATIVE_LABEL)
    if not labels:
        return point
    best: Any = min(labels, key=lambda label: point.times[label].median_s)
    return point.replace(winner=best)
