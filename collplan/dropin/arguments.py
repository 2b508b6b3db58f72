"""Reading of the arguments of collectives by the rules of mpi4py, and their cache keys."""

from __future__ import annotations

import array
import operator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.dropin.calls import CollectiveCall
from collplan.dropin.elements import KNOWN, Element, element_of
from collplan.specs import COLLECTIVES

IN_PLACE_AT: Final = -1
"""Value that stands for MPI_IN_PLACE instead of an address."""
SEQUENCES: Final = (list, tuple)
DATATYPES: Final = (str, MPI.Datatype)
Keyed = tuple[int, Any, int]
"""Size of an argument in bytes, a key of its other properties, and its address."""
_ARRAY: Final = np.ndarray
_DATATYPE: Final = MPI.Datatype
_BYTES: Final = frozenset((bytearray, bytes))
_MEMORY: Final = frozenset((np.ndarray, bytearray, bytes, memoryview, array.array))
"""Types of host memory that Python's buffer protocol describes completely."""
_COUNTS: Final = frozenset((int, np.int64, np.int32, type(None)))
_frombuffer: Final = MPI.buffer.frombuffer


class Kind:
    """A kind of collective, with the traits that decide which arguments of mpi4py a rank uses.

    Parameters
    ----------
    name : str
        Name of the kind in specs.

    Attributes
    ----------
    traits : type of CollectiveModel
        Traits of the collective.
    used_by_root : tuple of (bool, bool)
        Whether the root uses its send buffer, and whether it uses its receive buffer.
    used_by_others : tuple of (bool, bool)
        The same for the ranks that are not the root.
    natives : tuple of callable or None
        mpi4py's non-blocking and blocking methods, indexed by ``is_blocking``; None for kinds
        that users have registered.
    """

    __slots__ = "name", "natives", "traits", "used_by_others", "used_by_root"

    def __init__(self, name: str) -> None:
        self.name = name
        traits = self.traits = COLLECTIVES[name]
        sends, receives = traits.has_data and not traits.has_one_buffer, traits.has_data
        all_send, all_receive = traits.sender == "all", traits.receiver == "all"
        self.used_by_root = sends, receives
        self.used_by_others = sends and all_send, receives and all_receive
        names = f"I{name}", name.capitalize()
        self.natives: Any = tuple(getattr(MPI.Intracomm, one, None) for one in names)


KINDS: Final = {name: Kind(name) for name in COLLECTIVES}


@dataclass(slots=True)  # not frozen, because every call creates messages
class BufferArgument:
    """A send or receive buffer of one rank in one call.

    Parameters
    ----------
    address : int
        Address of the first element.
    count : int
        Number of elements per block.
    blocks : int
        Number of blocks.
    element : Element
        Layout of an element of the datatype.
    spec : list
        Buffer, total count, displacement and datatype, as mpi4py accepts them.
    is_reachable : bool
        Whether the processor can read and write the memory.
    """

    address: int
    count: int
    blocks: int
    element: Element
    spec: list[Any]
    is_reachable: bool = True

    @property
    def n_bytes(self) -> int:
        """Size of a block's type signature in bytes."""
        return self.count * self.element.size

    def block(self, number: int) -> BufferArgument:
        """Return block `number`, counted from 0, as a message."""
        buffer, _, displ, datatype = self.spec
        skip = number * self.count
        address = self.address + skip * self.element.extent
        spec = [buffer, self.count, displ + skip, datatype]
        return BufferArgument(address, self.count, 1, self.element, spec, self.is_reachable)

    @property
    def span(self) -> tuple[int, int]:
        """Addresses of the first byte and after the last byte of all blocks; equal if empty."""
        return self._span_of(self.address, self.count * self.blocks, self.element.extent)

    def _span_of(self, address: int, count: int, extent: int) -> tuple[int, int]:
        """Return the span of elements that follow each other at an address."""
        if not count:
            return address, address
        first, size = self.spec[-1].Get_true_extent()
        return address + first, address + first + (count - 1) * extent + size

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan with elements of `itemsize` bytes can use the memory directly."""
        return self.is_reachable and self.element.is_plain and self.address % itemsize == 0


@dataclass(slots=True)  # not frozen, because every call creates an object
class Arguments:
    """Buffers of one rank in one call.

    Parameters
    ----------
    kind : Kind
        Kind of the collective.
    sent, received : BufferArgument or None
        Buffers; None if the call does not use the buffer on this rank, or it is MPI_IN_PLACE.
    is_in_place : bool
        Whether one of the buffers is MPI_IN_PLACE.
    """

    kind: Kind
    sent: BufferArgument | None
    received: BufferArgument | None
    is_in_place: bool

    @property
    def surplus_bytes(self) -> int:
        """Size of a received block minus that of a sent block on this rank, in bytes."""
        sent, received = self.sent, self.received
        return 0 if sent is None or received is None else received.n_bytes - sent.n_bytes

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan with elements of `itemsize` bytes can use all buffers directly."""
        messages = [one for one in (self.sent, self.received) if one is not None]
        return not self.surplus_bytes and all(one.is_plain(itemsize) for one in messages)

    @property
    def addresses(self) -> tuple[int, int]:
        """Addresses of the send and receive buffers; `IN_PLACE_AT` for MPI_IN_PLACE."""
        sent, received = (0 if one is None else one.address for one in (self.sent, self.received))
        if not self.is_in_place:
            return sent, received
        return (IN_PLACE_AT, received) if self.sent is None else (sent, IN_PLACE_AT)

    def call(self, root: int, op: str | None) -> CollectiveCall:
        """Return the signature of the call, given its root and the name of its operation."""
        message = self.sent or self.received
        if message is None:
            return CollectiveCall(self.kind.name, 0, root, op)
        element = message.element.name if self.kind.traits.has_op else None
        return CollectiveCall(self.kind.name, message.n_bytes, root, op, element)


def read_arguments(
    kind: Kind, sendbuf: Any, recvbuf: Any, root: int, rank: int, size: int
) -> Arguments:
    """Return the buffers that this rank passes to a collective.

    Parameters
    ----------
    kind : Kind
        Kind of the collective.
    sendbuf, recvbuf : object
        Arguments of the call; `recvbuf` is the only buffer of a broadcast.
    root : int
        Root of the call, 0 if the collective has none.
    rank, size : int
        Rank of this process in the communicator, and number of ranks.

    Raises
    ------
    Exception
        If mpi4py does not accept the arguments; the exception may be of any type.
    """
    if not 0 <= root < size:
        raise ValueError("there is no such root")
    is_root, traits = root == rank, kind.traits
    if traits.has_one_buffer:
        return _read_broadcast(kind, recvbuf, is_root)
    sends, receives = kind.used_by_root if is_root else kind.used_by_others
    may_send_in_place = is_root if traits.receiver == "root" else traits.sender != "root"
    sends_in_place = sends and may_send_in_place and is_in_place(sendbuf)
    receives_in_place = sends and traits.sender == "root" and is_root and is_in_place(recvbuf)
    in_place = sends_in_place or receives_in_place
    sent = received = None
    if sends and not sends_in_place:
        blocks = size if traits.sends_blocks else 1
        sent = read_message(sendbuf, blocks, is_written=False, is_reduced=traits.has_op)
    if receives and not receives_in_place:
        has_blocks = traits.receives_blocks or (sends_in_place and traits.sends_blocks)
        blocks = size if has_blocks else 1
        received = read_message(recvbuf, blocks, is_written=True, is_reduced=traits.has_op)
    differ = sent and received and (sent.element, sent.count) != (received.element, received.count)
    if traits.has_op and differ:
        raise ValueError("send and receive buffer differ")
    return Arguments(kind, sent, received, in_place)


def _read_broadcast(kind: Kind, buffer: Any, is_root: bool) -> Arguments:
    """Return the buffer of a broadcast, which may be read-only on the root."""
    try:
        message = read_message(buffer, 1, is_written=True)
    except Exception:
        if not is_root:
            raise
        # Plans may overwrite the root's buffer with the same data, which a read-only buffer does
        # not allow. Plans therefore use a copy.
        message = replace(read_message(buffer, 1, is_written=False), is_reachable=False)
    return Arguments(kind, None, message, False)


def read_message(
    given: Any, blocks: int, *, is_written: bool, is_reduced: bool = False
) -> BufferArgument:
    """Return the message that an argument of a collective describes.

    The argument may be ``buf``, ``[buf, datatype]``, ``[buf, count]``,
    ``[buf, (count, displ)]`` or one of the longer forms, as in mpi4py.

    Parameters
    ----------
    given : object
        Argument of the call.
    blocks : int
        Number of blocks. If no count is given, the buffer is divided equally among them.
    is_written : bool
        Whether the collective writes to the buffer.
    is_reduced : bool
        Whether elements are reduced. The padding of a pair, such as ``MPI.DOUBLE_INT``, is
        then part of its element.

    Raises
    ------
    Exception
        If mpi4py does not accept the argument; the exception may be of any type. The caller
        then calls mpi4py, which raises its own exception.
    """
    buffer, count, displ, datatype = unpack(given)
    address, length, is_reachable, datatype = locate(buffer, datatype, is_written=is_written)
    element = element_of(datatype)
    if is_reduced and element.name is not None and not element.is_plain:
        element = Element(element.extent, element.extent, True, element.name)
    displ = 0 if displ is None else operator.index(displ)
    if displ < 0 or (displ > 0 and displ * element.extent > length):
        raise ValueError("the displacement is out of bounds")
    length -= displ * element.extent
    if count is not None:
        count = operator.index(count)
        if count < 0 or (count > 0 and buffer is None):
            raise ValueError("the count is negative, or there is no buffer")
    elif length <= 0:
        count = 0
    else:
        n_elements, rest = divmod(length, element.extent)
        if rest or n_elements % blocks:
            raise ValueError("the buffer is not a whole number of elements or blocks")
        count = n_elements // blocks
    if count > 0 and element.is_plain and not address + displ:
        raise ValueError("the address is null")
    spec = [buffer, count * blocks, displ, datatype]
    return BufferArgument(
        address + displ * element.extent, count, blocks, element, spec, is_reachable
    )


def unpack(given: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, count, displacement and datatype of an argument; None for those not given."""
    if not isinstance(given, SEQUENCES):
        return given, None, None, None
    n_items = len(given)
    if n_items == 4:
        return given[0], given[1], given[2], given[3]
    if n_items == 3:
        buffer, count, datatype = given
    else:
        buffer, count = given
        if isinstance(count, DATATYPES):
            return buffer, None, None, count
        datatype = None
    if not isinstance(count, SEQUENCES):
        return buffer, count, None, datatype
    count, displ = count
    return buffer, count, displ, datatype


def locate(buffer: Any, datatype: Any, *, is_written: bool) -> tuple[int, int, bool, MPI.Datatype]:
    """Return address, size and datatype of a buffer.

    Parameters
    ----------
    buffer : object
        Buffer in host or device memory, None, or ``MPI.BOTTOM``.
    datatype : MPI.Datatype or str or None
        Datatype, if the argument gives one.
    is_written : bool
        Whether the collective writes to the buffer.

    Returns
    -------
    address : int
        Address of the buffer.
    n_bytes : int
        Size of the buffer in bytes.
    is_reachable : bool
        Whether the processor can read and write the memory.
    datatype : MPI.Datatype
        Datatype of the elements.

    Raises
    ------
    Exception
        If mpi4py does not accept the buffer; the exception may be of any type.
    """
    if isinstance(datatype, str):
        datatype = MPI._typedict[datatype]
    if buffer is None or buffer is MPI.BOTTOM:
        if datatype is None:
            raise TypeError("a message without a buffer needs a datatype")
        return 0, 0, True, datatype
    view = _view(buffer, is_written)
    if datatype is None:
        datatype = _datatype_of(buffer)
    return view.address, view.nbytes, _is_on_host(buffer), datatype


def _view(buffer: Any, is_written: bool) -> Any:
    if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
        buffer = buffer.T  # mpi4py also accepts arrays in Fortran order
    return MPI.buffer.frombuffer(buffer, not is_written)


def _is_on_host(buffer: Any) -> bool:
    """Return whether a buffer is known to be in host memory."""
    return isinstance(buffer, np.ndarray) or not (
        hasattr(buffer, "__cuda_array_interface__") or hasattr(buffer, "__dlpack__")
    )


def _datatype_of(buffer: Any) -> MPI.Datatype:
    """Return the datatype that mpi4py derives from a buffer if the argument gives none."""
    try:
        code = memoryview(buffer).format
    except TypeError:
        typestr = getattr(buffer, "__cuda_array_interface__", {}).get("typestr")
        code = (np.from_dlpack(buffer).dtype if typestr is None else np.dtype(typestr)).char
    return MPI._typedict[code[1:] if code[0] in "@<" else code]


def may_coincide(kind: Kind, arguments: Arguments, op: MPI.Op | None, rank: int) -> bool:
    """Return whether MPI accepts the buffers of a call if both are at the same address.

    MPI forbids such buffers, but libraries and their settings differ in what they reject. The
    function makes the call on one rank, which only copies a buffer onto itself. In a buffer with
    a block per rank, MPI looks at the block of `rank`, this rank. In a reduce_scatter, it looks at
    the addresses only.
    """
    sent, received = arguments.sent, arguments.received
    if sent is None or received is None or not sent.count:
        return True
    if kind.name in ("scatter", "scatterv", "alltoallv"):
        sent = sent.block(rank)
    if kind.name in ("gather", "gatherv", "allgather", "allgatherv", "alltoallv"):
        received = received.block(rank)
    is_reduce_scatter = kind.name == "reduce_scatter"
    coincide = sent.address == received.address and sent.spec[-1] == received.spec[-1]
    if not coincide or not (sent.count == received.count or is_reduce_scatter):
        return True
    count = sent.count
    given: list[Any] = [[one.spec[0], count, *one.spec[2:]] for one in (sent, received)]
    given += [[count]] if is_reduce_scatter else []
    given += [op] if kind.traits.has_op else []
    given += [0] if kind.traits.is_rooted else []
    try:
        kind.natives[True](MPI.COMM_SELF, *given)
    except MPI.Exception:
        return False
    return True


def is_rejection(error: Exception) -> bool:
    """Return whether mpi4py or MPI has rejected the arguments of this rank, before ranks met.

    Other ranks then still wait for the call.
    """
    # Classes of smaller numbers are those of arguments.
    return not isinstance(error, MPI.Exception) or error.Get_error_class() < MPI.ERR_TRUNCATE


def is_in_place(buffer: Any) -> bool:
    """Return whether an argument stands for MPI_IN_PLACE; None does so, as in mpi4py."""
    if isinstance(buffer, SEQUENCES) and buffer:
        return buffer[0] is MPI.IN_PLACE
    return buffer is None or buffer is MPI.IN_PLACE


def keyed(given: Any, is_read: bool) -> Keyed:
    """Return size, key and address of an argument that is not an array.

    For arguments with equal sizes and keys, `read_message` returns messages that differ only in
    their buffers and addresses.

    Parameters
    ----------
    given : object
        Argument of the call.
    is_read : bool
        Whether the buffer is only read.

    Raises
    ------
    Exception
        If the argument has no key, so that `read_message` must read it in every call. The
        exception may be of any type.
    """
    form = type(given)
    if given is None or given is MPI.IN_PLACE:
        return 0, "in place", IN_PLACE_AT
    if form in SEQUENCES:
        return _keyed_sequence(given, is_read)
    if form in _BYTES:
        memory = _frombuffer(given, is_read)
        return memory.nbytes, bytes, memory.address
    raise TypeError(f"{form.__name__} has no key")


def _keyed_sequence(given: Any, is_read: bool) -> Keyed:
    """Return size, key and address of a list or tuple that describes a buffer; see `keyed`."""
    if len(given) == 2 and type(given[0]) is _ARRAY and type(given[1]) is _DATATYPE:
        memory = _frombuffer(given[0], is_read)
        return memory.nbytes, KNOWN[given[1].handle].number, memory.address
    buffer, count, displ, datatype = unpack(given)
    form = type(buffer)
    if form not in _MEMORY or type(count) not in _COUNTS or type(displ) not in _COUNTS:
        raise TypeError("counts of other types may change")
    datatype_key: Any
    extent = 0
    if type(datatype) is _DATATYPE:
        element = KNOWN[datatype.handle]
        datatype_key, extent = element.number, element.extent
    elif datatype is None and form is _ARRAY:
        datatype_key, extent = buffer.dtype, buffer.itemsize
    elif type(datatype) is str:
        datatype_key = datatype
        if displ:
            extent = element_of(MPI._typedict[datatype]).extent
    else:
        raise TypeError("the datatype has no key")
    memory = _frombuffer(buffer, is_read)
    if not displ:
        return memory.nbytes, (count, datatype_key), memory.address
    return memory.nbytes, (count, datatype_key, displ), memory.address + displ * extent
