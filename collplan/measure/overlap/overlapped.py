"""A call that starts a collective, computes, and waits for the collective."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

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
