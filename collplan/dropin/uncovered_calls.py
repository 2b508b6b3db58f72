"""mpi4py's non-blocking, persistent and other forms, which plans cover in part or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from time import perf_counter
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.nonblocking_setup import NOT_MADE
from collplan.dropin.signatures import KINDS

PERSISTENT: Final = "persistent: what MPI starts by a handle, a plan cannot see started"
UNCOVERED: Final = "no plan covers it"
OBJECTS: Final = "objects"

_VECTORS: Final = (
    *("Gatherv", "Scatterv", "Allgatherv", "Alltoallv", "Alltoallw", "Reduce_scatter"),
)
_NEIGHBORS: Final = (
    *("Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv"),
    "Neighbor_alltoallw",
)
_OBJECTS: Final = (
    *("bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan"),
    "exscan",
)
_DEFAULTS: Final = {"op": MPI.SUM, "root": 0}


def counted(name: str, why: str) -> Callable[..., Any]:
    """Return a method that no plan covers: native, and counted."""
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if self._family is None:
            return native(self, *args, **options)
        return _count(self, native, why, args, options)

    return method


def _count(comm: Any, native: Any, why: str, args: Any, options: Any) -> Any:
    begin = perf_counter()
    found = native(comm, *args, **options)
    n_bytes = 0 if why == OBJECTS else _bytes_of((*args, *options.values()))
    row = comm._family.statistics.row(native.__name__, "native", why, comm.Get_size(), n_bytes)
    row.calls += 1
    row.seconds += perf_counter() - begin
    return found


def _bytes_of(arguments: Iterable[Any]) -> int:
    """Return the bytes of a call's first buffer on this rank: what it sends, if it sends.

    0 where that cannot be told.
    """
    for given in arguments:
        if given is None or given is MPI.IN_PLACE:
            continue
        try:
            return _bytes_in(given)
        except Exception:  # native MPI has taken it
            return 0
    return 0


def _bytes_in(given: Any) -> int:
    """Return the bytes of a buffer, or of one with counts, displacements and datatypes."""
    if not isinstance(given, list | tuple):
        return memoryview(given).nbytes
    buffer, *rest = given
    sizes: Any = memoryview(buffer).itemsize
    if isinstance(rest[-1], str | MPI.Datatype):
        datatype = rest.pop()
        sizes = (MPI._typedict[datatype] if isinstance(datatype, str) else datatype).Get_size()
    elif isinstance(rest[-1], list | tuple) and isinstance(rest[-1][0], MPI.Datatype):
        sizes = [datatype.Get_size() for datatype in rest.pop()]
    if not rest or rest[0] is None:
        return memoryview(buffer).nbytes
    counts = rest[0][0] if isinstance(rest[0], tuple) else rest[0]  # (counts, displacements)
    return int(np.sum(np.multiply(counts, sizes)))


def nonblocking(name: str) -> Callable[..., Any]:
    """Return the method that starts a collective without blocking, as the table says."""
    kind, native = KINDS[name], getattr(MPI.Intracomm, f"I{name}")
    if not kind.traits.has_data:
        names: tuple[str, ...] = ()
    elif kind.traits.has_one_buffer:
        names = "buf", "root"
    else:
        names = ("sendbuf", "recvbuf", *(("op",) if kind.reduces else ()))
        names += ("root",) if kind.traits.is_rooted else ()

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        planned = self._nonblocking
        if self._family is None:
            return native(self, *args, **options)
        if planned is None or isinstance(planned, str):
            return _count(self, native, planned or NOT_MADE, args, options)
        if len(args) == len(names) and not options:
            return planned.start(kind, partial(native, self), args)
        values = {**_DEFAULTS, **dict(zip(names, args, strict=False)), **options}
        try:
            given = tuple(values[each] for each in names)
        except KeyError:
            return native(self, *args, **options)
        if len(args) > len(names) or not options.keys() <= set(names[len(args) :]):
            return native(self, *args, **options)
        return planned.start(kind, partial(native, self), given)

    return method


def forms() -> dict[str, Callable[..., Any]]:
    """Return the methods of all communicators, by name."""
    made = {}
    for name in _OBJECTS:
        made[name] = counted(name, OBJECTS)
    for name in _VECTORS:
        made[name] = counted(name, UNCOVERED)
        made[f"I{name.lower()}"] = counted(f"I{name.lower()}", UNCOVERED)
        made[f"{name}_init"] = counted(f"{name}_init", UNCOVERED)
    for name in KINDS:
        made[f"I{name}"] = nonblocking(name)
        made[f"{name.capitalize()}_init"] = counted(f"{name.capitalize()}_init", PERSISTENT)
    return made


def topological_forms() -> dict[str, Callable[..., Any]]:
    """Return the methods of communicators with a topology, by name."""
    return {
        form: counted(form, UNCOVERED)
        for name in _NEIGHBORS
        for form in (name, f"I{name.lower()}", f"{name}_init", name.lower())
        if hasattr(MPI.Topocomm, form)
    }
