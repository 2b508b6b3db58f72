"""mpi4py's methods, where a drop-in does more than mpi4py: plan, count, or hand itself on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from mpi4py import MPI

from collplan.dropin.agreement import Different, run_different
from collplan.dropin.call_keys import IN_PLACE_AT, find_key
from collplan.dropin.calls import CollectiveCall
from collplan.dropin.nonblocking import NonBlocking
from collplan.dropin.plans import Plans
from collplan.dropin.routes import Route
from collplan.dropin.signatures import KINDS, Arguments, Kind, read_arguments, read_broadcast
from collplan.dropin.staging import run_staged
from collplan.dropin.uncovered_calls import forms, topological_forms
from collplan.executors.mpi.errors import one_line

if TYPE_CHECKING:
    from collplan.dropin.config import Family
    from collplan.dropin.nonblocking_setup import Ground
    from collplan.dropin.statistics import Statistics

_NDARRAY: Final = np.ndarray
_view: Final = MPI.buffer.frombuffer
_SUM: Final = MPI.SUM
Key = tuple[Any, ...] | None
_NO_KEY: Key = None
_BARRIER, _BCAST, _REDUCE = KINDS["barrier"], KINDS["bcast"], KINDS["reduce"]


class Planned:
    """What drop-ins of all topologies have in common; mixed into mpi4py's classes."""

    forms: ClassVar[dict[type, type]] = {}
    """The drop-in for each of mpi4py's classes."""
    _family: Family | None = None
    _plans: Plans | None = None
    _ground: Ground | None = None
    _nonblocking: NonBlocking | str | None = None
    """What starts plans without blocking, or why nothing does."""

    def stats(self) -> Statistics:
        """Return what ran, on this communicator and all of its family.

        Print it, with rich or without, or take `Statistics.as_dict`.
        """
        if self._family is None:
            raise TypeError("the null communicator has run nothing")
        return self._family.statistics

    def __reduce__(self) -> Any:
        """Let the world be pickled by its name, as mpi4py does; others cannot be."""
        for name in ("COMM_WORLD", "COMM_SELF"):
            if self == getattr(MPI, name):
                return _predefined, (name,)
        return super().__reduce__()

    def let_go(self) -> None:
        """Free the plans of this communicator; collective. Calls make them anew."""
        if isinstance(self._nonblocking, NonBlocking):
            self._nonblocking.finish()
        if self._plans is not None:
            self._plans.free()

    def Barrier(self) -> Any:
        """Wait for all ranks, as the table says."""
        if self._plans is None:
            return _native_barrier(self)
        entry = self._plans.ready.get(("barrier",))
        if entry is None:
            return _run_read(self, _BARRIER, _native_barrier, (), ("barrier",))
        return _run(self, entry, 0, 0, _native_barrier, ())

    def barrier(self) -> None:
        """Wait for all ranks, as the table says."""
        self.Barrier()

    def Bcast(self, buf: Any, root: int = 0) -> Any:
        """Broadcast, as the table says."""
        plans, key = self._plans, _NO_KEY
        if plans is None:
            return _native_bcast(self, buf, root)
        if type(buf) is _NDARRAY:
            try:
                there = _view(buf)
                key = "bcast", root, there.nbytes, buf.dtype
                entry = plans.ready.get(key)
            except Exception:
                key = entry = None  # mpi4py is to say what is wrong
            if entry is not None:
                return _run(self, entry, 0, there.address, _native_bcast, (buf, root))
        return _run_slowly(self, _BCAST, _native_bcast, (buf, root), key)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM, root: int = 0) -> Any:
        """Reduce to the root, as the table says."""
        plans, key = self._plans, _NO_KEY
        given = sendbuf, recvbuf, op, root
        if plans is None:
            return _native_reduce(self, *given)
        is_root = root == plans.rank
        if type(sendbuf) is _NDARRAY and (type(recvbuf) is _NDARRAY or not is_root):
            try:
                sent = _view(sendbuf, True)
                address = 0
                if is_root:
                    received = _view(recvbuf)
                    address = received.address
                    mine = received.nbytes, recvbuf.dtype
                    key = "reduce", op.handle, root, sent.nbytes, sendbuf.dtype, *mine
                else:
                    key = "reduce", op.handle, root, sent.nbytes, sendbuf.dtype
                entry = plans.ready.get(key)
            except Exception:
                key = entry = None  # mpi4py is to say what is wrong
            if entry is not None:
                return _run(self, entry, sent.address, address, _native_reduce, given)
        return _run_slowly(self, _REDUCE, _native_reduce, given, key)

    def Free(self) -> None:
        """Free the communicator and its plans."""
        self._leave()
        super().Free()  # type: ignore[misc]

    def Disconnect(self) -> None:
        """Disconnect the communicator, and free its plans."""
        self._leave()
        super().Disconnect()  # type: ignore[misc]

    def _join(self, family: Family) -> None:
        self._family = family
        self._plans = family.plans(cast("MPI.Intracomm", self))

    def _settle_on(self, ground: Ground | str) -> None:
        """Use a ground for non-blocking collectives, or say why there is none."""
        if isinstance(ground, str):
            self._nonblocking = ground
        elif self._plans is not None and self._family is not None:
            self._ground = ground
            self._nonblocking = NonBlocking(self._plans, ground, self._family.nonblocking_from)

    def _leave(self) -> None:
        if self._plans is not None and self not in (MPI.COMM_WORLD, MPI.COMM_SELF):
            if self._ground is not None and isinstance(self._nonblocking, NonBlocking):
                self._nonblocking.finish()
                self._ground.comm.Free()
                self._nonblocking = self._ground = None
            self._plans.free()
            self._plans = None

    def _adopt(self, made: Any, waits: bool) -> Any:
        """Return a communicator made from this one as a drop-in of the same family.

        Where the call that made it `waits` for all of its ranks, they may meet again.
        """
        if isinstance(made, tuple):
            return (self._adopt(made[0], waits), *made[1:])
        if self._family is None:
            return made
        if not isinstance(made, Planned):
            form = self.forms.get(type(made))
            if form is None:
                return made
            made = form.__new__(form, made)
        made._join(self._family)
        if waits and self._ground is not None and made._plans is not None:
            try:
                made._settle_on(self._ground.below(MPI.Intracomm(made)))
            except MPI.Exception as error:  # on all ranks: MPI's communicators are few
                made._settle_on(f"non-blocking: {one_line(error)}")
        return made


class Topological(Planned):
    """What drop-ins with a topology have besides."""


def _predefined(name: str) -> Any:
    """Return what a name stands for where a pickle is opened."""
    return getattr(MPI, name)


def _run(
    comm: Any, entry: Route, sent_at: int, received_at: int, native: Any, given: tuple[Any, ...]
) -> Any:
    """Run an entry on plain memory at two addresses, or natively."""
    row = entry.row
    begin = perf_counter()
    if entry.is_native:
        native(comm, *given)
    else:
        comm._plans.kept.move_to_end(entry.number)
        if (sent_at == entry.sent_at and received_at == entry.received_at) or entry.use(
            sent_at, received_at
        ):
            entry.bound()  # type: ignore[misc]
        else:
            run_staged(
                entry, _read(comm._plans, KINDS[entry.request.kind], given), comm._plans.rank
            )
    row.calls += 1
    row.seconds += perf_counter() - begin


def _run_slowly(comm: Any, kind: Kind, native: Any, given: tuple[Any, ...], key: Key) -> None:
    """Run what the arguments ask for, in any of the forms that mpi4py knows."""
    if key is None:
        plans: Plans = comm._plans
        found = find_key(kind, *_parts(kind, given), plans.rank)
        if found is not None:
            key, sent_at, received_at = found
            entry = plans.ready.get(key)
            if entry is not None:
                _run(comm, entry, sent_at, received_at, native, given)
                return
    _run_read(comm, kind, native, given, key)


def _run_read(comm: Any, kind: Kind, native: Any, given: tuple[Any, ...], key: Key) -> None:
    """Run what the arguments ask for, whatever they look like; `key` finds it again."""
    plans: Plans = comm._plans
    try:
        arguments = _read(plans, kind, given)
        request = _request(plans, arguments, *_parts(kind, given)[2:])
    except Exception:
        # What cannot be understood mpi4py refuses, and says why.
        native(comm, *given)
        return
    try:
        entry = plans.entry(request)
    except Different as found:
        run_different(comm, native, given, request, found.requests)
        return
    if entry.is_native or arguments.is_plain(entry.itemsize):
        if key is not None and entry.is_settled:
            plans.remember(key, entry)
        _run(comm, entry, *_addresses(arguments), native, given)
        return
    row = entry.row
    begin = perf_counter()
    plans.kept.move_to_end(entry.number)
    run_staged(entry, arguments, plans.rank)
    row.calls += 1
    row.seconds += perf_counter() - begin


def _parts(kind: Kind, given: tuple[Any, ...]) -> tuple[Any, Any, MPI.Op | None, int]:
    """Return send and receive buffer, operation and root, as a method was given them."""
    if kind is _BCAST:
        return None, given[0], None, given[1]
    n_given = len(given)
    if n_given == 0:
        return None, None, None, 0
    op = given[2] if kind.reduces else None
    root = given[-1] if n_given == 4 or (n_given == 3 and op is None) else 0
    return given[0], given[1], op, root


def _addresses(arguments: Arguments) -> tuple[int, int]:
    """Return where a rank's buffers are, `IN_PLACE_AT` for the one that is in place."""
    sent, received = arguments.sent, arguments.received
    places = [0 if one is None else one.address for one in (sent, received)]
    if arguments.is_in_place:
        places[0 if sent is None else 1] = IN_PLACE_AT
    return places[0], places[1]


def _read(plans: Plans, kind: Kind, given: tuple[Any, ...]) -> Arguments:
    sendbuf, recvbuf, _, root = _parts(kind, given)
    if not 0 <= root < plans.size:
        raise ValueError("there is no such root")
    if kind is _BCAST:
        return read_broadcast(recvbuf, plans.rank == root)
    return read_arguments(kind, sendbuf, recvbuf, plans.size, plans.rank == root)


def _request(plans: Plans, arguments: Arguments, op: MPI.Op | None, root: int) -> CollectiveCall:
    name = None if op is None else plans.operations.get(op.handle)
    kind, n_bytes = arguments.kind.name, arguments.n_bytes
    return CollectiveCall(kind, n_bytes, root, name, arguments.element_name)


def _moving(name: str) -> Callable[..., Any]:
    """Return the method of a collective that has two buffers and no more."""
    kind = KINDS[name]
    native: Any = getattr(MPI.Intracomm, name.capitalize())

    @wraps(native)
    def method(self: Any, sendbuf: Any, recvbuf: Any) -> Any:
        plans, key = self._plans, _NO_KEY
        given = sendbuf, recvbuf
        if plans is None:
            return native(self, *given)
        if type(sendbuf) is _NDARRAY and type(recvbuf) is _NDARRAY:
            try:
                sent, received = _view(sendbuf, True), _view(recvbuf)
                key = name, sent.nbytes, sendbuf.dtype, received.nbytes, recvbuf.dtype
                entry = plans.ready.get(key)
            except Exception:
                key = entry = None  # mpi4py is to say what is wrong
            if entry is not None:
                return _run(self, entry, sent.address, received.address, native, given)
        return _run_slowly(self, kind, native, given, key)

    return method


def _reducing(name: str) -> Callable[..., Any]:
    """Return the method of a collective that has two buffers and an operation."""
    kind = KINDS[name]
    native: Any = getattr(MPI.Intracomm, name.capitalize())

    @wraps(native)
    def method(self: Any, sendbuf: Any, recvbuf: Any, op: MPI.Op = _SUM) -> Any:
        plans, key = self._plans, _NO_KEY
        given = sendbuf, recvbuf, op
        if plans is None:
            return native(self, *given)
        if type(sendbuf) is _NDARRAY and type(recvbuf) is _NDARRAY:
            try:
                sent, received = _view(sendbuf, True), _view(recvbuf)
                sizes = sent.nbytes, received.nbytes
                key = name, op.handle, *sizes, sendbuf.dtype, recvbuf.dtype
                entry = plans.ready.get(key)
            except Exception:
                key = entry = None  # mpi4py is to say what is wrong
            if entry is not None:
                return _run(self, entry, sent.address, received.address, native, given)
        return _run_slowly(self, kind, native, given, key)

    return method


def _rooted(name: str) -> Callable[..., Any]:
    """Return the method of gather or scatter, whose root alone has the large buffer."""
    kind = KINDS[name]
    native: Any = getattr(MPI.Intracomm, name.capitalize())
    is_gather = name == "gather"

    @wraps(native)
    def method(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Any:
        plans, key = self._plans, _NO_KEY
        given = sendbuf, recvbuf, root
        if plans is None:
            return native(self, *given)
        is_root = root == plans.rank
        sends, receives = is_gather or is_root, is_root or not is_gather
        if (type(sendbuf) is _NDARRAY or not sends) and (type(recvbuf) is _NDARRAY or not receives):
            try:
                sent_at = received_at = sent_bytes = received_bytes = 0
                sent_as = received_as = None
                if sends:
                    sent = _view(sendbuf, True)
                    sent_at, sent_bytes, sent_as = sent.address, sent.nbytes, sendbuf.dtype
                if receives:
                    received = _view(recvbuf)
                    received_at, received_bytes = received.address, received.nbytes
                    received_as = recvbuf.dtype
                key = name, root, sent_bytes, received_bytes, sent_as, received_as
                entry = plans.ready.get(key)
            except Exception:
                key = entry = None  # mpi4py is to say what is wrong
            if entry is not None:
                return _run(self, entry, sent_at, received_at, native, given)
        return _run_slowly(self, kind, native, given, key)

    return method


def making(name: str) -> Callable[..., Any]:
    """Return a method that makes a communicator: a drop-in of the same family."""
    waits = not name.startswith("I")
    native = getattr(MPI.Cartcomm, name)

    @wraps(native)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self._adopt(native(self, *args, **options), waits)

    return method


_native_barrier: Final[Any] = MPI.Intracomm.Barrier
_native_bcast: Final[Any] = MPI.Intracomm.Bcast
_native_reduce: Final[Any] = MPI.Intracomm.Reduce

_MAKING: Final = (
    *("Dup", "Clone", "Dup_with_info", "Idup", "Idup_with_info", "Create", "Create_group"),
    *("Split", "Split_type", "Shrink", "Ishrink", "Create_cart", "Create_graph"),
    *("Create_dist_graph", "Create_dist_graph_adjacent"),
)


def _fill() -> None:
    """Give `Planned` the methods that are alike."""
    for name in ("allgather", "alltoall"):
        setattr(Planned, name.capitalize(), _moving(name))
    for name in ("allreduce", "reduce_scatter_block", "scan", "exscan"):
        setattr(Planned, name.capitalize(), _reducing(name))
    for name in ("gather", "scatter"):
        setattr(Planned, name.capitalize(), _rooted(name))
    for name in _MAKING:
        if hasattr(MPI.Intracomm, name):
            setattr(Planned, name, making(name))
    for name, method in forms().items():
        setattr(Planned, name, method)
    for name, method in topological_forms().items():
        setattr(Topological, name, method)


_fill()
