"""The collectives by their arguments: which buffers count on which rank, and in what blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from mpi4py import MPI

from collplan.dropin.arguments import Message, read_message
from collplan.dropin.elements import Element
from collplan.specs import COLLECTIVES, CollectiveModel


@dataclass(frozen=True, slots=True)
class Kind:
    """A collective's buffers.

    Parameters
    ----------
    name : str
        As specs call it.
    sends_blocks, receives_blocks : bool
        Whether the buffer holds a block for every rank, or one.
    sends_at, receives_at : str
        Who uses it: ``all``, ``root`` or ``none``.
    reduces : bool
        Whether it has an operation.
    """

    name: str
    sends_blocks: bool = False
    receives_blocks: bool = False
    sends_at: str = "all"
    receives_at: str = "all"
    reduces: bool = False
    uses: tuple[tuple[bool, bool], tuple[bool, bool]] = field(init=False, compare=False)
    """Whether a rank sends and receives; of others, then of the root."""

    def __post_init__(self) -> None:
        found = tuple((self.sends(is_root), self.receives(is_root)) for is_root in (False, True))
        object.__setattr__(self, "uses", found)

    @property
    def traits(self) -> type[CollectiveModel]:
        """Return the traits of the collective."""
        return COLLECTIVES[self.name]

    @property
    def sends_own_block(self) -> bool:
        """Return whether what a rank sends in place is its own block of what it receives."""
        return self.receives_blocks and not self.sends_blocks

    def sends(self, is_root: bool) -> bool:
        """Return whether a rank has a send buffer."""
        return self.sends_at == "all" or (is_root and self.sends_at == "root")

    def receives(self, is_root: bool) -> bool:
        """Return whether a rank has a receive buffer."""
        return self.receives_at == "all" or (is_root and self.receives_at == "root")


def _buffers_of(name: str, model: type[CollectiveModel]) -> Kind:
    return Kind(
        name,
        sends_blocks=model.sends_blocks,
        receives_blocks=model.receives_blocks,
        sends_at=model.sender if model.has_data and not model.has_one_buffer else "none",
        receives_at=model.receiver if model.has_data else "none",
        reduces=model.has_op,
    )


KINDS: Final = {name: _buffers_of(name, model) for name, model in COLLECTIVES.items()}


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
    def fits(self) -> bool:
        """Return whether blocks are received as large as they are sent, as far as one rank sees."""
        sent, received = self.sent, self.received
        return sent is None or received is None or sent.n_bytes == received.n_bytes

    @property
    def is_truncated(self) -> bool:
        """Return whether less is to be received than is sent."""
        sent, received = self.sent, self.received
        return sent is not None and received is not None and received.n_bytes < sent.n_bytes

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan of so large elements can use all memory as it is."""
        messages = [one for one in (self.sent, self.received) if one is not None]
        return self.fits and all(one.is_plain(itemsize) for one in messages)

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the collective's count, which are the same on all ranks."""
        one = self.sent or self.received
        if one is None:
            return 0
        return one.n_bytes

    @property
    def element_name(self) -> str | None:
        """Return what is reduced, None where no plan can reduce it or nothing is."""
        one = self.sent or self.received
        return None if one is None or not self.kind.reduces else one.element.name


def read_arguments(kind: Kind, sendbuf: Any, recvbuf: Any, size: int, is_root: bool) -> Arguments:
    """Return what this rank's arguments are.

    Raises
    ------
    Exception
        Of any type, where mpi4py refuses the arguments, too.
    """
    sends, receives = kind.sends(is_root), kind.receives(is_root)
    may_give = is_root if kind.receives_at == "root" else kind.sends_at != "root"
    gives_in_place = sends and may_give and _is_in_place(sendbuf)
    takes_in_place = kind.sends_at == "root" and is_root and _is_in_place(recvbuf)
    in_place = gives_in_place or takes_in_place
    sent = received = None
    if sends and not gives_in_place:
        blocks = size if kind.sends_blocks else 1
        sent = read_message(sendbuf, blocks, is_written=False)
    if receives and not takes_in_place:
        has_blocks = kind.receives_blocks or (gives_in_place and kind.sends_blocks)
        received = read_message(recvbuf, size if has_blocks else 1, is_written=True)
    if kind.reduces:
        sent, received = _as_reduced(sent), _as_reduced(received)
        if sent is not None and received is not None:
            _require_same(sent, received)
    return Arguments(kind, sent, received, in_place)


def read_broadcast(buffer: Any, is_root: bool) -> Arguments:
    """Return what the one buffer of a broadcast is; the root's may be read-only."""
    try:
        message = read_message(buffer, 1, is_written=True)
    except Exception:
        if not is_root:
            raise
        found = read_message(buffer, 1, is_written=False)
        # Plans may write at the root what is there already: not where that is forbidden.
        message = replace(found, is_reachable=False)
    return Arguments(KINDS["bcast"], None, message, False)


def _is_in_place(buffer: Any) -> bool:
    """Return whether mpi4py takes an argument for MPI_IN_PLACE: None means the same."""
    return buffer is None or buffer is MPI.IN_PLACE


def _as_reduced(message: Message | None) -> Message | None:
    """Return a message whose elements are memory with its gaps, as reductions take pairs."""
    if message is None or message.element.name is None or message.element.is_plain:
        return message
    extent = message.element.extent
    element = Element(extent, extent, True, message.element.name)
    return replace(message, element=element)


def _require_same(sent: Message, received: Message) -> None:
    if sent.element != received.element or sent.count != received.count:
        raise ValueError("send and receive buffer differ")
