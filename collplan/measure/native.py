"""The MPI library's own call for a collective, the reference for measurements of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.repeated import RepeatedCall
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.loop.entries import address_of
from collplan.executors.mpi.program.elements import Elements
from collplan.executors.mpi.program.messages import handle_of
from collplan.own_algorithms import native_call
from collplan.planner.arrays import Array, Ints
from collplan.planner.collective.operations import get_operation
from collplan.planner.collective.semantics import pair_layout
from collplan.specs.collectives.collective import Collective
from collplan.specs.collectives.graphs import CartesianGrid, EdgeList, Side
from collplan.specs.collectives.neighbors import Neighborhood

_MAX_INT: Final = 2**31 - 1
"""Largest count and displacement of MPI calls without large counts."""


class NativeCollective(AbstractContextManager["NativeCollective"]):
    """A native call whose arguments are prepared once, so that a call measures MPI alone.

    It is a context manager. The constructor creates operations that MPI does not predefine, and
    the communicator of a graph, which is collective over `comm`. The exit frees them.

    Parameters
    ----------
    collective : Collective
        Collective to run; `in_place` has the meaning that MPI defines.
    comm : MPI.Intracomm
        Communicator whose ranks all make the call.
    sendbuf, recvbuf : ndarray or None
        Buffers as for a plan; the buffer of a bcast is `recvbuf`.
    """

    def __init__(
        self,
        collective: Collective,
        comm: MPI.Intracomm,
        sendbuf: Array | None,
        recvbuf: Array | None,
    ) -> None:
        asked = collective.op
        operation = None if asked is None else get_operation(asked.name)
        commutative = asked is None or asked.commutative
        self._elements = Elements(collective.datatype, operation, commutative)
        self._datatype, mpi_op = self._elements.datatype, self._elements.operation
        _require_range(collective, comm.size)
        self._made = ExitStack()
        self._made.callback(self._elements.free)
        if isinstance(collective, Neighborhood):
            comm = topology_comm(collective.graph, comm)
            self._made.callback(comm.Free)
        find = self._arguments if collective.regular is None else self._vector_arguments
        sent, received = find(collective, comm, sendbuf, recvbuf)
        call = partial(_bound_call, collective, comm, sent, received, mpi_op)
        self._call, self._begin = call(""), call("I")
        self._kept: list[Array] = []
        self._in_c = partial(self._find_in_c, collective, comm, sent, received, mpi_op)
        self._repeated: RepeatedCall | None = None

    def __call__(self) -> None:
        """Run the collective; return when it is complete on this rank."""
        self._call()

    def repeat(self, n_calls: int) -> None:
        """Run the collective `n_calls` times, without Python between the calls.

        Collectives of your own, which MPI does not have, are called from Python.

        Raises
        ------
        MPI.Exception
            If a call fails.
        """
        if self._repeated is None:
            self._repeated = self._in_c()
        if self._repeated is None:
            for _ in range(n_calls):
                self._call()
            return
        for code in self._repeated.run(n_calls):
            raise MPI.Exception(code)

    def start(self) -> MPI.Request:
        """Start MPI's nonblocking form on the same buffers, and return its request."""
        return cast("MPI.Request", self._begin())

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def _arguments(
        self,
        collective: Collective,
        comm: MPI.Intracomm,
        sendbuf: Array | None,
        recvbuf: Array | None,
    ) -> tuple[Any, Any]:
        """Return MPI's send and receive arguments, cut to the elements of the collective."""
        sends = comm.size if collective.sends_blocks else 1
        receives = comm.size if collective.receives_blocks else 1
        in_place = collective.in_place and collective.root in (None, comm.rank)
        if in_place:
            receives = max(sends, receives)  # the input, of which the result may be a part
        sent = self._buffer(sendbuf, sends * collective.count)
        received = self._buffer(recvbuf, receives * collective.count)
        if in_place and collective.sender == "root":
            received = MPI.IN_PLACE
        elif in_place:
            sent = MPI.IN_PLACE
        return sent, received

    def _vector_arguments(
        self,
        collective: Collective,
        comm: MPI.Intracomm,
        sendbuf: Array | None,
        recvbuf: Array | None,
    ) -> tuple[Any, Any]:
        """Return the arguments of a vector collective, with counts and displacements."""
        rank, is_at_root = comm.rank, collective.root in (None, comm.rank)
        if isinstance(collective, Neighborhood):
            return self._neighbor_arguments(collective, comm, sendbuf, recvbuf)
        if collective.is_pairwise:
            counts, given, taken = pair_layout(collective, comm.size)
            sent = self._blocks(sendbuf, counts[rank], given[rank])
            received = self._blocks(recvbuf, counts[:, rank], taken[:, rank])
        else:
            counts, displs = collective.block_layout(comm.size)
            sent = self._buffer(sendbuf, int(counts[rank]))
            received = self._buffer(recvbuf, int(counts[rank]))
            if collective.has_op:
                sent = self._buffer(sendbuf, collective.count)
            elif collective.sends_blocks:
                sent = self._blocks(sendbuf, counts, displs) if is_at_root else None
            else:
                received = self._blocks(recvbuf, counts, displs) if is_at_root else None
        if not collective.in_place or not is_at_root:
            return sent, received
        if collective.sender == "root":
            return sent, MPI.IN_PLACE
        if collective.has_op:
            received = self._buffer(recvbuf, collective.count)
        return MPI.IN_PLACE, received

    def _neighbor_arguments(
        self,
        collective: Neighborhood,
        comm: MPI.Intracomm,
        sendbuf: Array | None,
        recvbuf: Array | None,
    ) -> tuple[Any, Any]:
        """Return the arguments of a neighborhood collective, with its counts where it has any."""
        layout = collective.edge_layout(comm.size)
        sides = collective.sides(collective.graph.neighbors(comm.size))
        sizes = layout.send_sizes[comm.rank], layout.recv_sizes[comm.rank]
        are_equal = "count" in type(collective).model_fields
        sent, received = (
            self._blocks(array, *side.of_rank(comm.rank))
            if isinstance(side, Side) and not are_equal
            else self._buffer(array, int(size))
            for array, side, size in zip((sendbuf, recvbuf), sides, sizes, strict=True)
        )
        return sent, received

    def _find_in_c(
        self,
        collective: Collective,
        comm: MPI.Intracomm,
        sent: Any,
        received: Any,
        op: MPI.Op | None,
    ) -> RepeatedCall | None:
        """Return the function of C with its arguments; None if MPI does not have the collective."""
        kind = collective.kind.capitalize()
        if not hasattr(comm, kind):
            return None
        last = [handle_of(comm)] if collective.root is None else [collective.root, handle_of(comm)]
        is_vector = "count" not in type(collective).model_fields
        count = None if is_vector else collective.count
        arguments: list[int] = []
        if collective.has_one_buffer:
            arguments = self._side(received, count)
        elif op is not None:
            counts = self._keep(collective.block_layout(comm.size)[0]) if count is None else count
            datatype, last = handle_of(self._datatype), [handle_of(op), *last]
            arguments = [_address_of(sent), _address_of(received), counts, datatype]
        elif collective.has_data:
            gives, takes = collective.sends_blocks, collective.receives_blocks
            if isinstance(collective, Neighborhood):
                gives, takes = (isinstance(each[1], tuple) for each in (sent, received))
            arguments = self._side(sent, count, has_blocks=is_vector and gives)
            arguments += self._side(received, count, has_blocks=is_vector and takes)
        return RepeatedCall(address_of(f"MPI_{kind}", MPI.__file__), [*arguments, *last])

    def _side(self, buffer: Any, count: int | None, *, has_blocks: bool = False) -> list[int]:
        """Return address, counts and datatype of a buffer in C. Without a count, it is the size."""
        array, layout = buffer[:2] if isinstance(buffer, list) else (np.empty(0), ((), ()))
        numbers = [array.size if count is None else count]
        if has_blocks:
            numbers = [self._keep(each) for each in layout]
        return [_address_of(buffer), *numbers, handle_of(self._datatype)]

    def _keep(self, numbers: npt.ArrayLike) -> int:
        """Return the address of an array of ints."""
        self._kept.append(np.array(numbers, dtype=np.intc))
        return int(self._kept[-1].ctypes.data)

    def _blocks(self, array: Array | None, counts: Ints, displs: Ints) -> Any:
        if array is None:
            return None
        return [array.reshape(-1), (counts.tolist(), displs.tolist()), self._datatype]

    def _buffer(self, array: Array | None, n_elements: int) -> Any:
        if array is None:
            return None
        return [array.reshape(-1)[:n_elements], self._datatype]


def topology_comm(graph: EdgeList | CartesianGrid, comm: MPI.Intracomm) -> MPI.Intracomm:
    """Return a communicator of the same ranks whose neighbors are those of a graph; collective.

    Parameters
    ----------
    graph : EdgeList or CartesianGrid
    comm : MPI.Intracomm

    Returns
    -------
    MPI.Cartcomm or MPI.Distgraphcomm
    """
    if isinstance(graph, CartesianGrid):
        return comm.Create_cart(graph.grid, graph.periods, reorder=False)
    edges = graph.neighbors(comm.size)
    sources = edges.source[edges.dest == comm.rank].tolist()
    dests = edges.dest[edges.source == comm.rank].tolist()
    return comm.Create_dist_graph_adjacent(sources, dests, reorder=False)


def _require_range(collective: Collective, n_ranks: int) -> None:
    """Raise `BindError` if counts or displacements exceed the range of an MPI before 4.0."""
    if collective.regular is None or MPI.Get_version() >= (4, 0):
        return
    layout: Iterable[Ints] = collective.pair_layout(n_ranks) or ()
    edges = collective.edge_layout(n_ranks)
    if edges is not None:
        layout = edges.counts, edges.given, edges.received
    elif not layout:
        layout = collective.block_layout(n_ranks)
    most = max(int(numbers.max(initial=0)) for numbers in layout)
    if most > _MAX_INT:
        version = ".".join(map(str, MPI.Get_version()))
        raise BindError(
            f"collective.counts: {most} elements are more than the {_MAX_INT} of a native "
            f"{collective.kind} of MPI {version}; give fewer, or run with an MPI of 4.0 on"
        )


def _address_of(buffer: Any) -> int:
    if isinstance(buffer, list):
        return int(buffer[0].ctypes.data)
    return 0 if buffer is None else int(buffer)


def _bound_call(
    collective: Collective,
    comm: MPI.Intracomm,
    sent: Any,
    received: Any,
    op: MPI.Op | None,
    prefix: Literal["", "I"],
) -> Callable[[], object]:
    method = getattr(comm, (prefix + collective.kind).capitalize(), None)
    if method is None:
        return partial(native_call[collective.kind], comm, sent, received, prefix == "I")
    if not collective.has_data:
        return cast("Callable[[], object]", method)
    buffers = [received] if collective.has_one_buffer else [sent, received]
    if collective.regular is not None and collective.has_op:
        buffers.append(collective.block_layout(comm.size)[0].tolist())  # MPI's recvcounts
    operation = [] if op is None else [op]
    root = [] if collective.root is None else [collective.root]
    return partial(method, *buffers, *operation, *root)
