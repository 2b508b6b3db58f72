"""Time of a k-nomial tree that is split between application cores and communication cores.

The unit of time is one transfer of the collective's buffer between two ranks. Levels are numbered
from 1 at the leaves. The S levels nearest the leaves run on the application cores, where all
transfers of a level run at the same time. The other levels run on the P communication cores, one
level after another, and each takes as many rounds as P cores need for its transfers. If messages
grow (gather and scatter), a transfer of level i of a binomial tree moves 2^(i-1) units, which is
exact for powers of two.

The tree of the paper is binomial. A tree of radix k has k - 1 levels for each level of a binomial
tree: the edges of each span k^j, by the number of the child. In both, a rank takes part in at most
one transfer per level. Radix 2 gives the equations of the paper.

All functions are vectorized. They take numbers or arrays that can be broadcast.

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

from collplan.planner.algorithms.building_blocks.trees import spans
from collplan.planner.errors import AlgorithmError

Numbers = npt.ArrayLike
Integers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Shape of the tree of a collective, and the sizes of its transfers.

    Parameters
    ----------
    radix : int
        Radix k of the tree, at least 2. A node has up to k - 1 children per span.
    grows : bool
        Whether a transfer moves as many units as the largest subtree of its level has ranks, as in
        gather and scatter. Otherwise, it moves one unit.
    is_down : bool
        Whether the tree leads from its root. If so, the last children of a span, which are the
        fewest, are in its level nearest the leaves. Otherwise, the first children are.
    prefix : {"", "scan", "exscan"}
        If not empty, the shape is that of the binomial trees of this collective, which compute
        prefixes at all ranks: one tree up to the last rank of every power of two, and one down from
        these. An exscan is the scan of all ranks except the last one, and a further level down, in
        which every rank sends to the next rank.
    """

    radix: int = 2
    grows: bool = False
    is_down: bool = False
    prefix: str = ""

    def height(self, n_ranks: Numbers) -> Integers:
        """Return the number of levels."""
        if not self.prefix:
            return tree_height(n_ranks, self.radix)
        each = np.arange(1, _MOST_LEVELS + 1)
        counts = _prefix_transfers(_ranks(n_ranks)[..., None], each, self)
        return np.asarray((counts > 0).sum(axis=-1), dtype=np.int64)

    def units(self, level: Integers) -> Integers:
        """Return the number of units that a transfer of a level moves."""
        ones = np.ones_like(level)
        return self.radix ** ((level - 1) // (self.radix - 1)) if self.grows else ones

    def units_below(self, n_levels: Integers) -> Integers:
        """Return the sum of the units of one transfer of each of the lowest `n_levels` levels."""
        if not self.grows:
            return n_levels
        n_full, rest = np.divmod(n_levels, self.radix - 1)
        return np.asarray((rest + 1) * self.radix**n_full - 1)


_MOST_LEVELS: Final = 62
"""Largest height of a binomial tree whose number of ranks is an int64."""
BINOMIAL: Final = TreeShape()
"""A binomial tree whose transfers move one unit each, as in reduce and bcast."""


def shapes_of(kind: str, radix: int = 2) -> tuple[TreeShape, ...]:
    """Return the shapes of the successive trees of a collective.

    Parameters
    ----------
    kind : str
        Kind of the collective. Each tree of an allreduce, scan or exscan has a shape.
    radix : int
        Radix of the trees, at least 2. Those of scan and exscan are binomial.
    """
    if kind == "allreduce":
        return shape_of("reduce", radix), shape_of("bcast", radix)
    if kind in ("scan", "exscan"):
        return TreeShape(prefix=kind), TreeShape(prefix=kind, is_down=True)
    return (shape_of(kind, radix),)


def shape_of(kind: str, radix: int = 2) -> TreeShape:
    """Return the shape of the tree of a collective that has one tree.

    Parameters
    ----------
    kind : str
    radix : int
        At least 2.
    """
    return TreeShape(radix, kind in ("gather", "scatter"), kind in ("bcast", "scatter"))


def tree_height(n_ranks: Numbers, radix: int = 2) -> Integers:
    """Return the number of levels of a tree.

    For a binomial tree, H(N) = ceil(log2 N), equation 3. A tree of radix k with largest span k^j
    has j·(k - 1) levels of smaller spans, and ceil(N / k^j) - 1 levels of this span.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1.
    radix : int
        Radix k, at least 2.

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
    """Return the number of transfers of a level.

    For a binomial tree, F(N, i) = ceil(N / 2^i - 1/2), equation 5. In general, it is
    ceil(N / k^(j+1) - m / k) for the level of the m-th children of span k^j.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1.
    level : array_like of int
        Level i, at least 1. Levels above the height of the tree have no transfers.
    shape : TreeShape

    Returns
    -------
    ndarray of int64

    Raises
    ------
    AlgorithmError
        If a number of ranks or a level is less than 1.

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
    if shape.prefix:
        return _prefix_transfers(ranks, levels, shape)
    radix, powers = _powers(ranks, shape.radix)
    exponent, place = np.divmod(levels - 1, radix - 1)
    span = powers[np.minimum(exponent, len(powers) - 1)]
    child = place + 1
    if shape.is_down:
        # In the largest span, only the root has children, one per level.
        child = np.where(span * radix < ranks, radix - 1 - place, child)
    found = -(-(ranks - child * span) // (span * radix))
    return np.asarray(np.where(levels <= tree_height(ranks, radix), found, 0), dtype=np.int64)


def blocking_time(n_ranks: Numbers, shape: TreeShape = BINOMIAL) -> Times:
    """Return T_blocking(N), equation 3: the time if all levels run on the application cores.

    This is H(N) for a binomial tree, and 2^H(N) - 1 for one that grows.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        Time in transfers.

    Raises
    ------
    AlgorithmError
        If a number of ranks is less than 1.

    Examples
    --------
    >>> blocking_time(64).tolist(), blocking_time(64, TreeShape(grows=True)).tolist()
    (6.0, 63.0)
    >>> [blocking_time(64, TreeShape(4, grows)).tolist() for grows in (False, True)]
    [9.0, 63.0]
    """
    return np.asarray(shape.units_below(shape.height(n_ranks)), dtype=np.float64)


def compute_time(n_ranks: Numbers, n_cores: Numbers, shape: TreeShape = BINOMIAL) -> Times:
    """Return the time C(N) of the computation, for a fixed total work.

    C(N) = N_proc / N · T_blocking(N_proc), equation 4. On all N_proc cores, the computation takes
    as long as the blocking collective. If the tree grows, this is the computation of equation 9.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1.
    n_cores : array_like of int
        Number of cores N_proc, at least 1.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        Time in transfers.

    Raises
    ------
    AlgorithmError
        If a number of ranks or cores is less than 1.

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
    """Return the time of the levels above S on the communication cores.

    This is the sum over i > S of ceil(F(N, i) / P), as in equations 6 and 7. If a binomial tree
    grows, each term is multiplied by 2^(i-1), as in equations 8 and 9.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1.
    n_comm_cores : array_like of int
        Number of communication cores P, at least 1.
    levels : array_like of int
        Number S of levels on application cores, at least 0.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        Time in transfers.

    Raises
    ------
    AlgorithmError
        If a number of ranks or communication cores is less than 1, or S is negative.

    Examples
    --------
    >>> overlappable_time(16, 2, [0, 1, 2]).tolist()
    [8.0, 4.0, 2.0]
    """
    way_out = "; use fewer ranks than cores"
    comm_cores = _at_least(1, "communication cores", n_comm_cores, way_out)
    ranks, comm_cores = np.broadcast_arrays(_ranks(n_ranks), comm_cores)
    highest = int(shape.height(ranks).max(initial=0))
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
    """Return T_non-blocking(S, N), the time of a collective without computation.

    This is equation 6, or equation 8 if the tree grows: the time of the S levels on application
    cores plus `overlappable_time`.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1 and less than `n_cores`. The other cores are communication
        cores.
    n_cores : array_like of int
        Number of cores N_proc.
    levels : array_like of int
        Number S of levels on application cores, at least 0.
    shape : TreeShape

    Returns
    -------
    ndarray of float64
        Time in transfers.

    Raises
    ------
    AlgorithmError
        If a number of ranks or communication cores is less than 1, or S is negative.

    Examples
    --------
    >>> non_blocking_time(16, 18, [0, 1, 2]).tolist()
    [8.0, 5.0, 4.0]
    """
    free = np.asarray(n_cores, dtype=np.int64) - _ranks(n_ranks)
    head = _head(n_ranks, levels, shape)
    return np.asarray(head + overlappable_time(n_ranks, free, levels, shape))


def overlapped_time(
    n_ranks: Numbers,
    n_cores: Numbers,
    levels: Numbers,
    *shapes: TreeShape,
    computing: float | None = None,
) -> Times:
    """Return T_overlapped(S, N), the time of a collective that overlaps with computation.

    This is equation 7, or equation 9 if the tree grows: the time of the S levels on application
    cores, plus the larger of the computation C(N) and `overlappable_time`. For successive trees, S
    levels of each run on application cores, and the computation overlaps with all other levels.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1 and less than `n_cores`. The other cores are communication
        cores.
    n_cores : array_like of int
        Number of cores N_proc.
    levels : array_like of int
        Number S of levels on application cores, at least 0.
    *shapes : TreeShape
        Successive trees. The default is one binomial tree.
    computing : float, optional
        Time of the computation in transfers. The default is the sum of C(N), equation 4, of all
        trees.

    Returns
    -------
    ndarray of float64
        Time in transfers.

    Raises
    ------
    AlgorithmError
        If a number of ranks or communication cores is less than 1, or S is negative.

    Examples
    --------
    >>> overlapped_time(62, 64, [0, 3]).round(2).tolist()
    [32.0, 9.19]
    >>> overlapped_time(62, 64, [0, 3], computing=20.0).tolist()
    [32.0, 23.0]
    """
    free = np.asarray(n_cores, dtype=np.int64) - _ranks(n_ranks)
    head, beside, behind = np.zeros((3, 1))
    for shape in shapes or (BINOMIAL,):
        head = head + _head(n_ranks, levels, shape)
        beside = beside + compute_time(n_ranks, n_cores, shape)
        behind = behind + overlappable_time(n_ranks, free, levels, shape)
    return np.asarray(head + np.maximum(beside if computing is None else computing, behind))


def best_levels(
    n_ranks: Numbers, n_cores: Numbers, *shapes: TreeShape, computing: float | None = None
) -> Integers:
    """Return the number S of levels on application cores that minimizes T_overlapped(S, N).

    If several numbers do, it is the smallest one.

    Parameters
    ----------
    n_ranks : array_like of int
        Number of ranks N, at least 1 and less than `n_cores`.
    n_cores : array_like of int
        Number of cores N_proc.
    *shapes : TreeShape
        Successive trees. The default is one binomial tree.
    computing : float, optional
        Time of the computation in transfers. The default is the sum of C(N), equation 4, of all
        trees.

    Returns
    -------
    ndarray of int64
        S, from 0 to the height of the highest tree.

    Raises
    ------
    AlgorithmError
        If a number of ranks or communication cores is less than 1.

    Examples
    --------
    >>> best_levels([51, 57, 60, 62], 64).tolist()
    [0, 1, 2, 3]

    A long computation hides all levels. A short one hides only levels of few transfers.

    >>> [int(best_levels(60, 64, computing=time)) for time in (0.0, 4.0, 8.0, 16.0)]
    [3, 2, 1, 0]
    """
    ranks, cores = np.broadcast_arrays(_ranks(n_ranks), np.asarray(n_cores, dtype=np.int64))
    highest = max(int(shape.height(ranks).max(initial=0)) for shape in shapes or (BINOMIAL,))
    times = overlapped_time(
        ranks[..., None], cores[..., None], np.arange(highest + 1), *shapes, computing=computing
    )
    return np.asarray(times.argmin(axis=-1), dtype=np.int64)


def _head(n_ranks: Numbers, levels: Numbers, shape: TreeShape) -> Times:
    """Return the time of the S levels nearest the leaves."""
    n_levels = np.minimum(_at_least(0, "levels", levels), shape.height(n_ranks))
    return np.asarray(shape.units_below(n_levels), dtype=np.float64)


def _prefix_transfers(ranks: Integers, levels: Integers, shape: TreeShape) -> Integers:
    """Return the number of transfers of a level of the trees of a scan or exscan.

    For a scan of N ranks, it is floor(N / 2^i) up the tree and floor(N / 2^i - 1/2) down the tree.
    """
    is_shifted = shape.prefix == "exscan"
    scanned = ranks - is_shifted
    own = np.clip(levels - (is_shifted and shape.is_down), 0, _MOST_LEVELS)
    sent = scanned - 2**own // 2 if shape.is_down else scanned
    found = np.where(own > 0, sent >> own, scanned)
    return np.asarray(np.maximum(found, 0), dtype=np.int64)


def _powers(ranks: Integers, radix: int) -> tuple[int, Integers]:
    """Return the radix, at most the largest number of ranks, and its powers below this number."""
    most = int(ranks.max(initial=1))
    radix = min(radix, max(2, most))
    return radix, np.array(spans(most, radix) or [1], dtype=np.int64)


def _ranks(n_ranks: Numbers) -> Integers:
    return _at_least(1, "ranks", n_ranks)


def _at_least(least: int, name: str, values: Numbers, way_out: str = "") -> Integers:
    """Return numbers as an array, and check that none is less than `least`.

    Raises
    ------
    AlgorithmError
        If a number is less. The message ends with `way_out`.
    """
    array = np.asarray(values, dtype=np.int64)
    if (array < least).any():
        raise AlgorithmError(f"{name}: {array.min()} is not at least {least}{way_out}")
    return array
