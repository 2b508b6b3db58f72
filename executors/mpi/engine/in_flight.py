"""Programs in flight in this process, the thread that advances them, and their requests.

The thread begins with the first program that is started so, and sleeps while none is in flight.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import c_int, c_ulong, c_void_p
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.loop_memory import SharedRecord
from collplan.executors.mpi.engine.progress_thread import ProgressThread, semaphore, semaphore_call
from collplan.executors.mpi.host.symbols import address_of
from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.entries import callback, entry
from collplan.executors.mpi.loop.records import BOARD, FLIGHT
from collplan.executors.mpi.loop.reductions import load
from collplan.executors.mpi.program.messages import HANDLE_BYTES, STATUS_BYTES

TURN_NS: Final = 50_000_000
"""Time of a wait before Python gets to handle signals, in ns."""
SPINS: Final = 20
"""Sweeps in a row without any progress before the thread sleeps between them."""
FIRST_SLEEP_NS: Final = 20_000
LONGEST_SLEEP_NS: Final = 200_000
DOZES: Final = 50
"""Number of polls without a result before the thread sleeps; to wake it costs its waker time."""
TIMER_SLACK_NS: Final = 1_000
"""By how much the system may prolong the thread's sleeps; by default by more than they last."""
_SET_TIMER_SLACK: Final = 29  # PR_SET_TIMERSLACK
_FIRST_PLACES: Final = 16

_BOARD, _REQUEST, _NEEDS_PYTHON, _CODE, _OVER, _DONE, _FREED = (
    list(FLIGHT.names or ()).index(name)
    for name in ("board", "request", "needs_python", "code", "is_over", "is_done", "is_freed")
)
_UNSIGNED: Final = f"u{HANDLE_BYTES}"


class Flight(SharedRecord):
    """A started program, and the generalized request that is complete when it is over.

    Parameters
    ----------
    state : int
        The address of the program's state.

    Attributes
    ----------
    finish : callable or None
        What Python has to do when the program is over, before the request completes.
    """

    def __init__(self, state: int) -> None:
        super().__init__(FLIGHT)
        self._finishing = threading.Lock()
        self._handle = np.zeros(1, dtype=f"i{HANDLE_BYTES}")
        self.finish: Callable[[], None] | None = None
        self.set(state=state)
        self.point(over="is_over", done="is_done", freed="is_freed")

    @property
    def is_done(self) -> bool:
        """Return whether the request is complete, too."""
        return bool(self.words[_DONE])

    @property
    def is_freed(self) -> bool:
        """Return whether MPI has let go of the request: the flight may be used again."""
        return bool(self.words[_DONE] and self.words[_FREED])

    def prepare(self, board: int, finish: Callable[[], None] | None) -> int:
        """Begin again; return the handle of a request."""
        for word in (_CODE, _OVER, _DONE, _FREED):
            self.words[word] = 0
        self.finish = finish
        self.words[_BOARD], self.words[_NEEDS_PYTHON] = board, finish is not None
        code = _grequest_start()(*_callbacks(), self.address, self._handle.ctypes.data)
        if code != MPI.SUCCESS:
            raise MPI.Exception(code)
        self.words[_REQUEST] = int(self._handle[0])
        return int(self._handle.view(_UNSIGNED)[0])

    def fail(self, code: int) -> None:
        """Let the thread that waits see an error of MPI."""
        self.words[_CODE] = code

    def end(self) -> None:
        """Do Python's part and complete the request, if that is left to do."""
        with self._finishing:
            if not self.words[_OVER] or self.is_done:
                return
            if self.finish is not None:
                try:
                    self.finish()
                except MPI.Exception as error:
                    self.fail(error.Get_error_code())
                self.finish = None
            entry("run_board")(self.address, codes.COMPLETE_FLIGHT, 0)


class Board(SharedRecord):
    """All flights of this process, and the thread that advances them.

    Attributes
    ----------
    thread_id : int
        The system's number of the thread.
    """

    def __init__(self) -> None:
        super().__init__(BOARD)
        self._lock, self._work = semaphore(1), semaphore()
        self._places = np.zeros(_FIRST_PLACES, dtype=np.int64)
        self._free_places = list(range(_FIRST_PLACES))[::-1]
        self._flights: dict[int, Flight] = {}
        self._lingering: list[Flight] = []
        """Those that are over, and whose requests MPI still has."""
        self._adding = threading.Lock()
        self._post, self._wait = semaphore_call("sem_post"), semaphore_call("sem_wait")
        status = _empty_status()
        self.place(places=self._places, lock=self._lock, work=self._work, status=status)
        self.point(stopping="is_stopping", wanted="is_wanted", awake="is_awake", over="is_over")
        self.point(sleep="sleep_s")
        self.set(
            n_places=_FIRST_PLACES,
            status_bytes=len(status),
            dozes=DOZES,
            spins=SPINS,
            first_sleep_ns=FIRST_SLEEP_NS,
            longest_sleep_ns=LONGEST_SLEEP_NS,
        )
        self.find("sem_wait", "sem_trywait", "sem_post", "nanosleep")
        self.find("MPI_Grequest_complete", library=MPI.__file__)
        self._over, self._work_at = self.get("over"), self.get("work")
        name, stopping = "collplan flights", self.get("stopping")
        self._thread = ProgressThread(name, self._serve, stopping, self._work_at, self)
        self.thread_id = self._thread.native_id
        self._processor: int | None = None

    def add(self, flight: Flight) -> None:
        """Let the thread, or who waits, advance a flight that was prepared."""
        with self._adding:
            if not self._free_places:
                self._make_room()
            place = self._free_places.pop()
            self._flights[place] = flight
            is_seen = entry("publish")(self.address, place, flight.address)
        if not is_seen:
            self._post(self._work_at)

    def stay_on(self, processor: int | None) -> None:
        """Let the thread run on one processor from now on; if None, leave it where it is.

        Threads that wait advance flights where they are.
        """
        if processor is None or processor == self._processor:
            return
        os.sched_setaffinity(self.thread_id, {processor})
        self._processor = processor

    def wait(self, flight: Flight) -> None:
        """Return when a flight is done; advance all meanwhile."""
        while entry("run_board")(flight.address, codes.WAIT_FOR_FLIGHT, TURN_NS) != codes.DONE:
            pass
        flight.end()

    def test(self, flight: Flight) -> bool:
        """Advance all once, if nobody does; return whether a flight is done."""
        if entry("run_board")(flight.address, codes.TEST_FLIGHT, 0) != codes.DONE:
            return False
        flight.end()
        return True

    def _make_room(self) -> None:
        """Take back places of flights that are over, and make more if that is not enough."""
        for place, flight in list(self._flights.items()):
            if flight.is_done:
                self._lingering.append(self._flights.pop(place))
                self._free_places.append(place)
        self._lingering = [flight for flight in self._lingering if not flight.is_freed]
        n = len(self._places)
        if len(self._free_places) > n // 2:
            return
        more = np.zeros(2 * n, dtype=np.int64)
        while self._wait(self._lock.ctypes.data) != 0:
            pass
        more[:n] = self._places
        self._places = more
        # The thread may still look at the old ones, which are kept.
        self.place(places=more)
        self.set(n_places=2 * n)
        self._post(self._lock.ctypes.data)
        self._free_places = list(range(2 * n - 1, n - 1, -1)) + self._free_places

    def _serve(self) -> None:
        _shorten_timer_slack()
        while entry("run_board")(self.address, codes.SERVE_BOARD, 0) != codes.DONE:
            entry("write_word")(self._over, 0)
            for flight in list(self._flights.values()):
                flight.end()
            # The others go on.
            self._post(self._work_at)


def load_machine_code() -> None:
    """Compile what flights need, or take it from the cache, so that no start has to."""
    load(None)
    _callbacks()
    over = Flight(0)
    over.set(is_over=1)
    entry("run_board")(over.address, codes.TEST_FLIGHT, 0)


@cache
def board() -> Board:
    """Return the board of this process; its thread begins now."""
    return Board()


def _empty_status() -> npt.NDArray[np.uint8]:
    """Return the bytes of the status that collectives end with."""
    status = MPI.Status()
    MPI.REQUEST_NULL.Wait(status)  # which ends with the same
    there: Any = MPI.buffer.fromaddress(MPI._addressof(status), STATUS_BYTES)
    return np.frombuffer(there, np.uint8).copy()


@cache
def _grequest_start() -> Any:
    kind = ctypes.CFUNCTYPE(c_int, *(c_void_p,) * 5)
    return kind(address_of("MPI_Grequest_start", MPI.__file__))


@cache
def _callbacks() -> tuple[int, int, int]:
    """Return the addresses of what MPI calls for generalized requests."""
    return callback("query_flight"), callback("free_flight"), callback("cancel_flight")


def _shorten_timer_slack() -> None:
    """Let short sleeps of this thread be short, where the system knows how."""
    set_option = getattr(ctypes.CDLL(None), "prctl", None)
    if set_option is not None:
        set_option(_SET_TIMER_SLACK, c_ulong(TIMER_SLACK_NS), c_ulong(0), c_ulong(0), c_ulong(0))
