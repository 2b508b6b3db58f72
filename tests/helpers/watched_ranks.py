"""Ranks that only exist in memory, for tests of the reports of ranks that hang."""

from __future__ import annotations

import mmap
import os
import struct
import sys

from collplan.watch.area import (
    ANSWERED_AT,
    CALL,
    CALLS_AT,
    COMM,
    COMMS_AT,
    INSIDE,
    LEFT,
    N_CALLS,
    RANK_BYTES,
    STARTED,
    UNKNOWN,
    WAIT,
    WAIT_AT,
    WORLD,
    Area,
    WatchedRank,
)

FINALIZED_AT = 24
MISMATCH_AT = ANSWERED_AT - 8
CAN_TELL_AT = ANSWERED_AT + 8
N_CALLS_AT = 24
"""Place of the number of calls in the record of a communicator."""


class RankRecorder:
    """Writer of the records of one rank, as the preloaded library writes them.

    Parameters
    ----------
    area : Area
        Memory of the ranks of the node.
    rank : int
        Number of the rank on the node, and in ``MPI_COMM_WORLD``.
    """

    def __init__(self, area: Area, rank: int) -> None:
        self._memory, self._base = area.memory, rank * RANK_BYTES
        self._n_calls, self._orders, self._keys = 0, dict[int, int](), list[int]()
        self.set_word(8, rank)
        self.set_word(0, os.getpid())

    def set_word(self, place: int, word: int) -> None:
        """Write a word of the memory of the rank."""
        struct.pack_into("<q", self._memory, self._base + place, word)

    def add_comm(self, key: int, size: int, rank: int, made_by: str) -> int:
        """Give a communicator a place, and return it."""
        place = len(self._keys)
        self._keys.append(key)
        at = self._base + COMMS_AT + place * COMM.size
        COMM.pack_into(self._memory, at, key, size, rank, 0, 0, made_by.encode())
        return place

    def enter(
        self, place: int, name: bytes, root: int, n_bytes: int, element: bytes, op: bytes,
        state: int,
    ) -> int:  # fmt: skip
        """Note that a call begins, and return the place of its record."""
        self._n_calls += 1
        order = self._orders[place] = self._orders.get(place, 0) + 1
        at = self._base + CALLS_AT + self._n_calls % N_CALLS * CALL.size
        frame = sys._getframe(2)
        site = f"{frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)}:1)".encode()
        fields = self._n_calls, state, place, order, root, n_bytes, 0, name, element, op, site
        CALL.pack_into(self._memory, at, *fields)
        self.set_word(COMMS_AT + place * COMM.size + N_CALLS_AT, order)
        return at

    def wait(self, name: bytes) -> None:
        """Note that a call begins that waits for a request."""
        fields = WAIT.unpack_from(self._memory, self._base + WAIT_AT)
        waiting = fields[0] + 1, 1, 0, UNKNOWN, UNKNOWN, name
        WAIT.pack_into(self._memory, self._base + WAIT_AT, *waiting)

    def leave(self, at: int) -> None:
        """Note that a call has returned, given the place of its record."""
        struct.pack_into("<q", self._memory, at + 8, LEFT)


class Crew:
    """Ranks of a node that record calls, all of them in this process.

    Parameters
    ----------
    n_ranks : int
        Number of ranks.
    pids : list of int, optional
        Process of each rank; by default this process for all of them, plus a large number.
    """

    def __init__(self, n_ranks: int, pids: list[int] | None = None) -> None:
        self.area = Area(mmap.mmap(-1, n_ranks * RANK_BYTES), n_ranks)
        self.recorders = [RankRecorder(self.area, rank) for rank in range(n_ranks)]
        self.pids = pids or [10**7 + os.getpid() + rank for rank in range(n_ranks)]
        for rank, pid in enumerate(self.pids):
            base = rank * RANK_BYTES
            self.area.memory[base : base + 8] = pid.to_bytes(8, "little")
        self._latest: dict[int, int] = {}
        self.world = self.comm(WORLD, "")

    def comm(self, key: int, made_by: str, ranks: list[int] | None = None) -> dict[int, int]:
        """Make a communicator; return its place on each rank."""
        among = ranks or list(range(len(self.recorders)))
        places = {}
        for one in among:
            places[one] = self.recorders[one].add_comm(key, len(among), among.index(one), made_by)
        return places

    def call(
        self,
        rank: int,
        name: str,
        *,
        comm: dict[int, int] | None = None,
        root: int = 0,
        n_bytes: int = UNKNOWN,
        element: str = "",
        op: str = "",
        returns: bool = False,
        starts: bool = False,
    ) -> None:
        """Let a rank call a collective, from which it returns or does not."""
        recorder, places = self.recorders[rank], comm or self.world
        at = recorder.enter(
            places[rank], name.encode(), root, n_bytes, element.encode(), op.encode(),
            STARTED if starts else INSIDE,
        )  # fmt: skip
        self._latest[rank] = at
        if returns:
            recorder.leave(at)

    def leave(self, rank: int) -> None:
        """Let a rank return from its latest call."""
        self.recorders[rank].leave(self._latest[rank])

    def all_call(self, name: str, **more: object) -> None:
        """Let all ranks call a collective and return from it."""
        for rank in range(len(self.recorders)):
            self.call(rank, name, returns=True, **more)  # type: ignore[arg-type]

    def ranks(self) -> list[WatchedRank]:
        """Return the states of the ranks."""
        return self.area.ranks()
