"""Tables of messages and local steps, with a row for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.plan import pieces
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces


class RowTable:
    """Columns of rows: arrays, and `Pieces` with a row each."""

    @classmethod
    def stack(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of all tables, one table after another."""
        stacked: dict[str, Any] = {}
        for name in vars(tables[0]):
            parts: list[Any] = [getattr(table, name) for table in tables]
            is_pieces = isinstance(parts[0], Pieces)
            stacked[name] = pieces.stack(parts) if is_pieces else np.concatenate(parts)
        return cls(**stacked)

    def take(self, rows: Ints) -> Self:
        """Return the given rows, in the given order."""
        taken = {
            name: column.take(rows) if isinstance(column, Pieces) else column[rows]
            for name, column in vars(self).items()
        }
        return type(self)(**taken)

    def select(self, mask: Bools) -> Self:
        """Return the rows in `mask`."""
        return self if mask.all() else self.take(np.flatnonzero(mask))


@dataclass
class MessageTable(RowTable):
    """Messages of all rounds, in program order, with a row of each kind of pieces per message."""

    phase: Ints
    round: Ints
    source: Ints
    dest: Ints
    incoming_left: Bools
    combining: Bools
    ordered: Bools
    queue: Ints
    read: Pieces
    write: Pieces
    combine: Pieces


@dataclass
class LocalTable(RowTable):
    """Copies, reductions and calls of all rounds, in program order.

    For a reduction, `read` has the left operand, then the right one. For a call, `peer` is its
    root, or -1 if it has none, and `tag` is the first rank of its group. Both are -1 for copies and
    reductions.
    """

    phase: Ints
    round: Ints
    rank: Ints
    op: Ints
    peer: Ints
    tag: Ints
    read: Pieces
    write: Pieces


class Tables(NamedTuple):
    """Tables of messages and local steps, with the sizes of the buffers they need.

    Parameters
    ----------
    messages : MessageTable
    steps : LocalTable
    scratch_sizes : ndarray of int64, shape (n_ranks,)
        Elements of scratch per rank, without unused elements.
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Elements of every node's shared buffer.
    phases : tuple of Phase
        Phases of the messages and steps.
    n_rounds : int
        Number of rounds of all components, including rounds without steps of kept ranks.
    """

    messages: MessageTable
    steps: LocalTable
    scratch_sizes: Ints
    shared_sizes: Ints
    phases: tuple[Phase, ...]
    n_rounds: int = 0
