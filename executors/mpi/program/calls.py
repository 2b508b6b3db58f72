"""Calls of MPI's own collectives: their communicators and the arguments of their functions.

Each call has its own communicator, which is used for nothing else. Therefore calls can start in
any order, as long as all ranks start the plan equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.loop.entries import address_of
from collplan.executors.mpi.loop.records import CALL
from collplan.executors.mpi.program.elements import Elements
from collplan.executors.mpi.program.messages import LARGEST_COUNT, handle_of
from collplan.executors.mpi.program.program import Program
from collplan.planner.arrays import Array
from collplan.planner.plan.phases import GroupCall
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.ragged import Extents
from collplan.planner.rewrite.calls import COMBINING

Argument = int | str
"""A number, or the name of an argument that is known only when the call starts."""
SENT, RECEIVED, REQUEST = "sent", "received", "request"

TAG: Final = 0
"""Tag for the creation of communicators, during which there are no other messages."""


class _Own(NamedTuple):
    """Data of a call on one rank.

    Parameters
    ----------
    kind : str
        Kind of the collective.
    comm : MPI.Intracomm
        Communicator of the group. Positions in the group are ranks of the communicator.
    root : int
        Position of the root, -1 if there is none.
    n_read, n_written : int
        Numbers of elements that this rank reads and writes.
    blocks : sequence of int
        Number of elements of the block of every position; empty if no function needs them.
    """

    kind: str
    comm: MPI.Intracomm
    root: int
    n_read: int
    n_written: int
    blocks: Sequence[int]


class Calls:
    """Calls of a program, with their communicators; collective.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or this rank's program.
    program : Program
        Program of this rank.
    comm : MPI.Intracomm
        Communicator of the plan's ranks, which only this plan uses.
    elements : Elements
        Elements of the plan, which are freed with the calls.

    Attributes
    ----------
    table : ndarray of CALL, shape (n_calls,)
        Functions and arguments of the calls, for the compiled loop.

    Notes
    -----
    `check_counts` must have accepted the program on all ranks, as an error of one rank here would
    let the others wait for it.
    """

    def __init__(
        self, plan: Plan, program: Program, comm: MPI.Intracomm, elements: Elements
    ) -> None:
        self._comms: list[MPI.Intracomm] = []
        self._kept: list[Array] = []
        self._elements = elements
        made = calls_in_order(plan, program)
        self.table = np.zeros(len(made), dtype=CALL)
        for row, task, kind, call in made:
            own = self._meet(kind, call, program, task, comm)
            self._fill(self.table[row : row + 1], own, program, task)

    def free(self) -> None:
        """Free the communicators, datatypes and operations; collective."""
        for comm in self._comms:
            comm.Free()
        self._comms.clear()
        self._elements.free()

    def _meet(
        self, kind: str, call: GroupCall, program: Program, task: int, comm: MPI.Intracomm
    ) -> _Own:
        """Create the communicator of a group, and exchange the sizes of its blocks; collective."""
        everybody = comm.Get_group()
        group = everybody.Incl(call.members)
        own_comm = comm.Create_group(group, TAG)
        own_comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._comms.append(own_comm)
        group.Free()
        everybody.Free()
        n_read, n_written = (n_elements(side, task) for side in (program.reads, program.writes))
        root = int(program.peer[task])
        position = NONE if root == NONE else call.members.index(root)
        blocks: list[int] = []
        if kind in ("allgather", "gather"):
            blocks = own_comm.allgather(n_read)
        elif kind in ("scatter", "reduce_scatter_block"):
            blocks = own_comm.allgather(n_written)
            if kind == "scatter":
                blocks[position] = own_comm.bcast(n_read, position) - sum(blocks)
        return _Own(kind, own_comm, position, n_read, n_written, blocks)

    def _fill(self, row: Array, own: _Own, program: Program, task: int) -> None:
        """Fill in the function and the arguments of a call in its row of the table."""
        name, arguments = self._arguments(own, program.itemsize)
        row["function"] = address_of(f"MPI_{name}", MPI.__file__)
        row["sent_at"] = row["received_at"] = NONE
        places = {SENT: program.reads, RECEIVED: program.writes}
        for i, argument in enumerate(arguments):
            if argument == REQUEST:
                row["request_at"] = i
            elif isinstance(argument, str):
                _fill_place(row, argument, i, places[argument], program, task)
            else:
                row[f"a{i}"] = argument

    def _arguments(self, own: _Own, itemsize: int) -> tuple[str, tuple[Argument, ...]]:
        """Return the name of the MPI function without its prefix, and its arguments."""
        kind, root = own.kind, own.root
        comm, element = handle_of(own.comm), handle_of(self._elements.datatype)
        end = (comm, REQUEST) if root == NONE else (root, comm, REQUEST)
        if kind == "barrier":
            return "Ibarrier", end
        if kind == "bcast":
            is_root = own.comm.rank == root
            buffer, n = (SENT, own.n_read) if is_root else (RECEIVED, own.n_written)
            return "Ibcast", (buffer, n, element, *end)
        if kind == "alltoall":
            n = own.n_read // own.comm.size
            return "Ialltoall", (SENT, n, element, RECEIVED, n, element, *end)
        counts, displs = self._layout(own.blocks)
        is_even = len(set(own.blocks)) < 2
        if kind in COMBINING:
            assert self._elements.operation is not None
            end = (handle_of(self._elements.operation), *end)
            if kind == "reduce_scatter_block" and not is_even:
                return "Ireduce_scatter", (SENT, RECEIVED, counts, element, *end)
            n = own.n_written if kind == "reduce_scatter_block" else own.n_read
            received: Argument = RECEIVED
            if kind == "exscan" and not own.n_written:
                # The first rank has no result, but MPI still requires memory.
                self._kept.append(np.empty(n * itemsize, dtype=np.uint8))
                received = self._kept[-1].ctypes.data
            return f"I{kind}", (SENT, received, n, element, *end)
        if kind == "scatter":
            own_place = int(MPI.IN_PLACE) if own.comm.rank == root else RECEIVED
            n = own.blocks[own.comm.rank]
            if is_even:
                return "Iscatter", (SENT, n, element, own_place, n, element, *end)
            return "Iscatterv", (SENT, counts, displs, element, own_place, n, element, *end)
        n = own.n_read
        if is_even:
            return f"I{kind}", (SENT, n, element, RECEIVED, n, element, *end)
        return f"I{kind}v", (SENT, n, element, RECEIVED, counts, displs, element, *end)

    def _layout(self, blocks: Sequence[int]) -> tuple[int, int]:
        """Return the addresses of arrays of the blocks' sizes and displacements."""
        counts = np.array(blocks, dtype=np.intc)
        displs = (np.cumsum(blocks) - counts).astype(np.intc)
        self._kept += [counts, displs]
        return counts.ctypes.data, displs.ctypes.data


def calls_in_order(plan: Plan, program: Program) -> list[tuple[int, int, str, GroupCall]]:
    """Return the calls of a rank in the order in which ranks create communicators for them.

    The order is the same on all ranks of a group, so that they cannot deadlock.

    Returns
    -------
    list of (int, int, str, GroupCall)
        For each call, its number among the calls in the order of tasks, its task, its kind and its
        group.
    """
    tasks = np.flatnonzero(program.op == Op.CALL).tolist()
    keys = [(int(plan.phase[program.row[task]]), int(program.tag[task])) for task in tasks]
    found = []
    for i in sorted(range(len(tasks)), key=keys.__getitem__):
        phase, rank = plan.phases[keys[i][0]], int(plan.rank[program.row[tasks[i]]])
        found.append((i, tasks[i], phase.kind, phase.call_of(rank, keys[i][1])))
    return found


def check_counts(program: Program) -> None:
    """Check the counts of all calls of a program; not collective.

    Raises
    ------
    UnsupportedPlanError
        If a call has more elements than an MPI function with int counts takes.
    """
    for task in np.flatnonzero(program.op == Op.CALL).tolist():
        most = max(n_elements(side, task) for side in (program.reads, program.writes))
        if most > LARGEST_COUNT:
            raise UnsupportedPlanError(
                f"task #{program.row[task]} calls MPI with {most} elements, more than the "
                f"{LARGEST_COUNT} that a call takes; use another algorithm than native"
            )


def n_elements(side: Extents, task: int) -> int:
    """Return the number of elements that a task reads or writes."""
    begin, end = side.indptr[task : task + 2].tolist()
    return int(side.count[begin:end].sum())


def _fill_place(row: Array, name: str, at: int, side: Extents, program: Program, task: int) -> None:
    """Fill in the place of an argument's memory, unless the task reads or writes no memory."""
    entry = int(side.indptr[task])
    has_memory = entry < side.indptr[task + 1]
    if has_memory:
        row[f"{name}_at"] = at
        row[f"{name}_buffer"] = side.buffer[entry]
        row[f"{name}_offset"] = side.offset[entry] * program.itemsize
