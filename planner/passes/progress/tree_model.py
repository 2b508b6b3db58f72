"""The time of a binomial tree that is split between application and communication cores.

The unit is one transfer of the collective's buffer between two ranks. Level i of
the tree counts from the leaves, from 1. The S levels nearest the leaves run on
the application cores, all transfers of a level at once; the others run on the
communication cores, level after level, each folded on these few cores. With
`doubling` buffers (gather and scatter) a transfer of level i moves 2^(i-1) units,
which is exact for powers of two.

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

import numpy as np
import numpy.typing as npt

from collplan.planner.errors import AlgorithmError

Numbers = npt.ArrayLike
Integers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


def tree_height(n_ranks: Numbers) -> Integers:
    """Return the levels of a binomial tree: H(N) = ceil(log2 N), equation 3.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.

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
    """
    ranks = _ranks(n_ranks)
    # frexp is exact: 2^(e-1) <= N - 1 < 2^e.
    return np.frexp((ranks - 1).astype(np.float64))[1].astype(np.int64)


def transfers(n_ranks: Numbers, level: Numbers) -> Integers:
    """Return the transfers of a level: F(N, i) = ceil(N / 2^i - 1/2), equation 5.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    level : array_like of int
        From 1; above the tree's height there are none.

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
    """
    ranks, levels = _ranks(n_ranks), np.asarray(level, dtype=np.int64)
    if (levels < 1).any():
        raise AlgorithmError(f"level: {levels.min()} is not a level of a tree; use 1 or more")
    # Above 62 the power would overflow, and no tree is that high.
    half = np.left_shift(1, np.minimum(levels, 62) - 1)
    return np.asarray((ranks - 1 + half) // (2 * half), dtype=np.int64)


def blocking_time(n_ranks: Numbers, doubling: bool = False) -> Times:
    """Return T_blocking(N), equation 3: all levels, each at once on the application cores.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    doubling : bool
        Transfers double from level to level: 2^H(N) - 1, else H(N).

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
    >>> blocking_time(64).tolist(), blocking_time(64, doubling=True).tolist()
    (6.0, 63.0)
    """
    return _on_application_cores(tree_height(n_ranks), doubling)


def compute_time(n_ranks: Numbers, n_cores: Numbers, doubling: bool = False) -> Times:
    """Return C(N) of a fixed total work, equation 4: N_proc / N · T_blocking(N_proc).

    On all cores, computation takes as long as the blocking collective.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1.
    n_cores : array_like of int
        N_proc, at least 1.
    doubling : bool
        Of gather and scatter, equation 9.

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
    return np.asarray(cores * blocking_time(n_cores, doubling) / _ranks(n_ranks))


def overlappable_time(
    n_ranks: Numbers, n_comm_cores: Numbers, levels: Numbers, doubling: bool = False
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
    doubling : bool
        Of gather and scatter: a transfer of level i takes 2^(i-1).

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
    height, levels = tree_height(n_ranks), _at_least(0, "levels", levels)
    total = np.zeros(np.broadcast_shapes(height.shape, comm_cores.shape, levels.shape))
    for level in range(1, int(height.max(initial=0)) + 1):
        folded = -(-transfers(n_ranks, level) // comm_cores)
        # Above the height of a smaller tree there are no transfers.
        total += np.where(level > levels, folded, 0) * (2 ** (level - 1) if doubling else 1)
    return total


def non_blocking_time(
    n_ranks: Numbers, n_cores: Numbers, levels: Numbers, doubling: bool = False
) -> Times:
    """Return T_non-blocking(S, N) of a collective alone, equation 6, or 8 if doubling.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`: the others are communication cores.
    n_cores : array_like of int
        N_proc.
    levels : array_like of int
        S, at least 0.
    doubling : bool
        Of gather and scatter.

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
    head = _head(n_ranks, levels, doubling)
    return np.asarray(head + overlappable_time(n_ranks, free, levels, doubling))


def overlapped_time(
    n_ranks: Numbers, n_cores: Numbers, levels: Numbers, doubling: bool = False
) -> Times:
    """Return T_overlapped(S, N), equation 7, or 9 if doubling.

    The levels on application cores, then computation beside the others.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`: the others are communication cores.
    n_cores : array_like of int
        N_proc.
    levels : array_like of int
        S, at least 0.
    doubling : bool
        Of gather and scatter.

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
        compute_time(n_ranks, n_cores, doubling),
        overlappable_time(n_ranks, free, levels, doubling),
    )
    return np.asarray(_head(n_ranks, levels, doubling) + behind)


def best_levels(n_ranks: Numbers, n_cores: Numbers, doubling: bool = False) -> Integers:
    """Return the S of the least T_overlapped, ties to fewer levels.

    Parameters
    ----------
    n_ranks : array_like of int
        At least 1, and less than `n_cores`.
    n_cores : array_like of int
        N_proc.
    doubling : bool
        Of gather and scatter.

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
    levels = np.arange(int(tree_height(ranks).max(initial=0)) + 1)
    times = overlapped_time(ranks[..., None], cores[..., None], levels, doubling)
    return np.asarray(times.argmin(axis=-1), dtype=np.int64)


def _head(n_ranks: Numbers, levels: Numbers, doubling: bool) -> Times:
    """Return the time of the S levels nearest the leaves."""
    n_levels = np.minimum(_at_least(0, "levels", levels), tree_height(n_ranks))
    return _on_application_cores(n_levels, doubling)


def _on_application_cores(n_levels: Integers, doubling: bool) -> Times:
    times = np.left_shift(1, n_levels) - 1 if doubling else n_levels
    return np.asarray(times, dtype=np.float64)


def _ranks(n_ranks: Numbers) -> Integers:
    return _at_least(1, "ranks", n_ranks)


def _at_least(least: int, name: str, values: Numbers, way_out: str = "") -> Integers:
    """Return numbers as an array; raise where one is less than the least that there can be."""
    array = np.asarray(values, dtype=np.int64)
    if (array < least).any():
        raise AlgorithmError(f"{name}: {array.min()} is not at least {least}{way_out}")
    return array
