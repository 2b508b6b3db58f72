"""The folding of a plan: how one node's tasks stand for those of all nodes."""

from __future__ import annotations

from dataclasses import dataclass

from collplan.planner.arrays import Ints
from collplan.planner.arrays.motion import Motion


@dataclass(frozen=True, eq=False)
class Folding:
    """A motion of ranks by whole nodes, and how it moves the elements of contributions.

    Parameters
    ----------
    motion : Motion
        Of all ranks; its blocks are nodes.
    turns : ndarray of int64, shape (n_turns, 3)
        First element, number of elements and step of intervals of the collective's vector
        whose elements are moved along: with the n-th node, by n steps around the
        interval, or with XOR as blocks of a step. Intervals are ascending and disjoint.
        Elements of no interval are the same on all nodes.
    """

    motion: Motion
    turns: Ints
