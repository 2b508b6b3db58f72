"""One line of addresses for the buffers of all ranks and nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer, Plan


def buffer_owner(rank: Ints, buffer: Ints, rank_node: Ints) -> Ints:
    """Return whose buffer a rank means: its own number, or its node's for a shared buffer."""
    is_shared = buffer == Buffer.SHARED
    return np.where(is_shared, rank_node[rank], rank) if is_shared.any() else rank


@dataclass(frozen=True, eq=False)
class AddressSpace:
    """All buffers one after another: those of rank 0, of rank 1, ..., then each node's shared one.

    Parameters
    ----------
    start : ndarray of int64, shape (3 * n_ranks + n_nodes + 1,)
        The first address of every buffer, and the one past the last.
    rank_node : ndarray, shape (n_ranks,)
    base : ndarray of int64, shape (n_ranks, 4)
        The first address of what each rank calls by each `Buffer`.
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
        """Return the places of buffers on the line, as `start` numbers them."""
        own = rank * int(Buffer.SHARED) + buffer
        shared = len(self.rank_node) * int(Buffer.SHARED) + self.rank_node[rank]
        return np.where(buffer == Buffer.SHARED, shared, own).astype(np.int64)

    def number_at(self, address: Ints) -> Ints:
        """Return the number of the buffer that each address lies in."""
        return last_at_or_below(self.start, address)

    def blocks(self, pieces: Pieces, rank: Ints) -> tuple[Ints, Ints, Ints]:
        """Return every contiguous block as row, first address and the one past the last.

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
        """Return the first address of every piece and the one past its last, as `blocks` does."""
        low, high = pieces.hulls()
        base = self.base[rank[pieces.owner], pieces.buffer]
        return base + low, base + high

    def split_sizes(self, sizes: Ints) -> tuple[Ints, Ints]:
        """Return sizes of the buffers on the line as a plan's `buffer_sizes` and `shared_sizes`."""
        n_own = len(self.rank_node) * int(Buffer.SHARED)
        return sizes[:n_own].reshape(-1, int(Buffer.SHARED)), sizes[n_own:]
