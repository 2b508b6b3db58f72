"""The MPI library's own collectives, as an algorithm of every collective."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from collplan.planner.algorithms.registry import Algorithm, registry
from collplan.planner.algorithms.rounds import (
    INPUT,
    OUTPUT,
    Call,
    Chunks,
    Copy,
    Group,
    Round,
    Rounds,
    at,
)
from collplan.planner.arrays import Ints
from collplan.planner.plan.phases import NATIVE

Members = Literal["nobody", "all", "root", "others", "later"]
"""Positions of a group; "others" than the root, and those "later" than the first."""


class End(NamedTuple):
    """The chunks that a call reads, or writes, at the positions of its group.

    Parameters
    ----------
    members : Members
        Positions that read, or write, something.
    space : int
    is_own : bool
        Whether that is a position's own chunk, and not the whole space.
    """

    members: Members
    space: int
    is_own: bool = False

    def chunks(self, group: Group) -> Chunks:
        """Return the chunks at each position."""
        me = np.arange(group.size)
        n_each = 1 if self.is_own else group.n_chunks
        n = np.where(_is_among(self.members, me, group.root), n_each, 0)
        return at(self.space, me if self.is_own else 0, n)


def _is_among(members: Members, me: Ints, root: int) -> Ints:
    found = {
        "nobody": np.zeros_like(me),
        "all": np.ones_like(me),
        "root": me == root,
        "others": me != root,
        "later": me > 0,
    }
    return np.asarray(found[members])


_ENDS: Final[dict[str, tuple[End, End]]] = {
    "allgather": (End("all", INPUT, is_own=True), End("all", OUTPUT)),
    "allreduce": (End("all", INPUT), End("all", OUTPUT)),
    "alltoall": (End("all", INPUT), End("all", OUTPUT)),
    "barrier": (End("nobody", INPUT), End("nobody", OUTPUT)),
    "bcast": (End("root", OUTPUT), End("others", OUTPUT)),
    "exscan": (End("all", INPUT), End("later", OUTPUT)),
    "gather": (End("all", INPUT, is_own=True), End("root", OUTPUT)),
    "reduce": (End("all", INPUT), End("root", OUTPUT)),
    "reduce_scatter_block": (End("all", INPUT), End("all", OUTPUT, is_own=True)),
    "scan": (End("all", INPUT), End("all", OUTPUT)),
    "scatter": (End("root", INPUT), End("others", OUTPUT, is_own=True)),
}
"""The ends of every collective: chunks that are read, and those that are written."""


def _rounds_of(kind: str) -> Algorithm:
    reads, writes = _ENDS[kind]

    def native(group: Group) -> Rounds:
        """Call the MPI library's own collective on a communicator of the group.

        Notes
        -----
        One round. The library decides what it sends, and in how many rounds; models price the
        algorithm that MPICH chooses by default.
        """
        read, write = reads.chunks(group), writes.chunks(group)
        if group.size > 1:
            yield Round(Call(np.arange(group.size), read, write))
            if kind == "scatter":
                # The root may keep its own block where it is, and must not write there.
                own = group.root
                yield Round(Copy(own, at(INPUT, own), at(OUTPUT, own)))
        elif kind not in ("barrier", "bcast", "exscan"):
            yield Round(Copy(0, read, write))

    return Algorithm(
        kind,
        NATIVE,
        native,
        regular_only=kind == "alltoall",
    )


for _kind in _ENDS:
    registry.add(_rounds_of(_kind))
