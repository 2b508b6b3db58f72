"""Tables of a vector in slices, made from the tables of single slices.

Slice g executes a round while slice g - 1 executes the next one::

                 round 0   1   2   3   4
    slice 0            0   1   2
    slice 1                0   1   2
    slice 2                    0   1   2

Slices have no common elements, so any order of their rounds computes the same result. In this
order of rows, the messages of all ranks can be executed one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer

Table = TypeVar("Table", MessageTable, LocalTable)


def join_slices(tables: Sequence[Tables], lengths: Sequence[int]) -> Tables:
    """Return the tables of a vector, given those of its slices.

    Parameters
    ----------
    tables : sequence of Tables
        Tables of each slice as a separate vector. Slices may share them.
    lengths : sequence of int
        Elements of each slice.
    """
    messages, steps, phases = list[MessageTable](), list[LocalTable](), list[Phase]()
    first, scratch = 0, np.zeros_like(tables[0].scratch_sizes)
    for number, (own, length) in enumerate(zip(tables, lengths, strict=True)):
        place = _Place(number, len(tables), first, scratch, _first_phase(phases, own.phases))
        sent, done = own.messages, own.steps
        at_dest = {"write": sent.dest, "combine": sent.dest}
        messages.append(place.placed(sent, read=sent.source, **at_dest))
        steps.append(place.placed(done, read=done.rank, write=done.rank))
        first, scratch = first + length, scratch + own.scratch_sizes
    messages_of_all, steps_of_all = MessageTable.stack(messages), LocalTable.stack(steps)
    return Tables(
        messages_of_all.take(np.argsort(messages_of_all.round, kind="stable")),
        steps_of_all.take(np.argsort(steps_of_all.round, kind="stable")),
        scratch,
        tables[0].shared_sizes,
        tuple(phases),
    )


def _first_phase(phases: list[Phase], own: Sequence[Phase]) -> int:
    """Return the number of a slice's first phase. Add its phases unless an earlier slice has them.

    Trees are omitted, as the messages of a level are in rounds of all slices. A rank makes each
    call of a phase once, so slices share no phases with calls.
    """
    bare = [replace(phase, trees=()) for phase in own]
    has_calls = any(phase.calls for phase in own)
    for begin in range(0 if has_calls else len(phases) - len(bare) + 1):
        if phases[begin : begin + len(bare)] == bare:
            return begin
    phases += bare
    return len(phases) - len(bare)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a slice in the vector, in scratch, among the rounds and among the phases.

    Parameters
    ----------
    number, n_slices : int
        Number of the slice, and number of slices.
    first : int
        Its first element in the vector.
    scratch : ndarray, shape (n_ranks,)
        First element of its scratch space on every rank.
    phase : int
        The number of its first phase.
    """

    number: int
    n_slices: int
    first: int
    scratch: Ints
    phase: int

    def placed(self, table: Table, **ranks: Ints) -> Table:
        """Return the slice's messages or local steps in their place.

        Parameters
        ----------
        table : MessageTable or LocalTable
            Table of the slice as a separate vector.
        **ranks : ndarray, shape (n_rows,)
            For each column of pieces, such as `read`, the rank of its memory.
        """
        moved: dict[str, Any] = {
            name: self._moved(getattr(table, name), rank) for name, rank in ranks.items()
        }
        phase = table.phase + np.int16(self.phase)
        return replace(table, phase=phase, round=self._round(table.round), **moved)

    def _round(self, rounds: Ints) -> Ints:
        return np.asarray((rounds + self.number) * self.n_slices + self.number)

    def _moved(self, pieces: Pieces, rank: Ints) -> Pieces:
        in_scratch = pieces.buffer == Buffer.SCRATCH
        by = np.where(in_scratch, self.scratch[rank[pieces.owner]], self.first)
        return replace(pieces, offset=pieces.offset + by)
