"""Collective methods of drop-in communicators, which run by plans or natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.arguments import KINDS, Kind, is_in_place, keyed
from collplan.dropin.blocking import BlockingPlans
from collplan.dropin.buffer_sizes import bytes_of, first_of
from collplan.dropin.config import Config
from collplan.dropin.nonblocking_setup import FutureSetup
from collplan.dropin.persistent import CountedPrequest
from collplan.dropin.plan_cache import PlanCache
from collplan.dropin.statistics import OBJECTS, Row

PERSISTENT: Final = "persistent: MPI does not tell a plan when its request is started"
UNCOVERED: Final = "no plan covers it"
NOT_MADE: Final = "non-blocking: the communicator was created by a non-blocking call"


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
_FIRST: Final = object()
_NO_OPTIONS: Final[Mapping[str, Any]] = {}
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
    _rows: dict[tuple[str, str, int], Row]
    """Rows of native calls by name, reason and class of the size."""
    _plans: BlockingPlans | None = None
    _nonblocking: PlanCache | FutureSetup | str | None = None
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
    arguments on which the route depends, but no addresses. Sizes and addresses are read in every
    call, as they may change. `given` has the arguments in mpi4py's order, the others by role.
    """
    if plans is None:
        return kind.natives[True](comm, *given)
    why = plans.natives.get(kind.name)
    if why is not None and plans.pending_task is None:
        return _count_regular(comm, kind, why, given, sendbuf, recvbuf, root)
    sends, receives = kind.used_by_root if root == plans.rank else kind.used_by_others
    sent_at, received_at = None if sends else 0, None if receives else 0
    sent_bytes = received_bytes = sent_as = received_as = arguments = None
    key: Any
    try:
        if sends:
            if type(sendbuf) is _ARRAY:
                sent_bytes, sent_as = sendbuf.nbytes, sendbuf.dtype
            else:
                sent_bytes, sent_as, sent_at = keyed(sendbuf, True)
        if receives:
            if type(recvbuf) is _ARRAY:
                received_bytes, received_as = recvbuf.nbytes, recvbuf.dtype
            else:
                received_bytes, received_as, received_at = keyed(recvbuf, False)
        key = kind, op and op.handle, root, sent_bytes, sent_as, received_bytes, received_as
        route = plans.ready.get(key)
        if route is None or route.native is None:
            # Only plans need addresses. A view fails if mpi4py does not accept the array.
            if sent_at is None:
                sent_at = _view(sendbuf, True).address
            if received_at is None:
                received_at = _view(recvbuf).address
            if sends and sent_at == received_at:
                route = None  # MPI may reject that, which only `find` checks
    except Exception:  # the arguments have no key
        key = route = None
    if route is None:
        route, sent_at, received_at, arguments = plans.find(key, kind, sendbuf, recvbuf, op, root)
    begin = perf_counter()
    if route.native is not None:
        result = _run_native(route, comm, given)
    else:
        if route is not plans.latest:
            plans.note_use(route)
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
    plans, native = comm._nonblocking, kind.natives[False]
    if comm._config is None:
        return native(comm, *given)
    why = comm._config.nonblocking_natives.get(kind.name)
    if why is None:
        if isinstance(plans, PlanCache):
            return call(comm, plans, kind, given, *arguments)
        why = plans.request() if isinstance(plans, FutureSetup) else plans or NOT_MADE
    return _count(comm, native, why, given, _NO_OPTIONS, native.__name__)


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
    why = plans.natives.get(kind.name)
    if why is not None:
        return _count(comm, kind.natives[True], why, given, _NO_OPTIONS, kind.name)
    statistics = comm._config.statistics
    begin = perf_counter() - statistics.making_s
    route, arguments = plans.find_vector(kind, sendbuf, recvbuf, recvcounts, op, root)
    if isinstance(route, str):
        native = kind.natives[plans.is_blocking]
        return _count(comm, native, route, given, _NO_OPTIONS, plans.name_of(kind.name))
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

    label, default = native.__name__, None if why == OBJECTS else _FIRST

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if self._config is None:
            return native(self, *args, **options)
        if name.endswith("_init"):
            row = _native_row(self, label, why, first_of(args, options))
            return CountedPrequest.of(native(self, *args, **options), row)
        return _count(self, native, why, args, options, label, default)

    return method


def _count(
    comm: Any,
    native: Any,
    why: str,
    given: Any,
    options: Any,
    name: str,
    buffer: Any = _FIRST,
    blocks: int = 1,
) -> Any:
    """Call a native method, and count the call in the statistics.

    Parameters
    ----------
    comm, native, why, given, options, name : object
        Communicator, mpi4py's method, the reason why it is called, its arguments, and the name of
        the call in the statistics.
    buffer : object
        Buffer whose size is counted; None if there is none. By default it is the first one of this
        rank, which is the send buffer if the rank passes one.
    blocks : int
        Number of equal blocks in the buffer, of which the size of one is counted.
    """
    begin = perf_counter()
    result = native(comm, *given, **options) if options else native(comm, *given)
    seconds = perf_counter() - begin
    if buffer is _FIRST:
        buffer = first_of(given, options)
    row = _native_row(comm, name, why, buffer, blocks)
    row.calls += 1
    row.seconds += seconds
    return result


def _native_row(comm: Any, name: str, why: str, buffer: Any, blocks: int = 1) -> Row:
    """Return the row of a native call, given the buffer whose size is counted."""
    n_bytes = buffer.nbytes // blocks if type(buffer) is _ARRAY else bytes_of(buffer, blocks)
    key = name, why, comm._config.statistics.size_class(n_bytes)
    row: Row | None = comm._rows.get(key)
    if row is None:
        row = comm._config.statistics.row(name, "native", why, comm.Get_size(), n_bytes)
        comm._rows[key] = row
    elif n_bytes < row.least_bytes:
        row.least_bytes = n_bytes
    elif n_bytes > row.most_bytes:
        row.most_bytes = n_bytes
    return row


def _count_regular(
    comm: Any, kind: Kind, why: str, given: Any, sendbuf: Any, recvbuf: Any, root: int
) -> Any:
    """Call the blocking native method of a kind with equal counts, and count the call."""
    plans, traits, blocks = comm._plans, kind.traits, 1
    sends, receives = kind.used_by_root if root == plans.rank else kind.used_by_others
    if sends and (type(sendbuf) is _ARRAY or not is_in_place(sendbuf)):
        buffer = sendbuf
        if traits.sends_blocks:
            blocks = plans.size
    else:
        buffer = recvbuf if receives else None
        if traits.receives_blocks or (sends and traits.sends_blocks):
            blocks = plans.size
    return _count(comm, kind.natives[True], why, given, _NO_OPTIONS, kind.name, buffer, blocks)
