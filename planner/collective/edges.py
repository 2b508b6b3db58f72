"""Blocks that the edges of a graph send between places, which are ranks or nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.specs.collectives.graphs import EdgeLayout


class OuterBlocks(NamedTuple):
    """Different blocks of edges between places.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n_blocks,)
        Places from which and to which each block is sent. A block that several ranks of a place
        receive is one block.
    counts : ndarray of int64, shape (n_blocks,)
        Number of elements.
    is_first : ndarray of bool, shape (n_blocks,)
        False if the same block is sent to another place, too, which precedes.
    """

    source: Ints
    dest: Ints
    counts: Ints
    is_first: Bools

    @property
    def entering(self) -> tuple[Ints, Ints]:
        """Return the place and the number of elements of every block that enters a place."""
        return self.dest, self.counts

    @property
    def leaving(self) -> tuple[Ints, Ints]:
        """Return the place and the number of elements of every block that leaves a place."""
        return self.source[self.is_first], self.counts[self.is_first]


def blocks_between(edges: EdgeLayout, rank_to_place: Ints) -> OuterBlocks:
    """Return the different blocks of edges that cross the borders of places.

    Parameters
    ----------
    edges : EdgeLayout
    rank_to_place : ndarray of int64, shape (n_ranks,)
    """
    places = rank_to_place[edges.source], rank_to_place[edges.dest]
    outer = np.flatnonzero((places[0] != places[1]) & (edges.counts > 0))
    columns = places[1], edges.counts, edges.given, edges.source
    keys = [column[outer] for column in columns]
    order = np.lexsort(keys)
    dest, counts, given, source = (key[order] for key in keys)
    one = csr.run_bounds(source, given, counts, dest)[:-1]
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[csr.run_bounds(source, given, counts)[:-1]] = True
    return OuterBlocks(rank_to_place[source[one]], dest[one], counts[one], is_first[one])
