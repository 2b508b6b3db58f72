"""Collective methods of drop-in communicators, which run by plans or natively."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.arguments import KINDS, Kind, is_in_place, keyed
from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.config import Config
from collplan.dropin.nonblocking import NOT_MADE, NonBlockingPlans
from collplan.dropin.nonblocking_setup import FutureSetup

PERSISTENT: Final = "persistent: MPI does not tell a plan when its request is started"
UNCOVERED: Final = "no plan covers it"
OBJECTS: Final = "objects"


def _all_forms(*names: str) -> list[str]:
    """Return the blocking, non-blocking and persistent forms of collectives."""
    return [form for one in names for form in (one, f"I{one.lower()}", f"{one}_init")]


COUNTED: Final[Mapping[str, Sequence[str]]] = {
    OBJECTS: [name for name in KINDS if name not in ("barrier", "reduce_scatter_block")],
    UNCOVERED: ["Alltoallw", "Ialltoallw", "Alltoallw_init"],
    PERSISTENT: [f"{name.capitalize()}_init" for name in KINDS],
}
"""Methods that always run natively and are only counted, by the reason shown in the statistics."""
COUNTED_ON_TOPOLOGIES: Final[Mapping[str, Sequence[str]]] = {
    UNCOVERED: [
        *("neighbor_allgather", "neighbor_alltoall"),
        *_all_forms("Neighbor_allgather", "Neighbor_allgatherv"),
        *_all_forms("Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"),
    ]
}
"""Further methods of communicators with a topology that are only counted, by reason."""
_SUM: Final = MPI.SUM
_ARRAY: Final = np.ndarray
_view: Final = MPI.buffer.frombuffer
_BARRIER, _BCAST, _GATHER, _SCATTER, _ALLGATHER, _ALLTOALL = (
    KINDS[name] for name in ("barrier", "bcast", "gather", "scatter", "allgather", "alltoall")
)
_GATHERV, _SCATTERV, _ALLGATHERV, _ALLTOALLV, _REDUCE_SCATTER = (
    KINDS[name] for name in ("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter")
)
_REDUCE, _ALLREDUCE, _REDUCE_BLOCKS, _SCAN, _EXSCAN = (
    KINDS[name] for name in ("reduce", "allreduce", "reduce_scatter_block", "scan", "exscan")
)


class Collectives:
    """Collectives of mpi4py on buffers, mixed into its communicators.

    Blocking methods run the plan that the tuning table chooses, or the native collective.
    Non-blocking methods start the plan or the native collective, and return a request.
    Parameters, results and errors are those of mpi4py.
    """

    _config: Config | None = None
    _plans: BlockingPlans | None = None
    _nonblocking: NonBlockingPlans | FutureSetup | str | None = None
    """Non-blocking plans, what makes them, or the reason why there are none."""

    def Barrier(self) -> Any:
        """Wait until all ranks have called this method."""
        return _call(self, self._plans, _BARRIER, (), None, None, None, 0)

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""
        self.Barrier()

    def Bcast(self, buf: Any, root: int = 0) -> Any:
        """Broadcast a buffer from the root to all ranks."""
        return _call(self, self._plans, _BCAST, (buf, root), None, buf, None, root)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Gather blocks of equal size to the root."""
        return _call(
            self, self._plans, _GATHER, (sendbuf, recvbuf, root), sendbuf, recvbuf, None, root
        )

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Scatter blocks of equal size from the root."""
        return _call(
            self, self._plans, _SCATTER, (sendbuf, recvbuf, root), sendbuf, recvbuf, None, root
        )

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Gather blocks of equal size to all ranks."""
        return _call(self, self._plans, _ALLGATHER, (sendbuf, recvbuf), sendbuf, recvbuf, None, 0)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Send a block of equal size from every rank to every rank."""
        return _call(self, self._plans, _ALLTOALL, (sendbuf, recvbuf), sendbuf, recvbuf, None, 0)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM, root: int = 0) -> Any:
        """Reduce the buffers of all ranks to the root."""
        return _call(
            self, self._plans, _REDUCE, (sendbuf, recvbuf, op, root), sendbuf, recvbuf, op, root
        )

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Reduce the buffers of all ranks to all ranks."""
        return _call(self, self._plans, _ALLREDUCE, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Reduce the buffers of all ranks, and scatter the result in blocks of equal size."""
        return _call(
            self, self._plans, _REDUCE_BLOCKS, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0
        )

    def Scan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Compute an inclusive scan: reduce, on each rank, the buffers of ranks up to this one."""
        return _call(self, self._plans, _SCAN, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Compute an exclusive scan: reduce, on each rank, the buffers of lower ranks."""
        return _call(self, self._plans, _EXSCAN, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Gather blocks of any size to the root."""
        given = sendbuf, recvbuf, root
        return _call_vector(self, self._plans, _GATHERV, given, sendbuf, recvbuf, root=root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Scatter blocks of any size from the root."""
        given = sendbuf, recvbuf, root
        return _call_vector(self, self._plans, _SCATTERV, given, sendbuf, recvbuf, root=root)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Gather blocks of any size to all ranks."""
        given = sendbuf, recvbuf
        return _call_vector(self, self._plans, _ALLGATHERV, given, sendbuf, recvbuf)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Send a block of any size from every rank to every rank."""
        given = sendbuf, recvbuf
        return _call_vector(self, self._plans, _ALLTOALLV, given, sendbuf, recvbuf)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = _SUM
    ) -> Any:
        """Reduce the buffers of all ranks, and scatter the result in blocks of any size."""
        given = sendbuf, recvbuf, recvcounts, op
        return _call_vector(
            self, self._plans, _REDUCE_SCATTER, given, sendbuf, recvbuf, recvcounts, op
        )

    def Ibarrier(self) -> Any:
        """Start `Barrier`."""
        return _start(self, _BARRIER, (), None, None, None, 0)

    def Ibcast(self, buf: Any, root: int = 0) -> Any:
        """Start `Bcast`."""
        return _start(self, _BCAST, (buf, root), None, buf, None, root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start `Gather`."""
        return _start(self, _GATHER, (sendbuf, recvbuf, root), sendbuf, recvbuf, None, root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start `Scatter`."""
        return _start(self, _SCATTER, (sendbuf, recvbuf, root), sendbuf, recvbuf, None, root)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start `Allgather`."""
        return _start(self, _ALLGATHER, (sendbuf, recvbuf), sendbuf, recvbuf, None, 0)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start `Alltoall`."""
        return _start(self, _ALLTOALL, (sendbuf, recvbuf), sendbuf, recvbuf, None, 0)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM, root: int = 0) -> Any:
        """Start `Reduce`."""
        return _start(self, _REDUCE, (sendbuf, recvbuf, op, root), sendbuf, recvbuf, op, root)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Start `Allreduce`."""
        return _start(self, _ALLREDUCE, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Start `Reduce_scatter_block`."""
        return _start(self, _REDUCE_BLOCKS, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Start `Scan`."""
        return _start(self, _SCAN, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        """Start `Exscan`."""
        return _start(self, _EXSCAN, (sendbuf, recvbuf, op), sendbuf, recvbuf, op, 0)

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start `Gatherv`."""
        return _start_vector(self, _GATHERV, (sendbuf, recvbuf, root), sendbuf, recvbuf)

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        """Start `Scatterv`."""
        return _start_vector(self, _SCATTERV, (sendbuf, recvbuf, root), sendbuf, recvbuf)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start `Allgatherv`."""
        return _start_vector(self, _ALLGATHERV, (sendbuf, recvbuf), sendbuf, recvbuf)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Start `Alltoallv`."""
        return _start_vector(self, _ALLTOALLV, (sendbuf, recvbuf), sendbuf, recvbuf)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: MPI.Op = _SUM
    ) -> Any:
        """Start `Reduce_scatter`."""
        given = sendbuf, recvbuf, recvcounts, op
        return _start_vector(self, _REDUCE_SCATTER, given, sendbuf, recvbuf, recvcounts, op)


def _call(
    comm: Any, plans: Any, kind: Kind, given: Any, sendbuf: Any, recvbuf: Any, op: Any, root: int
) -> Any:
    """Run or start a collective by the route of its call.

    The route is looked up by a key of the arguments. The key contains all properties of the
    arguments on which the route depends, but no addresses. Sizes and addresses of buffers are
    read in every call, as the buffers may have been freed, resized or made read-only. The tuple
    `given` has the arguments in the order of mpi4py's method; the parameters from `sendbuf` to
    `root` are the same arguments by role. If `plans` is None, mpi4py's blocking method is called.
    """
    if plans is None:
        return kind.natives[True](comm, *given)
    sends, receives = kind.used_by_root if root == plans.rank else kind.used_by_others
    sent_at = received_at = sent_bytes = received_bytes = 0
    sent_as = received_as = arguments = None
    key: Any
    try:
        if sends:
            if type(sendbuf) is _ARRAY:
                view = _view(sendbuf, True)
                sent_at, sent_bytes, sent_as = view.address, view.nbytes, sendbuf.dtype
            else:
                sent_bytes, sent_as, sent_at = keyed(sendbuf, True)
        if receives:
            if type(recvbuf) is _ARRAY:
                view = _view(recvbuf)
                received_at, received_bytes, received_as = view.address, view.nbytes, recvbuf.dtype
            else:
                received_bytes, received_as, received_at = keyed(recvbuf, False)
        if op is not None:
            key = kind, op.handle, root, sent_bytes, sent_as, received_bytes, received_as
        elif not sends:
            key = (kind, root, received_bytes, received_as) if receives else kind
        else:
            key = kind, root, sent_bytes, sent_as, received_bytes, received_as
        route = plans.ready.get(key)
    except Exception:  # the arguments have no key
        key = route = None
    # MPI may reject buffers at the same address; only `find` checks that.
    if route is None or (sent_at == received_at and sends and receives):
        route, sent_at, received_at, arguments = plans.find(key, kind, sendbuf, recvbuf, op, root)
    begin = perf_counter()
    if route.native is not None:
        result = _run_native(route, comm, given)
    else:
        if route is not plans.latest:
            plans.kept.move_to_end(route.number)
            plans.latest = route
        if sent_at == route.sent_at and received_at == route.received_at:
            result = route.bound()
        elif sent_at is not None and route.use(sent_at, received_at):
            result = plans.run(route, sent_at, received_at, given)
        else:
            arguments = arguments or plans.read(kind, sendbuf, recvbuf, root)
            result = plans.run_staged(route, arguments, given)
    row = route.row
    row.calls += 1
    row.seconds += perf_counter() - begin
    return result


def _run_native(route: Any, comm: Any, given: Any) -> Any:
    """Call the native method of a route; take the call back if other ranks still wait for it."""
    try:
        return route.native(comm, *given)
    except Exception as error:
        route.take_back(error)
        raise


def _start(
    comm: Any,
    kind: Kind,
    given: tuple[Any, ...],
    *arguments: Any,
    call: Callable[..., Any] = _call,
) -> Any:
    """Start a non-blocking collective by `call`, whose last parameters are `arguments`."""
    plans = comm._nonblocking
    if comm._config is None:
        return kind.natives[False](comm, *given)
    if not isinstance(plans, NonBlockingPlans):
        why = plans.request(kind.name) if isinstance(plans, FutureSetup) else plans or NOT_MADE
        return _count(comm, kind.natives[False], why, given, {})
    return call(comm, plans, kind, given, *arguments)


def _call_vector(
    comm: Any,
    plans: Any,
    kind: Kind,
    given: Any,
    sendbuf: Any,
    recvbuf: Any,
    recvcounts: Any = None,
    op: Any = None,
    root: int = 0,
) -> Any:
    """Run or start a collective whose counts differ per rank, by the route of its call.

    Counts are read in every call, as the contents of lists and arrays may have changed. The
    parameters are those of `_call` and mpi4py.
    """
    if plans is None:
        return kind.natives[True](comm, *given)
    statistics = comm._config.statistics
    begin = perf_counter() - statistics.making_s
    route, arguments = plans.find_vector(kind, sendbuf, recvbuf, recvcounts, op, root)
    if isinstance(route, str):
        native = kind.natives[plans.is_blocking]
        return _count(comm, native, route, given, {}, plans.name_of(kind.name))
    if route.native is not None:
        result = _run_native(route, comm, given)
    else:
        result = plans.run_vector(route, arguments, given)
    route.row.calls += 1
    route.row.seconds += perf_counter() - statistics.making_s - begin
    return result


def _start_vector(comm: Any, kind: Kind, given: tuple[Any, ...], *arguments: Any) -> Any:
    """Start a non-blocking collective whose counts differ per rank."""
    return _start(comm, kind, given, *arguments, call=_call_vector)


def counted(names: Mapping[str, Sequence[str]]) -> Iterator[Callable[..., Any]]:
    """Yield methods that call mpi4py and count the call, for all names that mpi4py has.

    Parameters
    ----------
    names : mapping of str to sequence of str
        Names of methods by the reason why the methods are native.
    """
    for why, methods in names.items():
        for name in methods:
            if hasattr(MPI.Cartcomm, name):
                yield _counted(name, why)


def _counted(name: str, why: str) -> Callable[..., Any]:
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if self._config is None:
            return native(self, *args, **options)
        return _count(self, native, why, args, options)

    return method


def _count(
    comm: Any, native: Any, why: str, args: Any, options: Any, name: str | None = None
) -> Any:
    """Call a native method, and count the call in the statistics."""
    begin = perf_counter()
    result = native(comm, *args, **options)
    n_bytes = 0 if why == OBJECTS else _bytes_of((*args, *options.values()))
    name = name or native.__name__
    row = comm._config.statistics.row(name, "native", why, comm.Get_size(), n_bytes)
    row.calls += 1
    row.seconds += perf_counter() - begin
    return result


def _bytes_of(arguments: Iterable[Any]) -> int:
    """Return the size in bytes of the first buffer of a call on this rank; 0 if it is unknown.

    The first buffer is the send buffer, if the rank passes one.
    """
    try:
        return _bytes_in(next(one for one in arguments if not is_in_place(one)))
    except Exception:  # not an error, as MPI has accepted the arguments
        return 0


def _bytes_in(given: Any) -> int:
    """Return the size of an argument in bytes, from its counts or, without them, its buffer."""
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
