"""The Fourier transform of a three-dimensional array that is spread over all ranks.

    mpiexec -n 4 python examples/fft3d.py
    mpiexec -n 6 python examples/fft3d.py --grid 2x3 --shape 33x20x17

Ranks form a grid of P1 x P2. Each transforms along the axis it has whole; between, Alltoall
transposes, first among the ranks of a row of the grid, then among those of a column::

    x/P1, y/P2, z whole  ->  x/P1, y whole, z/P2  ->  x whole, y/P1, z/P2

By default the grid is one column of all ranks ("slabs"), with a single transpose. Blocks are
padded to one length, so any extents go on any number of ranks.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from stopwatch import Stopwatch, report

Array = npt.NDArray[np.complex128]


def block_of(extent: int, n_parts: int) -> int:
    """Return how long a block is; the last ones may reach beyond the extent."""
    return -(-extent // n_parts)


class Transform:
    """One rank's part of the transform of an array of this shape on this grid."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        shape: tuple[int, int, int],
        grid: tuple[int, int],
        watch: Stopwatch,
    ) -> None:
        self.comm, self.shape, self.grid, self.watch = comm, shape, grid, watch
        self.row, self.column = divmod(comm.rank, grid[1])
        self.row_comm = comm.Split(self.row, self.column)
        self.column_comm = comm.Split(self.column, self.row)

    def free(self) -> None:
        """Free the communicators of the grid's rows and columns."""
        self.row_comm.Free()
        self.column_comm.Free()

    def own_input(self) -> Array:
        """Return this rank's part of the input, zero where it reaches beyond the array."""
        nx, ny, nz = self.shape
        bx, by = block_of(nx, self.grid[0]), block_of(ny, self.grid[1])
        padded = np.zeros((bx, by, nz), complex)
        mine = signal(
            np.arange(self.row * bx, min((self.row + 1) * bx, nx)),
            np.arange(self.column * by, min((self.column + 1) * by, ny)),
            np.arange(nz),
        )
        padded[: mine.shape[0], : mine.shape[1]] = mine
        return padded

    def __call__(self, field: Array) -> Array:
        """Return this rank's part of the transform: x whole, blocks of y and z."""
        nx, ny, _ = self.shape
        field = np.fft.fft(field, axis=2)
        field = self.transpose(field, self.row_comm, split=2, join=1)[:, :ny]
        field = np.fft.fft(field, axis=1)
        field = self.transpose(field, self.column_comm, split=1, join=0)[:nx]
        return np.fft.fft(field, axis=0)

    def transpose(self, field: Array, comm: MPI.Intracomm, split: int, join: int) -> Array:
        """Return the field with axis `join` whole and a block of axis `split`."""
        if comm.size == 1:
            return field
        block = block_of(field.shape[split], comm.size)
        lacking = [(0, 0)] * 3
        lacking[split] = (0, block * comm.size - field.shape[split])
        parts = np.split(np.pad(field, lacking), comm.size, axis=split)
        sendbuf = np.stack(parts)  # whole blocks, one after the other: what Alltoall sends
        recvbuf = np.empty_like(sendbuf)
        with self.watch.exchange():
            comm.Alltoall(sendbuf, recvbuf)
        return np.concatenate(list(recvbuf), axis=join)

    def gather(self, part: Array) -> Array | None:
        """Return the whole transform on rank 0."""
        _, ny, nz = self.shape
        parts = np.empty((self.comm.size, *part.shape), complex) if self.comm.rank == 0 else None
        self.comm.Gather(part, parts)
        if parts is None:
            return None
        p1, p2 = self.grid
        rows = [np.concatenate(list(parts[i * p2 : (i + 1) * p2]), axis=2) for i in range(p1)]
        return np.ascontiguousarray(np.concatenate(rows, axis=1)[:, :ny, :nz])


def signal(*indices: npt.NDArray[np.int64]) -> Array:
    """Return the array to transform, at these indices of each axis."""
    x, y, z = np.ix_(*indices)
    return np.sin(1 + 3 * x * x + 5 * y + 7 * z * (y + 1)) + 1j * np.cos(2 + x * z + 11 * y)


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a text as 4x3x2."""
    found = tuple(int(part) for part in text.split("x"))
    if min(found) < 1:
        raise ValueError
    return found


def main() -> int:
    """Transform on all ranks and, on rank 0, alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", type=numbers, default=(50, 48, 45), help="as 50x48x45")
    parser.add_argument("--grid", type=numbers, help="of ranks, as 2x2")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    comm = MPI.COMM_WORLD
    grid = asked.grid or (comm.size, 1)
    if len(asked.shape) != 3 or len(grid) != 2 or asked.repeats < 1:
        parser.error("it takes three extents, a grid of two and one repeat at least")
    if grid[0] * grid[1] != comm.size:
        parser.error(f"--grid: {grid[0]} x {grid[1]} is not {comm.size} ranks")
    watch = Stopwatch(comm)
    transform = Transform(comm, asked.shape, grid, watch)
    field = transform.own_input()
    part = transform(field)  # first calls open connections
    watch.restart()
    for _ in range(asked.repeats):
        part = transform(field)
    times = watch.stop()
    whole = transform.gather(part)
    transform.free()
    is_right = True
    if whole is not None:
        expected = np.fft.fftn(signal(*(np.arange(n) for n in asked.shape)))
        is_right = bool(np.allclose(whole, expected, rtol=0, atol=1e-12 * np.abs(expected).max()))
    facts = {
        "FFT": "x".join(map(str, asked.shape)),
        "grid": f"{grid[0]}x{grid[1]}",
        "repeats": asked.repeats,
        **times,
    }
    return report(comm, is_right, facts, asked.json)


if __name__ == "__main__":
    sys.exit(main())
