"""Memory of a program's plan: where the buffers of steps lie in that of the program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs.programs.buffers import BufferRange
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import ProgramStep

LINE_BYTES: Final = 64
"""Buffers of a program begin at multiples of this number of bytes, and of the sizes of elements."""


@dataclass(frozen=True, eq=False)
class ProgramMemory:
    """Buffers of a program, one after another in the receive buffer of its plan.

    Scratch and shared memory of steps lie one after another in those of the plan.

    Parameters
    ----------
    program : ProgramSpec
    n_ranks, n_nodes : int
        Number of ranks and nodes in the plan: those of one node if it is folded.
    scratch : ndarray of int64, shape (n_ranks,)
        Number of elements of scratch that steps have on each rank so far.
    shared : ndarray of int64, shape (n_nodes,)
        The same of the shared memory of each node.
    """

    program: ProgramSpec
    n_ranks: int = 0
    n_nodes: int = 0
    scratch: Ints = field(init=False)
    shared: Ints = field(init=False)

    def __post_init__(self) -> None:
        vars(self)["scratch"] = np.zeros(self.n_ranks, dtype=np.int64)
        vars(self)["shared"] = np.zeros(self.n_nodes, dtype=np.int64)

    def places(self) -> dict[str, int]:
        """Return the first element of each buffer in the receive buffer of the plan."""
        ends = self._ends()
        return dict(zip(self.program.buffers, ends, strict=False))

    @property
    def n_elements(self) -> int:
        """Return the number of elements of all buffers together."""
        return self._ends()[-1]

    def _ends(self) -> list[int]:
        unit, buffers = self.program.itemsize, self.program.buffers.values()
        # The places in bytes are the same, whichever of its steps a program has.
        line = math.lcm(LINE_BYTES, *(buffer.itemsize for buffer in buffers)) // unit
        ends = [0]
        for buffer in buffers:
            n = buffer.count * (buffer.itemsize // unit)
            ends.append(-(-(ends[-1] + n) // line) * line)
        return ends

    def scale(self, name: str) -> int:
        """Return the number of elements of the plan that form an element of a buffer."""
        return self.program.buffers[name].itemsize // self.program.itemsize

    def bounds(self, one: BufferRange) -> tuple[int, int]:
        """Return the first element of a range, and the one past the last, in the plan's buffer."""
        first, end = one.bounds(self.program.buffers[one.buffer].count)
        place, scale = self.places()[one.buffer], self.scale(one.buffer)
        return place + first * scale, place + end * scale

    def take(self, plan: Plan, ranks: Ints, nodes: Ints) -> tuple[Ints, Ints]:
        """Reserve the scratch and shared memory of a step's plan; return where they begin.

        Parameters
        ----------
        plan : Plan
            Plan of one group.
        ranks, nodes : ndarray of int
            Ranks and nodes of the program for those of the plan.

        Returns
        -------
        scratch : ndarray of int64, shape (plan.n_ranks,)
        shared : ndarray of int64, shape (plan.n_nodes,)
        """
        scale = plan.itemsize // self.program.itemsize
        begin = self.scratch[ranks], self.shared[nodes]
        self.scratch[ranks] += plan.buffer_sizes[:, Buffer.SCRATCH] * scale
        self.shared[nodes] += plan.shared_sizes * scale
        return begin

    def moved(
        self,
        pieces: Pieces,
        plan: Plan,
        step: ProgramStep,
        begin: tuple[Ints, Ints],
    ) -> Pieces:
        """Return the accesses of a step's tasks in the memory of the program.

        Parameters
        ----------
        pieces : Pieces
            What the tasks of the step's plan read or write, one row for each task.
        plan : Plan
        step : ProgramStep
        begin : tuple of ndarray
            Beginnings of scratch and shared memory, as `take` returns them.
        """
        scale = plan.itemsize // self.program.itemsize
        rank = plan.rank[pieces.owner]
        buffer, offset, count, stride, repeat = pieces.columns()
        scratch, shared = begin[0][rank], begin[1][plan.rank_node[rank]]
        sent, received = (
            0 if one is None else self.bounds(one)[0] for one in (step.send, step.receive)
        )
        base = np.select(
            [buffer == Buffer.SEND, buffer == Buffer.RECV, buffer == Buffer.SCRATCH],
            [np.full(len(rank), sent), np.full(len(rank), received), scratch],
            shared,
        )
        place = np.where(buffer == Buffer.SEND, Buffer.RECV, buffer).astype(np.int8)
        if scale > 1:
            count, stride = count * scale, stride * scale
        return Pieces(pieces.indptr, place, offset * scale + base, count, stride, repeat)

    def ranges(self, found: tuple[BufferRange, ...], n_rows: int) -> Pieces:
        """Return rows of equal pieces: the ranges that a computation reads or writes."""
        bounds = np.array([self.bounds(one) for one in found], dtype=np.int64).reshape(-1, 2)
        first, end = (np.tile(side, n_rows) for side in bounds.T)
        indptr = np.arange(n_rows + 1) * len(found)
        nothing, once = (csr.repeated(np.array([one]), len(first)) for one in (0, 1))
        buffer = np.full(len(first), Buffer.RECV, dtype=np.int8)
        return Pieces(indptr, buffer, first, end - first, nothing, once)
