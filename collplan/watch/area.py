"""Memory in which each rank of a node writes what it does, and its readers.

The preloaded library writes the same records, whose fields are in
``collplan/preload/shim/watch.h``. All numbers have 64 bits. A rank writes by plain stores and waits
for nobody, so a reader may see a record that is being written; such records have the state
`WRITING`.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from collplan.specs.errors import CollplanError

WRITING, INSIDE, LEFT, STARTED = range(4)
"""States of a call: record incomplete; not returned; returned; started, if it does not block."""
N_CALLS: Final = 16
"""Number of latest calls of which a rank's memory has records."""
N_COMMS: Final = 64
"""Number of communicators of which it has records."""
WORLD: Final = 1
"""Key of ``MPI_COMM_WORLD``."""
UNKNOWN: Final = -1
"""Root or size of a call of which they are unknown or may differ per rank."""
NAME_BYTES: Final = 24
PLACE_BYTES: Final = 128

HEAD: Final = struct.Struct(f"<10q{PLACE_BYTES}s")
WAIT: Final = struct.Struct(f"<5q{NAME_BYTES}s")
CALL: Final = struct.Struct(f"<7q{NAME_BYTES}s16s16s{PLACE_BYTES}s")
COMM: Final = struct.Struct(f"<5q{NAME_BYTES}s")
ANSWERED_AT: Final = 40
ASKED_AT: Final = 56
"""Places of words that the watcher writes, in the memory of a rank."""
WAIT_AT: Final = HEAD.size
CALLS_AT: Final = WAIT_AT + WAIT.size
COMMS_AT: Final = CALLS_AT + N_CALLS * CALL.size
RANK_BYTES: Final = -(-(COMMS_AT + N_COMMS * COMM.size) // 64) * 64
"""Size of the memory of one rank in bytes."""


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call of a collective, as a rank has recorded it.

    Parameters
    ----------
    number : int
        Number of the call on this rank, from 1 on.
    state : int
        `WRITING`, `INSIDE`, `LEFT` or `STARTED`.
    comm : int
        Place of the communicator in the memory of the rank.
    order : int
        Number of the call on the communicator, from 1 on.
    root, n_bytes : int
        Root in the communicator, and size in bytes; `UNKNOWN` if they may differ per rank.
    site : int
        Return address of the call.
    name : str
        Name of the function, such as ``allreduce``, or ``Iallreduce`` for the non-blocking form.
    element, op : str
        Names of the datatype and the operation; empty if they are not predefined.
    place : str
        Function, file and line of the call in a Python program; empty if sites were not asked for.
    """

    number: int
    state: int
    comm: int
    order: int
    root: int
    n_bytes: int
    site: int
    name: str
    element: str
    op: str
    place: str


@dataclass(frozen=True, slots=True)
class SeenComm:
    """A communicator of a rank.

    Parameters
    ----------
    key : int
        Number that is the same on all ranks of the communicator.
    size, rank : int
        Number of ranks, and this rank in the communicator.
    n_calls : int
        Number of collectives that this rank has called on it.
    site : int
        Return address of the call that made the communicator; 0 if it is unknown.
    made_by : str
        Name of the function that made it; empty if the call was not seen.
    """

    key: int
    size: int
    rank: int
    n_calls: int
    site: int
    made_by: str


@dataclass(frozen=True, slots=True)
class SeenWait:
    """A call in which a rank waits, or has waited, for a message or a request.

    Parameters
    ----------
    number : int
        Number of such calls on this rank.
    is_inside : int
        Whether the rank is inside the call.
    site : int
        Return address of the call.
    peer, tag : int
        Rank in the communicator, and tag; -1 if the call has none, or any.
    name : str
        Name of the function without the prefix of MPI.
    """

    number: int
    is_inside: int
    site: int
    peer: int
    tag: int
    name: str


@dataclass(frozen=True, slots=True)
class WatchedRank:
    """The state of a rank at one time.

    Parameters
    ----------
    pid, rank : int
        Process, and rank in ``MPI_COMM_WORLD``.
    n_calls : int
        Number of collectives that the rank has called.
    is_finalized : bool
        Whether it has called ``MPI_Finalize``.
    mismatch, answered : int
        Number of a call that another rank has made differently, which the rank wants to have
        reported, and of the last call whose report was written; 0 for none.
    can_tell : bool
        Whether it is a Python program that tells where it is when it is asked.
    asked, told : int
        Numbers of the last question, and of the last one that was answered.
    now : str
        The answer: function, file and line; empty if it is unknown.
    wait : SeenWait
    calls : tuple of SeenCall
        Latest calls in the order of their numbers.
    comms : dict of int to SeenComm
        Communicators by place.
    """

    pid: int
    rank: int
    n_calls: int
    is_finalized: bool
    mismatch: int
    answered: int
    can_tell: bool
    asked: int
    told: int
    now: str
    wait: SeenWait
    calls: tuple[SeenCall, ...]
    comms: dict[int, SeenComm]

    @property
    def inside(self) -> tuple[SeenCall, ...]:
        """Blocking calls that have not returned; several if threads make them."""
        return tuple(call for call in self.calls if call.state == INSIDE)

    @property
    def progress(self) -> tuple[int, ...]:
        """Numbers that stay the same as long as the rank neither enters nor leaves a call."""
        waits = (self.wait.number, self.wait.is_inside)
        return (self.n_calls, *waits, *(call.number for call in self.inside))

    def comm_of(self, call: SeenCall) -> SeenComm | None:
        """Return the communicator of a call; None if it has been freed."""
        return self.comms.get(call.comm)

    def member(self, key: int) -> SeenComm | None:
        """Return the communicator with a key; None if the rank does not belong to it."""
        return next((comm for comm in self.comms.values() if comm.key == key), None)

    def call_at(self, key: int, order: int) -> SeenCall | None:
        """Return the call with a number on a communicator; None if its record is lost."""
        for call in self.calls:
            comm = self.comm_of(call)
            if comm is not None and (comm.key, call.order) == (key, order):
                return call
        return None


class Area:
    """Memory of all ranks of a node.

    Parameters
    ----------
    memory : mmap
        Shared memory of at least ``n_ranks * RANK_BYTES`` bytes.
    n_ranks : int
        Number of ranks of the node.
    """

    def __init__(self, memory: mmap.mmap, n_ranks: int) -> None:
        self.memory = memory
        self.n_ranks = n_ranks

    def rank(self, slot: int) -> WatchedRank:
        """Return the state of the rank with a number on the node."""
        base = slot * RANK_BYTES
        text = self.memory[base : base + RANK_BYTES]  # one copy, so that all parts fit together
        head = HEAD.unpack_from(text)
        pid, rank, n_calls, is_finalized, mismatch, answered, can_tell, asked, told, _, now = head
        waits, is_inside, site, peer, tag, name = WAIT.unpack_from(text, WAIT_AT)
        wait = SeenWait(waits, is_inside, site, peer, tag, _text(name))
        calls = sorted(_calls(text), key=lambda call: call.number)
        n_calls = max(n_calls, calls[-1].number if calls else 0)
        return WatchedRank(
            pid, rank, n_calls, bool(is_finalized), mismatch, answered,
            bool(can_tell), asked, told, _text(now), wait, tuple(calls), dict(_comms(text)),
        )  # fmt: skip

    def ranks(self) -> list[WatchedRank]:
        """Return the states of all ranks that have begun, in ascending order of ranks."""
        found = [self.rank(slot) for slot in range(self.n_ranks)]
        return sorted((one for one in found if one.pid), key=lambda one: one.rank)

    def answer(self, rank: WatchedRank) -> None:
        """Tell a rank that the report it waits for was written."""
        self._write(rank, ANSWERED_AT, rank.mismatch)

    def ask(self, rank: WatchedRank) -> None:
        """Ask a rank of a Python program where it is."""
        self._write(rank, ASKED_AT, rank.told + 1)

    def _write(self, rank: WatchedRank, place: int, word: int) -> None:
        for slot in range(self.n_ranks):
            if HEAD.unpack_from(self.memory, slot * RANK_BYTES)[0] == rank.pid:
                struct.pack_into("<q", self.memory, slot * RANK_BYTES + place, word)


def open_area(pid: int, descriptor: int, nonce: int, n_ranks: int) -> Area:
    """Open the memory of another process.

    Parameters
    ----------
    pid, descriptor : int
        Process that has made the memory, and its file descriptor there.
    nonce : int
        Number at the end of the memory.
    n_ranks : int
        Number of ranks of the node.

    Raises
    ------
    CollplanError
        If the memory cannot be opened, or is another one.
    """
    path, n_bytes = f"/proc/{pid}/fd/{descriptor}", n_ranks * RANK_BYTES
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.pread(opened, 8, n_bytes) != struct.pack("<q", nonce):
                raise CollplanError(f"{path}: is not the memory of the ranks")
            memory = mmap.mmap(opened, n_bytes)
        finally:
            os.close(opened)
    except OSError as error:
        raise CollplanError(f"{path}: {error.strerror or error}") from None
    return Area(memory, n_ranks)


def _text(found: bytes) -> str:
    return found.partition(b"\0")[0].decode(errors="replace")


def _calls(text: bytes) -> Iterator[SeenCall]:
    for place in range(N_CALLS):
        fields = CALL.unpack_from(text, CALLS_AT + place * CALL.size)
        number, state, comm, order, root, n_bytes, site = fields[:7]
        if number and state != WRITING:
            name, element, op, where = (_text(one) for one in fields[7:])
            yield SeenCall(
                number, state, comm, order, root, n_bytes, site, name, element, op, where
            )


def _comms(text: bytes) -> Iterator[tuple[int, SeenComm]]:
    for place in range(N_COMMS):
        fields = COMM.unpack_from(text, COMMS_AT + place * COMM.size)
        key, size, rank, n_calls, site, made_by = fields
        if key:
            yield place, SeenComm(key, size, rank, n_calls, site, _text(made_by))
