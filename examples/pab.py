"""A parallel Adams-Bashforth method for ordinary differential equations, y' = f(y).

    mpiexec -n 4 python examples/pab.py --stages 5

Any number of ranks. A step takes `k` stages, y_i at times t + a_i h, a_k = 1, at once:

    y_i of the next step = y_k + h * sum_j S_ij f(y_j),    S_ij = integral of L_j from 0 to a_i

where L_j is 1 at a_j - 1 and 0 at the other a - 1: polynomials through the old slopes are
integrated exactly, so every stage has order k. No stage needs another of its step, all right
hand sides of a step can be computed at the same time: the "parallel" of these methods.
Here every rank computes its part of all of them, and an Allgather a stage tells all ranks
the whole vector, which a right hand side may need.

The system is the Brusselator with diffusion on a periodic grid. The step is halved once, so
that the order can be seen.

P. J. van der Houwen, E. Messina: Parallel Adams Methods (1999); used by O. Hartmann,
M. Kühnemann, T. Rauber, G. Rünger: A Decomposition Approach for Optimizing the Performance
of MPI Libraries (2006), section 4.2.
"""

from __future__ import annotations

import argparse
import sys
from math import log2

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numpy.polynomial import Legendre, Polynomial
from stopwatch import Stopwatch, report

Array = npt.NDArray[np.float64]
END = 1.0
"""Integrate from 0 to this time."""


def abscissae(k: int) -> Array:
    """Return `k` ascending times within a step, the last of them 1: the right Radau points."""
    roots = (Legendre.basis(k) - Legendre.basis(k - 1)).roots()
    found = np.sort(1 + np.real(roots)) / 2
    found[-1] = 1.0
    return found


def weights(times: Array) -> Array:
    """Return the matrix S."""
    nodes = times - 1
    columns = []
    for j, node in enumerate(nodes):
        others = np.delete(nodes, j)
        lagrange = Polynomial.fromroots(others) / np.prod(node - others)
        columns.append(lagrange.integ()(times))
    return np.stack(columns, axis=1)


def slope(y: Array, rows: slice) -> Array:
    """Return the right hand side at some rows of the grid.

    The grid is ``y[row, species, column]``; each substance diffuses to the
    four neighbors.
    """
    index = np.arange(rows.start, rows.stop)
    here = y[rows]
    u, v = here[:, 0], here[:, 1]
    neighbors = y[(index + 1) % len(y)] + y[index - 1]
    neighbors += np.roll(here, 1, axis=2) + np.roll(here, -1, axis=2)
    change = 0.5 * (neighbors - 4 * here)
    reaction = u * u * v
    change[:, 0] += 1.0 + reaction - 4.4 * u
    change[:, 1] += 3.4 * u - reaction
    return change


def initial(n: int) -> Array:
    """Return smooth concentrations on an n x n grid."""
    x = np.linspace(0, 2 * np.pi, n, endpoint=False)
    y = np.empty((n, 2, n))
    y[:, 0] = 0.5 + np.cos(x)[:, None] / 4
    y[:, 1] = 1.0 + np.sin(x)[None, :]
    return y


def extrapolated(y: Array, h: float) -> Array:
    """Return the solution a time `h` later, by one step of extrapolation, of order 12.

    Gragg's midpoint rule, as explained in Hairer, Nørsett, Wanner: Solving
    Ordinary Differential Equations I, section II.9: the serial solution.
    """
    everywhere = slice(0, len(y))
    rows: list[list[Array]] = []
    for i in range(6):
        n = 2 * (i + 1)
        before, now = y, y + h / n * slope(y, everywhere)
        for _ in range(n - 1):
            before, now = now, before + 2 * h / n * slope(now, everywhere)
        smooth = (before + now + h / n * slope(now, everywhere)) / 2
        row = [smooth]
        for j in range(i):
            factor = ((i + 1) / (i - j)) ** 2 - 1
            row.append(row[j] + (row[j] - rows[i - 1][j]) / factor)
        rows.append(row)
    return rows[-1][-1]


def serial(n: int, n_steps: int) -> Array:
    """Return the solution at the end, computed by this process alone."""
    y = initial(n)
    for _ in range(n_steps):
        y = extrapolated(y, END / n_steps)
    return y


class ParallelAdams:
    """The method on all ranks, each with a block of the grid's rows, equally many.

    The last blocks may reach beyond the grid; what lies there is sent along.
    """

    def __init__(self, comm: MPI.Intracomm, n: int, k: int, watch: Stopwatch) -> None:
        self.comm, self.n, self.watch = comm, n, watch
        self.times = abscissae(k)
        self.weights = weights(self.times)
        block = -(-n // comm.size)
        first = min(comm.rank * block, n)
        self.mine = slice(first, min(first + block, n))
        self.sendbuf = np.zeros((block, 2, n))
        self.stages = np.zeros((k, block * comm.size, 2, n))

    def solve(self, n_steps: int, n_taken: int | None = None) -> Array:
        """Return the solution after `n_taken` of the steps, by default all of them."""
        n, h = self.n, END / n_steps
        y = initial(n)
        for stage, time in zip(self.stages, self.times, strict=True):
            stage[:n] = extrapolated(y, time * h)  # the first step's; every rank by itself
        for _ in range((n_steps if n_taken is None else n_taken) - 1):
            self.step(h)
        return self.stages[-1][:n].copy()

    def step(self, h: float) -> None:
        """Replace all stages by the next step's."""
        own = self.stages[-1][self.mine].copy()
        slopes = np.stack([slope(stage[: self.n], self.mine) for stage in self.stages])
        for stage, row in zip(self.stages, self.weights, strict=True):
            self.sendbuf[: len(own)] = own + h * np.tensordot(row, slopes, axes=1)
            with self.watch.exchange():
                self.comm.Allgather(self.sendbuf, stage)


def main() -> int:
    """Solve on all ranks, with two lengths of a step, and on rank 0 alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--grid", type=int, default=48, help="points along each side")
    parser.add_argument("--stages", type=int, default=4, choices=range(2, 8))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.grid < 2 or asked.steps < 40:
        parser.error("it takes a grid of 2 and 40 steps at least: longer ones are unstable")
    comm = MPI.COMM_WORLD
    watch = Stopwatch(comm)
    method = ParallelAdams(comm, asked.grid, asked.stages, watch)
    method.solve(asked.steps, 2)  # first calls open connections
    watch.restart()
    coarse = method.solve(asked.steps)
    fine = method.solve(2 * asked.steps)
    times = watch.stop()
    is_right, order = True, 0.0
    if comm.rank == 0:
        exact = serial(asked.grid, asked.steps)
        errors = [float(np.abs(y - exact).max()) for y in (coarse, fine)]
        order = log2(errors[0] / errors[1])
        is_rounded = errors[1] < 1e-11  # nothing of the order is left to be seen
        is_right = is_rounded or (errors[1] < 1e-3 and abs(order - asked.stages) < 0.5)
    facts = {
        "Adams": f"{asked.stages} stages",
        "grid": f"{asked.grid}x{asked.grid}",
        "steps": asked.steps,
        "order": round(order, 2),
        **times,
    }
    return report(comm, is_right, facts, asked.json)


if __name__ == "__main__":
    sys.exit(main())
