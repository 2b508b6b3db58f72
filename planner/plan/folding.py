"""The folding of a plan, which maps the tasks of one node to those of all nodes."""

from __future__ import annotations

from dataclasses import dataclass

from collplan.planner.arrays import Ints
from collplan.planner.arrays.motion import Motion


@dataclass(frozen=True, eq=False)
class Folding:
    """A motion of ranks by whole nodes, and the corresponding motion of elements.

    Parameters
    ----------
    motion : Motion
        Motion of all ranks. Its blocks are nodes.
    turns : ndarray of int64, shape (n_turns, 3)
        First element, number of elements and step of the intervals of the collective's vector
        whose elements move. From node 0 to node n they move by n steps around the interval, or,
        for XOR, as blocks of one step. Intervals are ascending and disjoint. Other elements are
        the same on all nodes.
    """

    motion: Motion
    turns: Ints
