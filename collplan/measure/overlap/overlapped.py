"""Collectives that overlap with computation: start the collective, compute, then wait."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.measure.native import NativeCollective
from collplan.measure.timing import Call, nothing


@dataclass(slots=True)
class Overlapped:
    """A collective, ready to run together with a computation.

    Parameters
    ----------
    begin, finish : callable
        Functions that start the collective and wait for it. If the collective is blocking,
        `begin` does nothing, and `finish` runs all of it.
    compute : callable
        Computation that runs between `begin` and `finish`.
    free : callable
        Function that frees the collective.
    """

    begin: Call
    finish: Call
    compute: Call
    free: Call = nothing

    def __call__(self) -> None:
        """Start, compute, and wait."""
        self.begin()
        self.compute()
        self.finish()

    def alone(self) -> None:
        """Run the collective alone."""
        self.begin()
        self.finish()


def overlapped_native(native: NativeCollective, compute: Call) -> Overlapped:
    """Return a call that overlaps MPI's own nonblocking collective with a computation."""
    requests: list[MPI.Request] = []
    return Overlapped(
        lambda: requests.append(native.start()), lambda: requests.pop().Wait(), compute
    )


def require_multiple_threads() -> None:
    """Raise `BindError` if MPI does not allow several threads to call it at the same time."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise BindError(
            "--computation: plans beside computation need MPI initialized with MPI_THREAD_MULTIPLE"
        )
