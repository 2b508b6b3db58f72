"""Jacobi's iteration for a large sparse system, distributed by rows or by columns.

    mpiexec -n 4 python examples/jacobi.py --form column-allreduce

Any number of ranks. The matrix has a diagonal and, all around it, off-diagonals that wrap
at the end, so every unknown depends on unknowns everywhere, and each iteration tells all
ranks all of them:

- ``row``: a rank owns rows and makes the unknowns of its rows; Allgather.
- ``column-allreduce``: a rank owns columns and multiplies its unknowns by them. Allreduce
  adds the products up, every rank makes its own unknowns, Allgather.
- ``column-reduce``: Reduce adds the products up at rank 0, which makes all unknowns; Bcast.

O. Hartmann, M. Kühnemann, T. Rauber, G. Rünger: A Decomposition Approach for Optimizing
the Performance of MPI Libraries (2006), section 4.2.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from stopwatch import Stopwatch, report

Array = npt.NDArray[np.float64]


class System:
    """The equations ``diagonal * x[i] + sum_d entry(i, i + offset_d) * x[i + offset_d] = b[i]``.

    Indices wrap at `n`. The diagonal outweighs the others by two, so the
    iteration halves the error every time.
    """

    def __init__(self, n: int, n_offsets: int) -> None:
        self.n = n
        rng = np.random.default_rng(1)
        self.offsets = 1 + rng.choice(n - 1, min(n_offsets, n - 1), replace=False)
        self.diagonal = 2.0 * len(self.offsets)
        self.b = rng.uniform(-self.diagonal, self.diagonal, n)

    def entries(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Array:
        """Return the off-diagonal entries at these places."""
        return np.sin(1.0 + 0.7 * rows + 1.3 * columns)

    def solve(self, tolerance: float, most: int) -> tuple[Array, int]:
        """Iterate in one process."""
        index = np.arange(self.n)
        bands = [self.entries(index, (index + offset) % self.n) for offset in self.offsets]
        x = np.zeros(self.n)
        for iteration in range(1, most + 1):
            products = sum(
                band * np.roll(x, -offset) for band, offset in zip(bands, self.offsets, strict=True)
            )
            old, x = x, (self.b - products) / self.diagonal
            if np.abs(x - old).max() <= tolerance:
                return x, iteration
        return x, most


class Jacobi:
    """One rank's part: a block of rows or of columns, equally long on all ranks.

    The last blocks may reach beyond the system; what lies there is sent along
    and stays zero.
    """

    def __init__(self, system: System, comm: MPI.Intracomm, form: str, watch: Stopwatch) -> None:
        self.system, self.comm, self.watch = system, comm, watch
        self.block = -(-system.n // comm.size)
        first = min(comm.rank * self.block, system.n)
        self.mine = slice(first, min(first + self.block, system.n))
        index = np.arange(self.mine.start, self.mine.stop)
        if form == "row":
            others = [(index, (index + offset) % system.n) for offset in system.offsets]
        else:
            others = [((index - offset) % system.n, index) for offset in system.offsets]
        self.bands = [system.entries(rows, columns) for rows, columns in others]
        self.iterate = {
            "row": self.by_rows,
            "column-allreduce": self.by_columns_allreduce,
            "column-reduce": self.by_columns_reduce,
        }[form]
        self.x = np.zeros(self.block * comm.size)
        self.sendbuf = np.zeros(self.block)
        self.sums = np.empty(system.n)

    def by_rows(self) -> Array:
        """Return all new unknowns, of which this rank made those of its rows."""
        n = self.system.n
        twice = np.concatenate([self.x[:n], self.x[:n]])  # wraps without an index array
        products = np.zeros(self.mine.stop - self.mine.start)
        for band, offset in zip(self.bands, self.system.offsets, strict=True):
            products += band * twice[self.mine.start + offset : self.mine.stop + offset]
        return self.allgather(products)

    def by_columns_allreduce(self) -> Array:
        """Return all new unknowns, of which this rank made its own."""
        products = self.column_products()
        with self.watch.exchange():
            self.comm.Allreduce(products, self.sums)
        return self.allgather(self.sums[self.mine])

    def by_columns_reduce(self) -> Array:
        """Return all new unknowns, which rank 0 made."""
        products = self.column_products()
        x = np.zeros_like(self.x)
        with self.watch.exchange():
            self.comm.Reduce(products, self.sums)
        if self.comm.rank == 0:
            x[: self.system.n] = (self.system.b - self.sums) / self.system.diagonal
        with self.watch.exchange():
            self.comm.Bcast(x)
        return x

    def column_products(self) -> Array:
        """Return what this rank's unknowns add to every row."""
        n = self.system.n
        twice = np.zeros(2 * n)
        x = self.x[self.mine]
        for band, offset in zip(self.bands, self.system.offsets, strict=True):
            begin = self.mine.start - offset + n
            twice[begin : begin + len(x)] += band * x
        return twice[:n] + twice[n:]

    def allgather(self, products: Array) -> Array:
        """Make this rank's unknowns, and return those of all."""
        new = (self.system.b[self.mine] - products) / self.system.diagonal
        self.sendbuf[: len(new)] = new
        x = np.empty_like(self.x)
        with self.watch.exchange():
            self.comm.Allgather(self.sendbuf, x)
        return x

    def solve(self, tolerance: float, most: int) -> tuple[Array, int]:
        """Iterate until no unknown changes by more than `tolerance`."""
        self.x[:] = 0
        for iteration in range(1, most + 1):
            old, self.x = self.x, self.iterate()
            # All ranks hold the same unknowns, so all stop together.
            if np.abs(self.x - old).max() <= tolerance:
                return self.x[: self.system.n], iteration
        return self.x[: self.system.n], most


def main() -> int:
    """Solve on all ranks and, on rank 0, alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    forms = ("row", "column-allreduce", "column-reduce")
    parser.add_argument("--form", choices=forms, default="row")
    parser.add_argument("--unknowns", type=int, default=20_000)
    parser.add_argument("--offdiagonals", type=int, default=16)
    parser.add_argument("--tolerance", type=float, default=1e-10, help="0 iterates to the end")
    parser.add_argument("--iterations", type=int, default=200, help="at most")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.unknowns < 2 or asked.offdiagonals < 1 or asked.iterations < 1:
        parser.error("it takes 2 unknowns, 1 off-diagonal and 1 iteration at least")
    comm = MPI.COMM_WORLD
    watch = Stopwatch(comm)
    system = System(asked.unknowns, asked.offdiagonals)
    jacobi = Jacobi(system, comm, asked.form, watch)
    jacobi.solve(asked.tolerance, 1)  # first calls open connections
    watch.restart()
    x, n_iterations = jacobi.solve(asked.tolerance, asked.iterations)
    times = watch.stop()
    is_right = True
    if comm.rank == 0:
        expected, n_expected = system.solve(asked.tolerance, asked.iterations)
        is_right = n_iterations == n_expected and bool(np.allclose(x, expected, 1e-9, 1e-9))
    facts: dict[str, Any] = {
        "Jacobi": asked.form,
        "unknowns": asked.unknowns,
        "iterations": n_iterations,
        **times,
    }
    return report(comm, is_right, facts, asked.json)


if __name__ == "__main__":
    sys.exit(main())
