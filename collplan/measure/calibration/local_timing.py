"""Time copies and reductions as the engine does them, on one rank and on many at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.together import leave_cores
from collplan.measure.calibration.measurements import WORKS, Effort, Layout, LocalWork, Work
from collplan.planner.arrays import Array
from collplan.planner.collective.operations import get_operation

_DTYPE: Final = "float32"
_ITEMSIZE: Final = 4
_STEP_BYTES: Final = 1 << 15
"""Bytes that one copy or reduction writes, like a segment; fewer in a smaller working set."""
_ROW: Final = 64
"""Elements of each piece of a strided operand."""
_LEAST_SET: Final = 1 << 16
# In smaller working sets, the call costs more than the bytes.
_SHORTEST_S: Final = 2e-4


@dataclass(frozen=True, slots=True)
class LocalTimer:
    """Time local work on a communicator's ranks.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator; its ranks call the methods collectively.
    effort : Effort
        Limits of the time to measure.
    """

    comm: MPI.Intracomm
    effort: Effort

    def alone(self) -> list[LocalWork]:
        """Return the times of rank 0 over working sets and layouts; an empty list elsewhere."""
        found = []
        largest = self.effort.largest_set
        if self.comm.rank == 0:
            sets = [_LEAST_SET << i for i in range((largest // _LEAST_SET).bit_length())]
            for work in WORKS:
                found += [self._time(work, "contiguous", n_bytes) for n_bytes in sets]
                small = [n_bytes for n_bytes in sets if n_bytes <= 1 << 18]
                found += [self._time(work, "strided", n_bytes) for n_bytes in small]
        leave_cores(self.comm)
        return found

    def together(self, ranks: Sequence[int]) -> list[LocalWork]:
        """Time copies by all of `ranks` at once; return an empty list except on rank 0."""
        colour = 0 if self.comm.rank in ranks else MPI.UNDEFINED
        part = cast("MPI.Intracomm", self.comm.Split(colour, key=self.comm.rank))
        found = []
        if part != MPI.COMM_NULL:
            found = [self._time("copy", "contiguous", self.effort.largest_set, part)]
            part.Free()
        leave_cores(self.comm)
        return found if self.comm.rank == 0 else []

    def _time(
        self, work: Work, layout: Layout, set_bytes: int, part: MPI.Intracomm | None = None
    ) -> LocalWork:
        half = set_bytes // 2
        step_bytes = min(_STEP_BYTES, half // 2 if layout == "strided" else half)
        steps = _steps(work, layout, half, step_bytes)
        # Repeat short rounds within a measurement until they are long enough for the clock.
        once = max([_time_rounds(steps, 1, None) for _ in range(2)][-1], 1e-7)
        rounds = max(1, int(_SHORTEST_S / once))
        n = max(self.effort.least, min(self.effort.most, int(self.effort.point_s / 8 / once)))
        if part is not None:
            rounds, n = part.bcast((rounds, self.effort.least))
        seconds = [_time_rounds(steps, rounds, part) for _ in range(n)]
        return LocalWork(
            work=work,
            layout=layout,
            bytes=step_bytes * len(steps) * rounds,
            working_set_bytes=set_bytes,
            ranks=1 if part is None else part.size,
            seconds=tuple(seconds),
        )


def _time_rounds(
    steps: Sequence[Callable[[], object]], rounds: int, part: MPI.Intracomm | None
) -> float:
    if part is not None:
        part.Barrier()
    begin = time.perf_counter()
    for _ in range(rounds):
        for step in steps:
            step()
    elapsed = time.perf_counter() - begin
    return elapsed if part is None else float(part.allreduce(elapsed, MPI.MAX))


def _steps(work: Work, layout: Layout, half: int, step_bytes: int) -> list[Callable[[], object]]:
    """Return the calls that process two buffers of `half` bytes each once."""
    # Zeros would all be the same page, which never leaves the cache.
    source, target = (np.ones(half // _ITEMSIZE, _DTYPE) for _ in range(2))
    n = step_bytes // _ITEMSIZE
    taken = n if layout == "contiguous" else 2 * n
    apply = get_operation("sum").apply

    def step(first: int) -> Callable[[], object]:
        read, written = (_view(array[first : first + taken], layout) for array in (source, target))
        if work == "copy":
            return lambda: np.copyto(written, read)
        return lambda: apply(read, written, written)

    return [step(first) for first in range(0, len(source) - taken + 1, taken)]


def _view(piece: Array, layout: Layout) -> Array:
    """Return the elements of a step: all of them, or every other row."""
    return piece if layout == "contiguous" else piece.reshape(1, -1, 2, _ROW)[:, :, 0, :]
