"""Requests of persistent collectives, which are native and counted at their starts."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Self

from mpi4py import MPI

from collplan.dropin.statistics import Row

_NATIVE: Any = MPI.Prequest


class _AnyPrequest(type):
    """Metaclass by which all persistent requests of mpi4py are instances of a class."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, _NATIVE)


class CountedPrequest(MPI.Prequest, metaclass=_AnyPrequest):
    """A persistent request of mpi4py whose starts are counted.

    Attributes
    ----------
    row : Row or None
        Row of the statistics in which starts are counted.
    """

    row: Row | None = None

    @classmethod
    def of(cls, request: MPI.Prequest, row: Row) -> Self:
        """Return a request with the handle and the buffers of another one."""
        found = cls.__new__(cls, request)
        found.row = row
        return found

    def Start(self) -> None:
        """Start the operation of this request."""
        begin = perf_counter()
        super().Start()
        _count([self], perf_counter() - begin)

    @classmethod
    def Startall(cls, requests: list[MPI.Prequest]) -> None:
        """Start the operations of several persistent requests, of which any may be counted."""
        begin = perf_counter()
        super().Startall(requests)
        _count(requests, perf_counter() - begin)


def _count(requests: Sequence[MPI.Prequest], seconds: float) -> None:
    """Count starts, to each of which an equal share of the time is attributed."""
    rows = [row for one in requests if (row := getattr(one, "row", None)) is not None]
    for row in rows:
        row.calls += 1
        row.seconds += seconds / len(requests)
