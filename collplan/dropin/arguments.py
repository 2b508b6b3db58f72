"""Arguments of collectives, understood as mpi4py understands them, and how they look."""

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
"""Instead of an address: the argument stands for MPI_IN_PLACE."""
SEQUENCES: Final = (list, tuple)
_DATATYPES: Final = (str, MPI.Datatype)
Look = tuple[int, Any, int]
_ARRAY: Final = np.ndarray
_DATATYPE: Final = MPI.Datatype
_BYTES: Final = frozenset((bytearray, bytes))
_MEMORY: Final = frozenset((np.ndarray, bytearray, bytes, memoryview, array.array))
"""Types with memory of the processor, which Python's buffer protocol fully describes."""
_COUNTS: Final = frozenset((int, np.int64, np.int32, type(None)))
_frombuffer: Final = MPI.buffer.frombuffer


class Kind:
    """A collective as calls of mpi4py see it.

    Parameters
    ----------
    name : str
        As specs call it.

    Attributes
    ----------
    traits : type of CollectiveModel
        Of the collective.
    used_by_root, used_by_others : tuple of (bool, bool)
        Whether the send and the receive buffer are used, on the root and on other ranks.
    natives : tuple of callable or None
        mpi4py's methods: the one that does not block, then the one that does. It has
        none for kinds that are registered from outside.
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

    @property
    def sends_own_block(self) -> bool:
        """Return whether what a rank sends in place is its own block of what it receives."""
        return self.traits.receives_blocks and not self.traits.sends_blocks


KINDS: Final = {name: Kind(name) for name in COLLECTIVES}


@dataclass(slots=True)  # not frozen: made at every call
class Message:
    """A buffer of one rank in one collective.

    Parameters
    ----------
    address : int
        Of the first element.
    count : int
        Elements of a block.
    blocks : int
        How many blocks.
    element : Element
        Of what.
    spec : list
        The whole of it for a message of MPI: buffer, count and displacement, datatype.
    is_reachable : bool
        Whether the processor can use the memory.
    """

    address: int
    count: int
    blocks: int
    element: Element
    spec: list[Any]
    is_reachable: bool = True

    @property
    def n_bytes(self) -> int:
        """Return the bytes of a block's signature."""
        return self.count * self.element.size

    def block(self, number: int) -> Message:
        """Return one of the blocks, counted from 0."""
        buffer, _, displ, datatype = self.spec
        skip = number * self.count
        address = self.address + skip * self.element.extent
        spec = [buffer, self.count, displ + skip, datatype]
        return Message(address, self.count, 1, self.element, spec, self.is_reachable)

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan of so large elements can use the memory as it is."""
        return self.is_reachable and self.element.is_plain and self.address % itemsize == 0


@dataclass(slots=True)  # not frozen: made at every call
class Arguments:
    """One rank's buffers in one call.

    Parameters
    ----------
    kind : Kind
    sent, received : Message or None
        None where this rank has none, or it is in place.
    is_in_place : bool
        Whether the input is in the receive buffer, or, for scatter, stays where it is.
    """

    kind: Kind
    sent: Message | None
    received: Message | None
    is_in_place: bool

    @property
    def surplus_bytes(self) -> int:
        """Return by how much received blocks are larger than sent ones, as far as one rank sees."""
        sent, received = self.sent, self.received
        return 0 if sent is None or received is None else received.n_bytes - sent.n_bytes

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan of so large elements can use all memory as it is."""
        messages = [one for one in (self.sent, self.received) if one is not None]
        return not self.surplus_bytes and all(one.is_plain(itemsize) for one in messages)

    @property
    def addresses(self) -> tuple[int, int]:
        """Return where the buffers are, `IN_PLACE_AT` for the one that is in place."""
        sent, received = (0 if one is None else one.address for one in (self.sent, self.received))
        if not self.is_in_place:
            return sent, received
        return (IN_PLACE_AT, received) if self.sent is None else (sent, IN_PLACE_AT)

    def call(self, root: int, op: str | None) -> CollectiveCall:
        """Return the call as all ranks see it, given its root and its operation's name."""
        one = self.sent or self.received
        if one is None:
            return CollectiveCall(self.kind.name, 0, root, op)
        element = one.element.name if self.kind.traits.has_op else None
        return CollectiveCall(self.kind.name, one.n_bytes, root, op, element)


def read_arguments(
    kind: Kind, sendbuf: Any, recvbuf: Any, root: int, rank: int, size: int
) -> Arguments:
    """Return what this rank's arguments are.

    Raises
    ------
    Exception
        Of any type, where mpi4py refuses the arguments, too.
    """
    if not 0 <= root < size:
        raise ValueError("there is no such root")
    is_root, traits = root == rank, kind.traits
    if traits.has_one_buffer:
        return _read_broadcast(kind, recvbuf, is_root)
    sends, receives = kind.used_by_root if is_root else kind.used_by_others
    may_give = is_root if traits.receiver == "root" else traits.sender != "root"
    gives_in_place = sends and may_give and is_in_place(sendbuf)
    takes_in_place = sends and traits.sender == "root" and is_root and is_in_place(recvbuf)
    in_place = gives_in_place or takes_in_place
    sent = received = None
    if sends and not gives_in_place:
        blocks = size if traits.sends_blocks else 1
        sent = read_message(sendbuf, blocks, is_written=False, is_reduced=traits.has_op)
    if receives and not takes_in_place:
        has_blocks = traits.receives_blocks or (gives_in_place and traits.sends_blocks)
        blocks = size if has_blocks else 1
        received = read_message(recvbuf, blocks, is_written=True, is_reduced=traits.has_op)
    differ = sent and received and (sent.element, sent.count) != (received.element, received.count)
    if traits.has_op and differ:
        raise ValueError("send and receive buffer differ")
    return Arguments(kind, sent, received, in_place)


def _read_broadcast(kind: Kind, buffer: Any, is_root: bool) -> Arguments:
    """Return what the one buffer of a broadcast is; the root's may be read-only."""
    try:
        message = read_message(buffer, 1, is_written=True)
    except Exception:
        if not is_root:
            raise
        # Plans may write at the root what is there already: not where that is forbidden.
        message = replace(read_message(buffer, 1, is_written=False), is_reachable=False)
    return Arguments(kind, None, message, False)


def read_message(given: Any, blocks: int, *, is_written: bool, is_reduced: bool = False) -> Message:
    """Return the message that an argument of a collective describes.

    Follows mpi4py's rules for ``buf``, ``[buf, datatype]``, ``[buf, count]``,
    ``[buf, (count, displ)]`` and the longer forms. Raises anything where mpi4py would:
    the caller then lets mpi4py say it.

    Parameters
    ----------
    given : object
        The argument.
    blocks : int
        How many blocks it has; without a count it is divided among them.
    is_written : bool
        Whether the collective writes there.
    is_reduced : bool
        Whether elements are operands: of pairs, reductions take the gaps, too.
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
    spec = [buffer, count * blocks, displ, datatype]
    return Message(address + displ * element.extent, count, blocks, element, spec, is_reachable)


def unpack(given: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, count, displacement and datatype, None where they are not given."""
    if not isinstance(given, SEQUENCES):
        return given, None, None, None
    n_items = len(given)
    if n_items == 4:
        return given[0], given[1], given[2], given[3]
    if n_items == 3:
        buffer, count, datatype = given
    else:
        buffer, count = given
        if isinstance(count, _DATATYPES):
            return buffer, None, None, count
        datatype = None
    if not isinstance(count, SEQUENCES):
        return buffer, count, None, datatype
    count, displ = count
    return buffer, count, displ, datatype


def locate(buffer: Any, datatype: Any, *, is_written: bool) -> tuple[int, int, bool, MPI.Datatype]:
    """Return where a buffer is, its bytes, whether the processor can use it, and its datatype.

    Raises
    ------
    Exception
        Of any type, where mpi4py refuses the buffer, too.
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
        buffer = buffer.T  # of Fortran's order: mpi4py takes these, too
    return MPI.buffer.frombuffer(buffer, not is_written)


def _is_on_host(buffer: Any) -> bool:
    """Return whether memory is surely the processor's; MPI can tell of any."""
    return isinstance(buffer, np.ndarray) or not (
        hasattr(buffer, "__cuda_array_interface__") or hasattr(buffer, "__dlpack__")
    )


def _datatype_of(buffer: Any) -> MPI.Datatype:
    """Return the datatype mpi4py finds for a buffer that comes without one."""
    try:
        code = memoryview(buffer).format
    except TypeError:
        typestr = getattr(buffer, "__cuda_array_interface__", {}).get("typestr")
        code = (np.from_dlpack(buffer).dtype if typestr is None else np.dtype(typestr)).char
    return MPI._typedict[code[1:] if code[0] in "@<" else code]


def is_in_place(buffer: Any) -> bool:
    """Return whether mpi4py takes an argument for MPI_IN_PLACE: None means the same."""
    return buffer is None or buffer is MPI.IN_PLACE


def look(given: Any, is_read: bool) -> Look:
    """Return the bytes of an argument, what else matters of it, and its address."""
    form = type(given)
    if given is None or given is MPI.IN_PLACE:
        return 0, "in place", IN_PLACE_AT
    if form in SEQUENCES:
        return _look_into(given, is_read)
    if form in _BYTES:
        there = _frombuffer(given, is_read)
        return there.nbytes, bytes, there.address
    raise TypeError(f"{form.__name__} is looked at by its values")


def _look_into(given: Any, is_read: bool) -> Look:
    """Return the same of a list or tuple with an array, a count, a displacement, a datatype."""
    buffer, count, displ, datatype = unpack(given)
    form = type(buffer)
    if form not in _MEMORY or type(count) not in _COUNTS or type(displ) not in _COUNTS:
        raise TypeError("counts of other types may change")
    named: Any
    extent = 0
    if type(datatype) is _DATATYPE:
        element = KNOWN[datatype.handle]
        named, extent = element.number, element.extent
    elif datatype is None and form is _ARRAY:
        named, extent = buffer.dtype, buffer.itemsize
    elif type(datatype) is str:
        named = datatype
        if displ:
            extent = element_of(MPI._typedict[datatype]).extent
    else:
        raise TypeError("the datatype is not known by its look")
    there = _frombuffer(buffer, is_read)
    if not displ:
        return there.nbytes, (count, named), there.address
    return there.nbytes, (count, named, displ), there.address + displ * extent
