"""Setup of non-blocking collectives: what a communicator needs before they can be planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""Least number of concurrent collectives that tags must distinguish."""
NO_THREADS: Final = "non-blocking: plans need MPI initialised with MPI_THREAD_MULTIPLE"
FEW_TAGS: Final = "non-blocking: this MPI has too few tags to keep collectives apart"


@dataclass(eq=False)
class NonBlockingSetup:
    """A communicator for messages of plans in flight, and where its ranks are.

    Parameters
    ----------
    comm : MPI.Intracomm
        Nobody else uses it.
    rank_to_node : list of int
        Equal for ranks of one node.
    table : TuningTable
        Whose winners pass messages only: ranks cannot share memory without meeting for it.
    n_tag_spaces : int
        How many programs' messages tags keep apart, the same on all ranks.
    places : ProgressPlaces
        Where the thread that advances this rank's programs runs.
    """

    comm: MPI.Intracomm
    rank_to_node: list[int]
    table: TuningTable
    n_tag_spaces: int
    places: ProgressPlaces

    def below(self, made: MPI.Intracomm) -> NonBlockingSetup:
        """Return the same for a communicator of some of these ranks; collective over that."""
        group, whole = made.Get_group(), self.comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, None, whole)
        nodes = [self.rank_to_node[rank] for rank in ranks]
        whole.Free()
        group.Free()
        comm = own_communicator(made)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        share_cores_as(comm, self.comm)
        return NonBlockingSetup(comm, nodes, self.table, self.n_tag_spaces, self.places)


def set_up_nonblocking(
    comm: MPI.Intracomm, table: TuningTable, cores: Sequence[int] | None = None
) -> NonBlockingSetup | str:
    """Make what non-blocking collectives need, or say why they cannot be planned; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        The ranks.
    table : TuningTable
        Where winners are.
    cores : sequence of int, optional
        The processor of each core of a node, the same on all ranks.

    Raises
    ------
    CollplanError
        On all ranks, if there are fewer cores than ranks, or ranks may not use them.
    """
    mine = np.array([MPI.Query_thread() == MPI.THREAD_MULTIPLE, n_tag_spaces(comm)])
    comm.Allreduce(MPI.IN_PLACE, mine, MPI.MIN)
    if not mine[0]:
        return NO_THREADS
    if mine[1] < LEAST_TAG_SPACES:
        return FEW_TAGS
    own = own_communicator(comm)
    own.Set_errhandler(MPI.ERRORS_RETURN)
    ranks_per_core(own)
    nodes = node_of_ranks(own)
    places = find_places(own, nodes, cores, table.numa_domains)
    return NonBlockingSetup(own, nodes, passing_messages(table), int(mine[1]), places)


def passing_messages(table: TuningTable) -> TuningTable:
    """Return a table whose winners are the best of those that pass messages, and of native."""
    return table.replace(sweeps=tuple(_passing(sweep) for sweep in table.sweeps))


def _passing(sweep: Sweep) -> Sweep:
    usable = {label for label, choice in sweep.choices.items() if choice.transport == MESSAGES}
    return sweep.replace(points=tuple(_won_by(point, usable) for point in sweep.points))


def _won_by(point: Point, usable: set[str]) -> Point:
    if point.winner in usable:
        return point
    # Native first: it stays unless another is faster.
    labels = sorted(usable & set(point.times), key=lambda label: label != NATIVE_LABEL)
    if not labels:
        return point
    best: Any = min(labels, key=lambda label: point.times[label].median_s)
    return point.replace(winner=best)
