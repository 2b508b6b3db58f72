"""Model of the overlap of a collective with computation, for all numbers of ranks and levels.

`collplan.planner.passes.progress.tree_model` has the equations. This module evaluates them
in tables, which give the best number of levels for each number of ranks. A simulation
fills tables of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.planner.passes.progress import tree_model
from collplan.planner.passes.progress.tree_model import TreeShape
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.syntax.numbers import MAX_RANKS

Times = npt.NDArray[np.float64]

MOST_RADIX: Final = 64
"""Largest radix whose tables are small enough for any node."""
N_TREES: Final = {"reduce": 1, "bcast": 1, "gather": 1, "scatter": 1, "allreduce": 2}
"""Collectives that have a model, with the number of trees that each runs in sequence."""


class LevelChoice(NamedTuple):
    """A number of ranks and of levels on the application cores, with the time they take.

    Parameters
    ----------
    ranks, levels : int
        Number of ranks, and number of levels S on the application cores.
    time : float
        T_overlapped, in transfers.
    """

    ranks: int
    levels: int
    time: float


@dataclass(frozen=True, eq=False)
class OverlapTable:
    """Times of one collective that overlaps with computation on the cores of one node.

    Row i is for i + 1 ranks; the other cores are communication cores. Column S is for S
    levels on the application cores. All times are in transfers.

    Parameters
    ----------
    collective : str
        Kind of the collective, one of `N_TREES`.
    n_cores : int
        Number of cores of the node, N_proc.
    blocking : ndarray of float64, shape (n_cores - 1,)
        T_blocking: time of the collective alone, on the application cores.
    compute : ndarray of float64, shape (n_cores - 1,)
        C: time of the computation alone.
    communication : ndarray of float64, shape (n_cores - 1, n_levels)
        T_non-blocking: time of the split collective alone.
    overlapped : ndarray of float64, shape (n_cores - 1, n_levels)
        T_overlapped: time of the split collective with the computation.
    radix : int
        Radix of the tree; 2 if it is binomial.
    """

    collective: str
    n_cores: int
    blocking: Times
    compute: Times
    communication: Times
    overlapped: Times
    radix: int = 2

    @property
    def n_levels(self) -> int:
        """Return the number of columns: the levels of the tree of all cores, plus one."""
        return int(self.overlapped.shape[1])

    def best(self) -> tuple[LevelChoice, ...]:
        """Return the fastest choice for every number of ranks; ties go to the fewest levels."""
        levels = self.overlapped.argmin(axis=1)
        return tuple(self._choice(row, int(level)) for row, level in enumerate(levels))

    def switches(self) -> tuple[LevelChoice, ...]:
        """Return the best choices whose levels differ from those for one rank fewer."""
        best = self.best()
        return tuple(one for before, one in pairwise(best) if one.levels != before.levels)

    def best_overall(self) -> LevelChoice:
        """Return the fastest of all choices; ties go to the fewest ranks, then fewest levels."""
        row, level = np.unravel_index(self.overlapped.argmin(), self.overlapped.shape)
        return self._choice(int(row), int(level))

    def _choice(self, row: int, levels: int) -> LevelChoice:
        return LevelChoice(row + 1, levels, float(self.overlapped[row, levels]))


def overlap_model(collective: str, n_cores: int, radix: int = 2) -> OverlapTable:
    """Return the times of a split k-nomial tree by the closed forms.

    Parameters
    ----------
    collective : str
        One of `N_TREES`.
    n_cores : int
        Number of cores of the node, at least 2.
    radix : int
        Radix of the tree, 2 to `MOST_RADIX`; an allreduce allows only 2.

    Returns
    -------
    OverlapTable

    Raises
    ------
    CollplanError
        If there is no model of the collective or of its tree, or the number of cores is out of
        range.

    Notes
    -----
    The times are equations 3 to 7 of the paper [1]_ for reduce and bcast, with 8 and 9 in
    place of 6 and 7 for gather and scatter. An allreduce is a reduce followed by a bcast, both
    split at the same level. S levels of the reduce run before the start returns, and S levels
    of the bcast run in the wait. The other levels of both run one after another during the
    computation, which takes as long as the blocking allreduce on all cores, 2 H(N_proc)::

        T_overlapped = S + max(C, Σ + Σ) + S

    Therefore all times of an allreduce are twice those of a reduce, and the best S is the same.

    References
    ----------
    .. [1] A. Denis, J. Jaeger, E. Jeannot, M. Pérache, H. Taboada: Study on progress
       threads placement and dedicated cores for overlapping MPI nonblocking collectives
       on manycore processor, 2019, section 6.2.

    Examples
    --------
    >>> table = overlap_model("reduce", 64)
    >>> [(one.ranks, one.levels) for one in table.switches()]
    [(52, 1), (58, 2), (62, 3)]
    """
    trees, shape = n_trees_of(collective), checked_shape(collective, radix)
    check_cores(n_cores, MAX_RANKS, "a plan")
    ranks = np.arange(1, n_cores)
    rows = ranks[:, None]
    levels = np.arange(int(tree_model.tree_height(n_cores, radix)) + 1)
    return OverlapTable(
        collective=collective,
        n_cores=n_cores,
        blocking=trees * tree_model.blocking_time(ranks, shape),
        compute=trees * tree_model.compute_time(ranks, n_cores, shape),
        communication=trees * tree_model.non_blocking_time(rows, n_cores, levels, shape),
        overlapped=trees * tree_model.overlapped_time(rows, n_cores, levels, shape),
        radix=radix,
    )


def checked_shape(collective: str, radix: int) -> TreeShape:
    """Return the shape of a collective's tree.

    Raises
    ------
    CollplanError
        If there is no such tree.
    """
    if not 2 <= radix <= MOST_RADIX:
        raise CollplanError(f"radix: {radix} is out of range; use 2 to {MOST_RADIX}")
    if radix != 2 and collective == "allreduce":
        raise CollplanError(
            f"radix: {radix}, but the trees of an allreduce are binomial; use 2, or reduce or bcast"
        )
    return tree_model.shape_of(collective, radix)


def n_trees_of(collective: str) -> int:
    """Return the number of trees that a collective runs in sequence.

    Raises
    ------
    CollplanError
        If there is no model of the collective. The message names those that have one.
    """
    if collective not in N_TREES:
        raise CollplanError(
            f"collective: there is no model of the overlap of {show_value(collective)}; "
            f"use {', '.join(N_TREES)}"
        )
    return N_TREES[collective]


def check_cores(n_cores: int, most: int, what: str) -> None:
    """Raise `CollplanError` unless `n_cores` is 2 to `most`, the largest number for `what`."""
    if n_cores < 2:
        raise CollplanError(
            f"cores: {n_cores} leaves none beside a rank for communication; use 2 or more"
        )
    if n_cores > most:
        raise CollplanError(f"cores: {n_cores} is too many for {what}; use {most} or fewer")
