"""Power iteration with a sparse matrix distributed by rows; its halo is an Alltoallv.

    mpiexec -n 4 python examples/spmv.py --unknowns 20000
    mpiexec -n 4 python examples/spmv.py --unknowns 20000 --planned

With --planned, the halo is a plan of collplan for the graph of the ranks that need unknowns of each
other. Any number of ranks. A rank owns rows and the unknowns of the same numbers. For a product it
needs the unknowns of all columns in which its rows have entries: its halo. How many it needs
of whom is found once, and differs from pair to pair, as entries lie near the diagonal and in
a few columns that everybody needs. Each product sends the halo anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from stopwatch import Stopwatch, report

import collplan

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
HUBS = 0.2
"""Share of entries in the first few columns."""


def make_entries(n: int, per_row: int) -> tuple[Ints, Ints, Array]:
    """Return row, column and value of every entry; the same on all ranks."""
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(n), per_row)
    near = (rows + rng.integers(-3 * per_row, 3 * per_row + 1, len(rows))) % n
    hubs = rng.integers(0, max(1, n // 50), len(rows))
    columns = np.where(rng.random(len(rows)) < HUBS, hubs, near)
    # All values are positive, so that the iteration converges.
    return rows, columns, rng.uniform(0.5, 1.5, len(rows))


class Matrix:
    """One rank's rows, and what their product exchanges with other ranks."""

    def __init__(self, comm: MPI.Intracomm, n: int, per_row: int, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch
        begins = np.arange(comm.size + 1) * n // comm.size
        self.first, end = (int(begins[comm.rank + i]) for i in range(2))
        self.n_rows = end - self.first
        rows, columns, self.values = make_entries(n, per_row)
        mine = slice(self.first * per_row, end * per_row)
        self.rows, columns, self.values = rows[mine] - self.first, columns[mine], self.values[mine]
        is_own = (self.first <= columns) & (columns < end)
        needed, places = np.unique(columns[~is_own], return_inverse=True)
        # Columns as indices into this rank's unknowns, with its halo behind them.
        self.columns = columns - self.first
        self.columns[~is_own] = self.n_rows + places
        self.received = np.diff(np.searchsorted(needed, begins))
        self.sent = np.empty_like(self.received)
        comm.Alltoall(self.received, self.sent)
        wanted = np.empty(self.sent.sum(), dtype=np.int64)
        comm.Alltoallv([needed, self.received], [wanted, self.sent])
        self.wanted = wanted - self.first
        self.sendbuf = np.empty(len(wanted))
        self.x = np.empty(self.n_rows + len(needed))
        self.halo = self.x[self.n_rows :]
        sides = [self.sendbuf, self.sent], [self.halo, self.received]
        self.exchange: Callable[[], object] = partial(comm.Alltoallv, *sides)

    def plan_halo(self) -> ExitStack:
        """Exchange the halo by a plan until what is returned is closed; collective."""
        counts = np.array(self.comm.allgather(self.sent))
        source, dest = np.nonzero(counts)
        # Blocks are in the order of ranks, as in an Alltoallv.
        edges = np.stack((source, dest, counts[source, dest]), axis=1)
        spec = {
            "machine": {"ranks_per_node": self.comm.size},
            "collective": {"kind": "neighbor_alltoallv", "graph": edges},
        }
        planned = ExitStack()
        self.exchange = planned.enter_context(
            collplan.bind(spec, self.comm, self.sendbuf, self.halo)
        )
        return planned

    def product(self, x: Array) -> Array:
        """Return this rank's part of the matrix times a vector, of which it has a part."""
        np.take(x, self.wanted, out=self.sendbuf)
        with self.watch.exchange():
            self.exchange()
        self.x[: self.n_rows] = x
        return sums(self.rows, self.values * self.x[self.columns], self.n_rows)


def sums(rows: Ints, products: Array, n_rows: int) -> Array:
    """Return the sum of the products of every row."""
    return np.bincount(rows, weights=products, minlength=n_rows)


def iterate(matrix: Matrix, n_iterations: int) -> tuple[Array, float]:
    """Return this rank's part of the dominant eigenvector, and the eigenvalue."""
    x, norm = np.ones(matrix.n_rows), np.ones(1)
    for _ in range(n_iterations):
        y = matrix.product(x)
        square = np.array([y @ y])
        with matrix.watch.exchange():
            matrix.comm.Allreduce(square, norm)
        x = y / np.sqrt(norm)
    return x, float(np.sqrt(norm[0]))


def iterate_alone(n: int, per_row: int, n_iterations: int) -> tuple[Array, float]:
    """Return the same by one process, without any halo."""
    rows, columns, values = make_entries(n, per_row)
    x, norm = np.ones(n), 1.0
    for _ in range(n_iterations):
        y = sums(rows, values * x[columns], n)
        norm = float(np.sqrt(y @ y))
        x = y / norm
    return x, norm


def main() -> int:
    """Iterate on all ranks and, on rank 0, alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--unknowns", type=int, default=20_000)
    parser.add_argument("--per-row", type=int, default=8, help="entries")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--planned", action="store_true", help="exchange the halo by a plan")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    comm = MPI.COMM_WORLD
    if asked.unknowns < comm.size or asked.per_row < 1 or asked.iterations < 1:
        parser.error("it takes an unknown per rank, 1 entry per row and 1 iteration at least")
    watch = Stopwatch(comm)
    matrix = Matrix(comm, asked.unknowns, asked.per_row, watch)
    with matrix.plan_halo() if asked.planned else ExitStack():
        iterate(matrix, 1)  # first calls open connections
        watch.restart()
        x, eigenvalue = iterate(matrix, asked.iterations)
        times = watch.stop()
    parts = comm.gather(x)
    is_right = True
    if comm.rank == 0:
        expected, value = iterate_alone(asked.unknowns, asked.per_row, asked.iterations)
        is_right = bool(np.allclose(np.concatenate(parts or []), expected, 1e-9, 1e-12))
        is_right = is_right and bool(np.isclose(eigenvalue, value, 1e-9))
    halos = comm.allgather(len(matrix.halo))
    facts: dict[str, Any] = {
        "SpMV": asked.unknowns,
        "iterations": asked.iterations,
        "least halo": min(halos),
        "greatest halo": max(halos),
        **times,
    }
    return report(comm, is_right, facts, asked.json)


if __name__ == "__main__":
    sys.exit(main())
