"""The time of a k-nomial tree that is split between application and communication cores.

The unit is one transfer of the collective's buffer between two ranks. Level i of
the tree counts from the leaves, from 1. The S levels nearest the leaves run on
the application cores, all transfers of a level at once; the others run on the
communication cores, level after level, each folded on these few cores. If messages
grow (gather and scatter), a transfer of level i of a binomial tree moves 2^(i-1) units,
which is exact for powers of two.

The paper's tree is binomial. A tree of radix k has k - 1 levels where a binomial tree has
one: the edges of each span k^j, by the number of the child. A rank takes part in at most one
transfer per level in both. Radix 2 gives the paper's equations.

All functions are vectorised: numbers and arrays that broadcast, in, float64 out.

References
----------
Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and
dedicated cores for overlapping MPI nonblocking collectives on manycore processor,
International Journal of High Performance Computing Applications 33 (6), 2019,
section 6.2. Its equation 5 prints a plus where transfers that add up to N - 1 need
a minus; its equation 4 prints the fraction of a weak scaling, upside down for the
fixed total work it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.building_blocks.knomial_tree import spans
from collplan.planner.errors import AlgorithmError

Numbers = npt.ArrayLike
Integers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The tree of a collective, and what its transfers move.

    Parameters
    ----------
    radix : int
        At least 2; each node has up to radix - 1 children per span.
    grows : bool
        A transfer moves as many units as the largest subtree of its level has ranks, as in
        gather and scatter; else one.
    is_down : bool
        The tree leads from its root. Then the last children, of which there are the
        fewest, are in the levels nearest the leaves; else the first ones.
    """

    radix: int = 2
    grows: bool = False
    is_down: bool = False

    def units(self, level: Integers) -> Integers:
        """Return what a transfer of a level moves."""
        ones = np.ones_like(level)
        return self.radix ** ((level - 1) // (self.radix - 1)) if self.grows else ones

    def units_below(self, n_levels: Integers) -> Integers:
        """Return what one transfer of each of so many levels moves together."""
        if not self.grows:
            return n_levels
        n_full, rest = np.divmod(n_levels, self.radix - 1)
        return np.asarray((rest + 1) * self.radix**n_full - 1)


BINOMIAL: Final = TreeShape()
"""A binomial tree whose transfers move one buffer each, as of reduce and bcast."""


def shape_of(kind: str, radix: int = 2) -> TreeShape:
    """Return the shape of a collective's tree; of an allreduce, that of both its trees."""
    return TreeShape(radix, kind in ("gather", "scatter"), kind in ("bcast", "scatter"))


def tree_height(n_ranks: Numbers, radix: int = 2) -> Integers:
    """Return the levels of a tree; of a binomial tree H(N) = ceil(log2 N), equation 3.

    Below the largest span k^j of a tree of radix k there are j·(k - 1) levels, and above
    ceil(N / k^j) - 1 more.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    radix : int
        At least 2.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    AlgorithmError
        If there is no rank.

    Examples
    --------
    >>> tree_height([1, 2, 23, 64]).tolist()
    [0, 1, 5, 6]
    >>> tree_height([1, 2, 23, 64], radix=4).tolist()
    [0, 1, 7, 9]
    """
    ranks = _ranks(n_ranks)
    radix, powers = _powers(ranks, radix)
    top = np.searchsorted(powers, ranks) - 1
    highest = top * (radix - 1) + -(-ranks // powers[np.maximum(top, 0)]) - 1
    return np.asarray(np.where(ranks > 1, highest, 0), dtype=np.int64)


def transfers(n_ranks: Numbers, level: Numbers, shape: TreeShape = BINOMIAL) -> Integers:
    """Return the transfers of a level; of a binomial tree ceil(N / 2^i - 1/2), equation 5.

    Generally ceil(N / k^(j+1) - m / k) for the m-th children over the span k^j.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    level : array_like of int
        From 1; above the tree's height there are none.
    shape : TreeShape

    Returns
    -------
    ndarray of int64

    Raises
    ------
    AlgorithmError
        If there is no rank, or a level is not at least 1.

    Examples
    --------
    >>> transfers(23, [1, 2, 3, 4, 5]).tolist()
    [11, 6, 3, 1, 1]
    >>> transfers(23, [1, 2, 3, 4, 5, 6, 7], TreeShape(radix=4)).tolist()
    [6, 6, 5, 2, 1, 1, 1]
    """
    ranks, levels = _ranks(n_ranks), np.asarray(level, dtype=np.int64)
    if (levels < 1).any():
        raise AlgorithmError(f"level: {levels.min()} is not a level of a tree; use 1 or more")
    radix, powers = _powers(ranks, shape.radix)
    exponent, place = np.divmod(levels - 1, radix - 1)
    span = powers[np.minimum(exponent, len(powers) - 1)]
    child = place + 1
    if shape.is_down:
        # Over the largest span only the root has children, one per level.
        child = np.where(span * radix < ranks, radix - 1 - place, child)
    found = -(-(ranks - child * span) // (span * radix))
    return np.asarray(np.where(levels <= tree_height(ranks, radix), found, 0), dtype=np.int64)


def blocking_time(n_ranks: Numbers, shape: TreeShape = BINOMIAL) -> Times:
    """Return T_blocking(N), equation 3: all levels, each at once on the application cores.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    shape : TreeShape
        H(N) levels of one transfer; if a binomial tree grows, 2^H(N) - 1.

    Returns
    -------
    ndarray of float64
        In transfers.

    Raises
    ------
    AlgorithmError
        If there is no rank.

    Examples
    --------
    >>> blocking_time(64).tolist(), blocking_time(64, TreeShape(grows=True)).tolist()
    (6.0, 63.0)
    >>> [blocking_time(64, TreeShape(4, grows)).tolist() for grows in (False, True)]
    [9.0, 63.0]
    """
    height = tree_height(n_ranks, shape.radix)
    return np.asarray(shape.units_below(height), dtype=np.float64)


def compute_time(n_ranks: Numbers, n_cores: Numbers, shape: TreeShape = BINOMIAL) -> Times:
    """Return C(N) of a fixed total work, equation 4: N_proc / N · T_blocking(N_proc).

    On all cores, computation takes as long as the blocking collective.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    n_cores : array_like of int
        N_proc, at least 1.
    shape : TreeShape
        If it grows, equation 9.

    Returns
    -------
    ndarray of float64
        In transfers.

    Raises
    ------
    AlgorithmError
        If there is no rank or no core.

    Examples
    --------
    >>> compute_time([32, 64], 64).tolist()
    [12.0, 6.0]
    """
    cores = np.asarray(n_cores, dtype=np.float64)
    return np.asarray(cores * blocking_time(n_cores, shape) / _ranks(n_ranks))


def overlappable_time(
    n_ranks: Numbers, n_comm_cores: Numbers, levels: Numbers, shape: TreeShape = BINOMIAL
) -> Times:
    """Return the time of the levels above S, folded on communication cores.

    The sum of equations 6 to 9: a level takes ceil(F(N, i) / P) transfers.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    n_comm_cores : array_like of int
        P, at least 1.
    levels : array_like of int
        S, at least 0.
    shape : TreeShape
        If a binomial tree grows, a transfer of level i takes 2^(i-1).

    Returns
    -------
    ndarray of float64
        In transfers.

    Raises
    ------
    AlgorithmError
        If there is no rank, no communication core, or S is negative.

    Examples
    --------
    >>> overlappable_time(16, 2, [0, 1, 2]).tolist()
    [8.0, 4.0, 2.0]
    """
    way_out = "; use fewer ranks than cores"
    comm_cores = _at_least(1, "communication cores", n_comm_cores, way_out)
    ranks, comm_cores = np.broadcast_arrays(_ranks(n_ranks), comm_cores)
    highest = int(tree_height(ranks, shape.radix).max(initial=0))
    each = np.arange(1, highest + 1)
    folded = -(-transfers(ranks[..., None], each, shape) // comm_cores[..., None])
    above = np.zeros((*ranks.shape, highest + 1))
    above[..., :-1] = np.cumsum((folded * shape.units(each))[..., ::-1], axis=-1)[..., ::-1]
    split = np.minimum(_at_least(0, "levels", levels), highest)
    wanted = np.broadcast_shapes(ranks.shape, split.shape)
    above, split = np.broadcast_to(above, (*wanted, highest + 1)), np.broadcast_to(split, wanted)
    return np.asarray(np.take_along_axis(above, split[..., None], axis=-1)[..., 0])


def non_blocking_time(
    n_ranks: Numbers, n_cores: Numbers, levels: Numbers, shape: TreeShape = BINOMIAL
) -> Times:
    """Return T_non-blocking(S, N) of a collective alone, equation 6, or 8 if the tree grows.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`: the others are communication cores.
    n_cores : array_like of int
        N_proc.
    levels : array_like of int
        S, at least 0.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        In transfers.

    Raises
    ------
    AlgorithmError
        If there is no rank, no communication core, or S is negative.

    Examples
    --------
    >>> non_blocking_time(16, 18, [0, 1, 2]).tolist()
    [8.0, 5.0, 4.0]
    """
    free = np.asarray(n_cores, dtype=np.int64) - _ranks(n_ranks)
    head = _head(n_ranks, levels, shape)
    return np.asarray(head + overlappable_time(n_ranks, free, levels, shape))


def overlapped_time(
    n_ranks: Numbers, n_cores: Numbers, levels: Numbers, shape: TreeShape = BINOMIAL
) -> Times:
    """Return T_overlapped(S, N), equation 7, or 9 if the tree grows.

    The levels on application cores, then computation beside the others.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`: the others are communication cores.
    n_cores : array_like of int
        N_proc.
    levels : array_like of int
        S, at least 0.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        In transfers.

    Raises
    ------
    AlgorithmError
        If there is no rank, no communication core, or S is negative.

    Examples
    --------
    >>> overlapped_time(62, 64, [0, 3]).round(2).tolist()
    [32.0, 9.19]
    """
    free = np.asarray(n_cores, dtype=np.int64) - _ranks(n_ranks)
    behind = np.maximum(
        compute_time(n_ranks, n_cores, shape),
        overlappable_time(n_ranks, free, levels, shape),
    )
    return np.asarray(_head(n_ranks, levels, shape) + behind)


def best_levels(n_ranks: Numbers, n_cores: Numbers, shape: TreeShape = BINOMIAL) -> Integers:
    """Return the S of the least T_overlapped, ties to fewer levels.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`.
    n_cores : array_like of int
        N_proc.
    shape : TreeShape

    Returns
    -------
    ndarray of int64
        S, 0 to the tree's height.

    Raises
    ------
    AlgorithmError
        If there is no rank or no communication core.

    Examples
    --------
    >>> best_levels([51, 57, 60, 62], 64).tolist()
    [0, 1, 2, 3]
    """
    ranks, cores = np.broadcast_arrays(_ranks(n_ranks), np.asarray(n_cores, dtype=np.int64))
    levels = np.arange(int(tree_height(ranks, shape.radix).max(initial=0)) + 1)
    times = overlapped_time(ranks[..., None], cores[..., None], levels, shape)
    return np.asarray(times.argmin(axis=-1), dtype=np.int64)


def _head(n_ranks: Numbers, levels: Numbers, shape: TreeShape) -> Times:
    """Return the time of the S levels nearest the leaves."""
    height = tree_height(n_ranks, shape.radix)
    n_levels = np.minimum(_at_least(0, "levels", levels), height)
    return np.asarray(shape.units_below(n_levels), dtype=np.float64)


def _powers(ranks: Integers, radix: int) -> tuple[int, Integers]:
    """Return the radix, no larger than needed, and its powers below the most ranks."""
    most = int(ranks.max(initial=1))
    radix = min(radix, max(2, most))
    return radix, np.array(spans(most, radix) or [1], dtype=np.int64)


def _ranks(n_ranks: Numbers) -> Integers:
    return _at_least(1, "ranks", n_ranks)


def _at_least(least: int, name: str, values: Numbers, way_out: str = "") -> Integers:
    """Return numbers as an array; raise where one is less than the least that there can be."""
    array = np.asarray(values, dtype=np.int64)
    if (array < least).any():
        raise AlgorithmError(f"{name}: {array.min()} is not at least {least}{way_out}")
    return array
