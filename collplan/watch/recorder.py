"""Records of a Python rank: it writes what it does into the memory that the watcher reads."""

from __future__ import annotations

import os
import platform
import struct
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Final

from collplan.watch.area import (
    CALL,
    CALLS_AT,
    COMM,
    COMMS_AT,
    HEAD,
    INSIDE,
    LEFT,
    N_CALLS,
    N_COMMS,
    PLACE_BYTES,
    RANK_BYTES,
    STARTED,
    Area,
)
from collplan.watch.diagnosis import difference_at
from collplan.watch.trace import TracedCall, line_of

ANSWER_S: Final = 2.0
"""Longest time in seconds for which a rank waits until the watcher has reported its call."""
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_MOST_SITES: Final = 4096
_CALLER_DEPTH: Final = 3
"""Number of frames between the program and `CallRecorder._site`, at least."""
_WORD: Final = struct.Struct("<q")
_STATE_AT: Final = 8
_MISMATCH_AT: Final = HEAD.size - 16
_ANSWERED_AT: Final = HEAD.size - 8
_FINALIZED_AT: Final = 24


class CallRecorder:
    """Writer of the records of one rank.

    Parameters
    ----------
    area : Area
        Memory of the ranks of the node.
    slot : int
        Number of this rank on the node.
    rank : int
        Rank in ``MPI_COMM_WORLD``.
    is_checking : bool
        Whether a call waits for its report if another rank makes another call in its place.
    trace_folder : str, optional
        Folder into which the times of all blocking calls are written at the end.
    """

    def __init__(
        self,
        area: Area,
        slot: int,
        rank: int,
        *,
        is_checking: bool = False,
        trace_folder: str | None = None,
    ) -> None:
        self._area = area
        self._memory = area.memory
        self._base = slot * RANK_BYTES
        self._rank = rank
        self._is_checking = is_checking
        self._trace_folder = trace_folder
        self._traced: list[TracedCall] = []
        self._open: dict[int, TracedCall] = {}
        """Calls that have not returned, by the place of the record."""
        self._members: dict[int, tuple[int, int]] = {}
        self._n_calls = 0
        self._orders = [0] * N_COMMS
        self._keys = [0] * N_COMMS
        self._sites: dict[tuple[CodeType, int], bytes | None] = {}
        """Call sites by code and instruction; None for those of this package."""
        _WORD.pack_into(self._memory, self._base + 8, rank)
        _WORD.pack_into(self._memory, self._base, os.getpid())

    def add_comm(self, key: int, size: int, rank: int, made_by: str) -> int | None:
        """Give a communicator a place; return the place, or None if none is free or needed.

        Parameters
        ----------
        key : int
            Number that is the same on all ranks of the communicator. If it is used, a following
            number is taken, on all ranks alike.
        size, rank : int
            Number of ranks, and this rank in the communicator.
        made_by : str
            Name of the function that made it.
        """
        while key in self._keys:
            key += 1
        if size < 2 or 0 not in self._keys:
            return None
        place = self._keys.index(0)
        self._keys[place], self._orders[place] = key, 0
        self._members[place] = size, rank
        COMM.pack_into(self._memory, self._comm_at(place), key, size, rank, 0, 0, made_by.encode())
        return place

    def key_of(self, place: int) -> int:
        """Return the key of the communicator at a place."""
        return self._keys[place]

    def free_comm(self, place: int) -> None:
        """Free the place of a communicator."""
        self._keys[place] = 0
        _WORD.pack_into(self._memory, self._comm_at(place), 0)

    def enter(
        self, place: int, name: bytes, root: int, n_bytes: int, element: bytes, op: bytes,
        state: int = INSIDE,
    ) -> int:  # fmt: skip
        """Note that a call begins, and return the place of its record for `leave`.

        Parameters
        ----------
        place : int
            Place of the communicator.
        name, element, op : bytes
            Names of the function, the datatype and the operation; the latter may be empty.
        root, n_bytes : int
            Root and size; `UNKNOWN` if they may differ per rank.
        state : int
            `INSIDE`, or `STARTED` for a non-blocking call.
        """
        memory, orders = self._memory, self._orders
        number = self._n_calls = self._n_calls + 1
        order = orders[place] = orders[place] + 1
        at = self._base + CALLS_AT + number % N_CALLS * CALL.size
        site = self._site()
        CALL.pack_into(
            memory, at, number, state, place, order, root, n_bytes, 0, name, element, op, site
        )
        _WORD.pack_into(memory, self._base + COMMS_AT + place * COMM.size + 24, order)
        if self._is_checking:
            self._check(self._keys[place], order, number)
        if self._trace_folder and state == INSIDE:
            self._open[at] = TracedCall(
                self._rank, self._keys[place], *self._members[place], order, name.decode(), root,
                n_bytes, site.decode(errors="replace"), time.monotonic(), 0.0,
            )  # fmt: skip
        return at

    def leave(self, at: int) -> None:
        """Note that a call has returned, given the place of its record."""
        _WORD.pack_into(self._memory, at + _STATE_AT, LEFT)
        if self._trace_folder and (one := self._open.pop(at, None)) is not None:
            self._traced.append(replace(one, leave_s=time.monotonic()))

    def take_back(self, place: int) -> None:
        """Forget the last call on a communicator, which other ranks have yet to make."""
        self._orders[place] -= 1
        _WORD.pack_into(self._memory, self._comm_at(place) + 24, self._orders[place])

    def end(self) -> None:
        """Note that this rank ends as it should."""
        _WORD.pack_into(self._memory, self._base + _FINALIZED_AT, 1)
        if self._trace_folder:
            lines = [f"{platform.node()}\t{len(self._traced)}", *map(line_of, self._traced)]
            with suppress(OSError):  # the command that reads the files says that they are missing
                Path(self._trace_folder, f"{self._rank}.calls").write_text("\n".join(lines) + "\n")

    def _comm_at(self, place: int) -> int:
        return self._base + COMMS_AT + place * COMM.size

    def _site(self) -> bytes:
        """Return the innermost call site outside of this package."""
        frame, sites = sys._getframe(_CALLER_DEPTH), self._sites
        while True:
            key = frame.f_code, frame.f_lasti
            try:
                text = sites[key]
            except KeyError:
                if len(sites) >= _MOST_SITES:
                    sites.clear()
                text = sites[key] = _text_of(frame.f_code, frame.f_lineno)
            if text is not None:
                return text
            if frame.f_back is None:
                return b""
            frame = frame.f_back

    def _check(self, key: int, order: int, number: int) -> None:
        """Wait until the watcher has reported a call that another rank has made differently."""
        if difference_at(self._area.ranks(), key, order) is None:
            return
        _WORD.pack_into(self._memory, self._base + _MISMATCH_AT, number)
        end_s = time.monotonic() + ANSWER_S
        while time.monotonic() < end_s:
            (answered,) = _WORD.unpack_from(self._memory, self._base + _ANSWERED_AT)
            if answered >= number:
                return
            time.sleep(1e-3)


def _text_of(code: CodeType, line: int | None) -> bytes | None:
    """Return a call site as text; None if it is in this package."""
    if code.co_filename.startswith(_OURS):
        return None
    where = f"{os.path.basename(code.co_filename)}:{line}"
    name = code.co_name if code.co_name != "<module>" else "the program"
    text = f"{name} ({where})".encode()
    return text[: PLACE_BYTES - 1]


STATES: Final = {False: INSIDE, True: STARTED}
"""State of a call by whether it does not block."""
