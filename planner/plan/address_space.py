"""A common address space for the buffers of all ranks and nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Plan


def buffer_owner(rank: Ints, buffer: Ints, rank_node: Ints) -> Ints:
    """Return the owner of a buffer that a rank accesses: the rank, or its node if it is shared."""
    is_shared = buffer == Buffer.SHARED
    return np.where(is_shared, rank_node[rank], rank) if is_shared.any() else rank


@dataclass(frozen=True, eq=False)
class AddressSpace:
    """Addresses of all buffers: those of rank 0, of rank 1, ..., then the shared ones of nodes.

    Parameters
    ----------
    start : ndarray of int64, shape (3 * n_ranks + n_nodes + 1,)
        The first address of every buffer, and the one past the last.
    rank_node : ndarray, shape (n_ranks,)
    base : ndarray of int64, shape (n_ranks, 4)
        The first address of each `Buffer` of each rank.
    """

    start: Ints
    rank_node: Ints
    base: Ints

    @classmethod
    def of_plan(cls, plan: Plan) -> AddressSpace:
        """Lay out the buffers of a plan."""
        start = csr.running_total(np.concatenate((plan.buffer_sizes.ravel(), plan.shared_sizes)))
        own = start[: plan.buffer_sizes.size].reshape(plan.buffer_sizes.shape)
        shared = start[own.size + plan.rank_node]
        return cls(start, plan.rank_node, np.column_stack((own, shared)))

    def number(self, rank: Ints, buffer: Ints) -> Ints:
        """Return the numbers of buffers, which are indices of `start`."""
        own = rank * int(Buffer.SHARED) + buffer
        shared = len(self.rank_node) * int(Buffer.SHARED) + self.rank_node[rank]
        return np.where(buffer == Buffer.SHARED, shared, own).astype(np.int64)

    def number_at(self, address: Ints) -> Ints:
        """Return the number of the buffer that contains each address."""
        return last_at_or_below(self.start, address)

    def blocks(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the row, the first address and the end of every contiguous block.

        Parameters
        ----------
        pieces : Pieces
        rank : ndarray, shape (n_rows,)
            The rank that accesses each row.
        """
        row, buffer, low, high = pieces.blocks()
        base = self.base[rank[row], buffer]
        return row, base + low, base + high

    def hulls(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints]:
        """Return the first address and the end of every piece."""
        low, high = pieces.hulls()
        base = self.base[rank[pieces.owner], pieces.buffer]
        return base + low, base + high

    def split_sizes(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return sizes of all buffers as the `buffer_sizes` and `shared_sizes` of a plan."""
        n_own = len(self.rank_node) * int(Buffer.SHARED)
        return sizes[:n_own].reshape(-1, int(Buffer.SHARED)), sizes[n_own:]
