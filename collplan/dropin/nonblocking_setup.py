"""What non-blocking collectives need that takes all ranks: made when a communicator is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.instances import n_tag_spaces
from collplan.executors.mpi.host.cores import ranks_per_core, share_cores_as
from collplan.measure.lanes import node_of_ranks
from collplan.specs.request import MESSAGES
from collplan.tune.sweep import NATIVE_LABEL, Point, Sweep
from collplan.tune.table import Placement, TuningTable

LEAST_TAG_SPACES: Final = 64
"""How many collectives have to be kept apart by tags at least."""
NO_THREADS: Final = "non-blocking: plans need MPI initialised with MPI_THREAD_MULTIPLE"
FEW_TAGS: Final = "non-blocking: this MPI has too few tags to keep collectives apart"
NOT_MADE: Final = "non-blocking: the communicator was made by a call that waits for nobody"


@dataclass(eq=False)
class Ground:
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
    """

    comm: MPI.Intracomm
    rank_to_node: list[int]
    table: TuningTable
    n_tag_spaces: int

    @cached_property
    def placement(self) -> Placement:
        """Return where ranks are."""
        return Placement.of_nodes(self.rank_to_node)

    def below(self, made: MPI.Intracomm) -> Ground:
        """Return the same for a communicator of some of these ranks; collective over that."""
        group, whole = made.Get_group(), self.comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, None, whole)
        nodes = [self.rank_to_node[rank] for rank in ranks]
        whole.Free()
        comm = _own(made, group)
        share_cores_as(comm, self.comm)
        return Ground(comm, nodes, self.table, self.n_tag_spaces)


def lay_ground(comm: MPI.Intracomm, table: TuningTable) -> Ground | str:
    """Make what non-blocking collectives need, or say why they cannot be planned; collective."""
    mine = np.array([MPI.Query_thread() == MPI.THREAD_MULTIPLE, n_tag_spaces(comm)])
    comm.Allreduce(MPI.IN_PLACE, mine, MPI.MIN)
    if not mine[0]:
        return NO_THREADS
    if mine[1] < LEAST_TAG_SPACES:
        return FEW_TAGS
    own = _own(comm, comm.Get_group())
    ranks_per_core(own)
    return Ground(own, node_of_ranks(own), passing_messages(table), int(mine[1]))


def _own(comm: MPI.Intracomm, group: MPI.Group) -> MPI.Intracomm:
    """Return a communicator of the same ranks; a duplicate would copy the user's attributes."""
    own = cast("MPI.Intracomm", comm.Create(group))
    group.Free()
    own.Set_errhandler(MPI.ERRORS_RETURN)
    return own


def passing_messages(table: TuningTable) -> TuningTable:
    """Return a table whose winners are the best of those that pass messages, and of native."""
    return table.replace(sweeps=tuple(_passing(sweep) for sweep in table.sweeps))


def _passing(sweep: Sweep) -> Sweep:
    usable = {label for label, choice in sweep.choices.items() if choice.transport == MESSAGES}
    points = [_won_by(point, usable) for point in sweep.points]
    return sweep if points == list(sweep.points) else sweep.replace(points=tuple(points))


def _won_by(point: Point, usable: set[str]) -> Point:
    if point.winner in usable:
        return point
    # Native first: it stays unless another is faster.
    labels = sorted(usable & set(point.times), key=lambda label: label != NATIVE_LABEL)
    if not labels:
        return point
    best: Any = min(labels, key=lambda label: point.times[label].median_s)
    return point.replace(winner=best)
