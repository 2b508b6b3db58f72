"""Programs in flight in this process, their requests, and the thread that advances them.

The thread is created with the first program, and sleeps while no program is in flight.
"""

from __future__ import annotations

import ctypes
import os
import threading
import traceback
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
from collplan.executors.mpi.program.messages import HANDLE_BYTES, STATUS_BYTES

TURN_NS: Final = 50_000_000
"""Maximum time in a wait before Python handles signals, in ns."""
SPINS: Final = 20
"""Number of consecutive sweeps without progress before the thread sleeps between sweeps."""
FIRST_SLEEP_NS: Final = 20_000
LONGEST_SLEEP_NS: Final = 200_000
DOZES: Final = 50
"""Number of polls without a result before the thread sleeps, as waking it takes time."""
TIMER_SLACK_NS: Final = 1_000
"""Timer slack of the thread. By default, it is longer than the thread's sleeps."""
_SET_TIMER_SLACK: Final = 29  # PR_SET_TIMERSLACK
_FIRST_PLACES: Final = 16

_BOARD, _REQUEST, _NEEDS_PYTHON, _CODE, _OVER, _DONE, _FREED = (
    list(FLIGHT.names or ()).index(name)
    for name in ("board", "request", "needs_python", "code", "is_over", "is_done", "is_freed")
)
_UNSIGNED: Final = f"u{HANDLE_BYTES}"


class Flight(SharedRecord):
    """A started program with a generalized request, which completes when the program ends.

    Parameters
    ----------
    state : int
        Address of the program's state.

    Attributes
    ----------
    finish : callable or None
        Function to call when the program has ended, before the request completes.
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
        """Return whether MPI has freed the request, so that the flight can be reused."""
        return bool(self.words[_DONE] and self.words[_FREED])

    def prepare(self, board: int, finish: Callable[[], None] | None) -> int:
        """Prepare another start; return the handle of its request."""
        # The thread may still be in `end` for the previous start. It must not end this one, too.
        with self._finishing:
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
        """Report an error of MPI to the waiting thread."""
        self.words[_CODE] = code

    def abandon(self, code: int) -> None:
        """Complete the request with an error of MPI, without `finish`.

        Parameters
        ----------
        code : int
            Error code of MPI. 0 becomes ``MPI.ERR_OTHER``. The program must not be on the board.
        """
        with self._finishing:
            self.finish = None
            self.fail(code or MPI.ERR_OTHER)
            entry("run_board")(self.address, codes.COMPLETE_FLIGHT, 0)

    def end(self) -> None:
        """Call `finish` and complete the request, unless this has been done.

        If `finish` raises an exception, the request completes with an error.
        """
        with self._finishing:
            if not self.words[_OVER] or self.is_done:
                return
            if self.finish is not None:
                try:
                    self.finish()
                except MPI.Exception as error:
                    self.fail(error.Get_error_code())
                except Exception:
                    # A request can only report a code of MPI. Without it, the wait would not end.
                    traceback.print_exc()
                    self.fail(MPI.ERR_OTHER)
                self.finish = None
            entry("run_board")(self.address, codes.COMPLETE_FLIGHT, 0)


class Board(SharedRecord):
    """All flights of this process, with the thread that advances them.

    Attributes
    ----------
    thread_id : int
        Identifier of the thread in the operating system.
    """

    def __init__(self) -> None:
        super().__init__(BOARD)
        self._lock, self._work = semaphore(1), semaphore()
        self._places = np.zeros(_FIRST_PLACES, dtype=np.int64)
        self._free_places = list(range(_FIRST_PLACES))[::-1]
        self._flights: dict[int, Flight] = {}
        self._lingering: list[Flight] = []
        """Completed flights whose requests MPI still uses."""
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
        """Add a prepared flight, which the thread or a waiting caller advances."""
        with self._adding:
            if not self._free_places:
                self._make_room()
            place = self._free_places.pop()
            self._flights[place] = flight
            is_seen = entry("publish")(self.address, place, flight.address)
        if not is_seen:
            self._post(self._work_at)

    def stay_on(self, processor: int | None) -> None:
        """Bind the thread to one processor; None does not change its affinity.

        Waiting threads advance flights on their own processors.
        """
        if processor is None or processor == self._processor:
            return
        os.sched_setaffinity(self.thread_id, {processor})
        self._processor = processor

    def wait(self, flight: Flight) -> None:
        """Wait until a flight is done, and advance all flights in this time."""
        while entry("run_board")(flight.address, codes.WAIT_FOR_FLIGHT, TURN_NS) != codes.DONE:
            pass
        flight.end()

    def test(self, flight: Flight) -> bool:
        """Advance all flights once unless another thread does; return whether a flight is done."""
        if entry("run_board")(flight.address, codes.TEST_FLIGHT, 0) != codes.DONE:
            return False
        flight.end()
        return True

    def _make_room(self) -> None:
        """Reuse the places of completed flights, and add places if these are not sufficient."""
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
        # The old arrays are kept, as the thread may still access them.
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
            # Wake the thread again for the remaining flights.
            self._post(self._work_at)


@cache
def board() -> Board:
    """Return the board of this process, and create its thread if necessary."""
    return Board()


def _empty_status() -> npt.NDArray[np.uint8]:
    """Return the bytes of the status of completed collectives."""
    status = MPI.Status()
    MPI.REQUEST_NULL.Wait(status)  # gives the same status as a completed collective
    there: Any = MPI.buffer.fromaddress(MPI._addressof(status), STATUS_BYTES)
    return np.frombuffer(there, np.uint8).copy()


@cache
def _grequest_start() -> Any:
    kind = ctypes.CFUNCTYPE(c_int, *(c_void_p,) * 5)
    return kind(address_of("MPI_Grequest_start", MPI.__file__))


@cache
def _callbacks() -> tuple[int, int, int]:
    """Return the addresses of the callbacks for generalized requests."""
    return callback("query_flight"), callback("free_flight"), callback("cancel_flight")


def _shorten_timer_slack() -> None:
    """Reduce the timer slack of this thread, if the system supports it."""
    set_option = getattr(ctypes.CDLL(None), "prctl", None)
    if set_option is not None:
        set_option(_SET_TIMER_SLACK, c_ulong(TIMER_SLACK_NS), c_ulong(0), c_ulong(0), c_ulong(0))
