"""What runs in the background of this process: programs, the thread that advances them, requests.

The thread begins with the first program that is started so, and sleeps while none is in flight.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
import threading
import time
from collections.abc import Callable
from ctypes import c_int, c_uint, c_ulong, c_void_p
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numba import types

from collplan.executors.mpi.engine.engine import HANDLE_BYTES, STATUS_BYTES
from collplan.executors.mpi.engine.loop_memory import SEMAPHORE_BYTES
from collplan.executors.mpi.loop.calls import address_of, write_word
from collplan.executors.mpi.loop.reductions import load
from collplan.executors.mpi.loop.serving import (
    BOARD,
    COMPLETE_FLIGHT,
    FLIGHT,
    SERVE_BOARD,
    TEST_FLIGHT,
    WAIT_FOR_FLIGHT,
    cancel_flight,
    free_flight,
    publish,
    query_flight,
    run_board,
)
from collplan.executors.mpi.loop.state import DONE
from collplan.planner.arrays.jit import compile_callback

TURN_NS: Final = 50_000_000
"""How long a wait runs before Python gets to handle signals."""
SPINS: Final = 20
"""Sweeps in a row without any progress before the thread sleeps between them."""
FIRST_SLEEP_NS: Final = 20_000
LONGEST_SLEEP_NS: Final = 200_000
DOZES: Final = 50
"""Looks in vain before the thread sleeps until it is woken, which costs who does that."""
LONGEST_JOIN_S: Final = 5.0
"""How long an end waits for the thread: a copy may be long."""
TIMER_SLACK_NS: Final = 1_000
"""By how much the system may prolong the thread's sleeps; by default by more than they last."""
_SET_TIMER_SLACK: Final = 29  # PR_SET_TIMERSLACK
_FIRST_PLACES: Final = 16

_BOARD, _REQUEST, _NEEDS_PYTHON, _CODE, _OVER, _DONE, _FREED = (
    list(FLIGHT.names or ()).index(name)
    for name in ("board", "request", "needs_python", "code", "is_over", "is_done", "is_freed")
)
_SYSTEM: Final = (
    *("sem_wait", "sem_trywait", "sem_timedwait", "sem_post"),
    *("clock_gettime", "nanosleep"),
)
_UNSIGNED: Final = f"u{HANDLE_BYTES}"


class Flight:
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
        self._record = np.zeros(1, dtype=FLIGHT)
        self.address: int = self._record.ctypes.data
        self._words: memoryview[int] = self._record.view(np.int64).data
        self._finishing = threading.Lock()
        self._handle = np.zeros(1, dtype=f"i{HANDLE_BYTES}")
        self.finish: Callable[[], None] | None = None
        fields = FLIGHT.fields
        assert fields is not None
        self._set(state=state)
        for name, word in (
            *(("over", "is_over"), ("done", "is_done"), ("freed", "is_freed")),
            *(("deadline", "deadline_s"), ("now", "now_s")),
        ):
            self._set(**{name: self.address + fields[word][1]})

    @property
    def is_over(self) -> bool:
        """Return whether the program is."""
        return bool(self._words[_OVER])

    @property
    def is_done(self) -> bool:
        """Return whether the request is complete, too."""
        return bool(self._words[_DONE])

    @property
    def is_freed(self) -> bool:
        """Return whether MPI has let go of the request: the flight may be used again."""
        return bool(self._words[_DONE] and self._words[_FREED])

    def prepare(self, board: int, finish: Callable[[], None] | None) -> int:
        """Begin anew; return the handle of a request."""
        for word in (_CODE, _OVER, _DONE, _FREED):
            self._words[word] = 0
        self.finish = finish
        self._words[_BOARD], self._words[_NEEDS_PYTHON] = board, finish is not None
        code = _grequest_start()(*_callbacks(), self.address, self._handle.ctypes.data)
        if code != MPI.SUCCESS:
            raise MPI.Exception(code)
        self._words[_REQUEST] = int(self._handle[0])
        return int(self._handle.view(_UNSIGNED)[0])

    def fail(self, code: int) -> None:
        """Let whoever waits see an error of MPI's."""
        self._words[_CODE] = code

    def mark_over(self) -> None:
        """Let it be over, though nothing has run."""
        self._words[_OVER] = 1

    def end(self) -> None:
        """Do Python's part and complete the request, if that is left to do."""
        with self._finishing:
            if not self.is_over or self.is_done:
                return
            if self.finish is not None:
                try:
                    self.finish()
                except MPI.Exception as error:
                    self.fail(error.Get_error_code())
                self.finish = None
            run_board(self.address, COMPLETE_FLIGHT, 0)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._record[name] = value


class Board:
    """All flights of this process, and the thread that advances them."""

    def __init__(self) -> None:
        self._record = np.zeros(1, dtype=BOARD)
        self.address: int = self._record.ctypes.data
        self._lock, self._work = _semaphore(1), _semaphore(0)
        self._places = np.zeros(_FIRST_PLACES, dtype=np.int64)
        self._old_places: list[npt.NDArray[np.int64]] = []
        self._free_places = list(range(_FIRST_PLACES))[::-1]
        self._flights: dict[int, Flight] = {}
        self._lingering: list[Flight] = []
        """Those that are over, and whose requests MPI still has."""
        self._status = _empty_status()
        self._adding = threading.Lock()
        fields = BOARD.fields
        assert fields is not None
        self._stopping: int = self.address + fields["is_stopping"][1]
        self._post: Any = ctypes.CFUNCTYPE(c_int, c_void_p)(address_of("sem_post"))
        self._wait: Any = ctypes.CFUNCTYPE(c_int, c_void_p)(address_of("sem_wait"))
        self._over: int = self.address + fields["is_over"][1]
        self._work_at: int = self._work.ctypes.data
        self._set(
            places=self._places.ctypes.data,
            n_places=len(self._places),
            lock=self._lock.ctypes.data,
            work=self._work.ctypes.data,
            stopping=self._stopping,
            wanted=self.address + fields["is_wanted"][1],
            awake=self.address + fields["is_awake"][1],
            over=self._over,
            dozes=DOZES,
            status=self._status.ctypes.data,
            status_bytes=len(self._status),
            sleep=self.address + fields["sleep_s"][1],
            monotonic=time.CLOCK_MONOTONIC,
            realtime=time.CLOCK_REALTIME,
            spins=SPINS,
            first_sleep_ns=FIRST_SLEEP_NS,
            longest_sleep_ns=LONGEST_SLEEP_NS,
            grequest_complete=address_of("MPI_Grequest_complete", MPI.__file__),
            **{name: address_of(name) for name in _SYSTEM},
        )
        thread = threading.Thread(target=self._serve, name="collplan flights", daemon=True)
        thread.start()
        # Before Python's memory goes and MPI ends.
        atexit.register(self._stop, thread)

    def add(self, flight: Flight) -> None:
        """Let the thread, or who waits, advance a flight that was prepared."""
        with self._adding:
            if not self._free_places:
                self._make_room()
            place = self._free_places.pop()
            self._flights[place] = flight
            is_seen = publish(self.address, place, flight.address)
        if not is_seen:
            self._post(self._work_at)

    def wait(self, flight: Flight) -> None:
        """Return when a flight is done; advance all meanwhile."""
        while run_board(flight.address, WAIT_FOR_FLIGHT, TURN_NS) != DONE:
            pass
        flight.end()

    def test(self, flight: Flight) -> bool:
        """Advance all once, if nobody does; return whether a flight is done."""
        if run_board(flight.address, TEST_FLIGHT, 0) != DONE:
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
        # The thread may still look at the old ones.
        self._old_places.append(self._places)
        self._places = more
        self._set(places=more.ctypes.data, n_places=2 * n)
        self._post(self._lock.ctypes.data)
        self._free_places = list(range(2 * n - 1, n - 1, -1)) + self._free_places

    def _serve(self) -> None:
        # Signals are the caller's, whose wait they end.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _shorten_timer_slack()
        while run_board(self.address, SERVE_BOARD, 0) != DONE:
            write_word(self._over, 0)
            for flight in list(self._flights.values()):
                flight.end()
            # The others go on.
            self._post(self._work_at)

    def _stop(self, thread: threading.Thread) -> None:
        write_word(self._stopping, 1)
        self._post(self._work_at)
        thread.join(LONGEST_JOIN_S)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._record[name] = value


def load_machine_code() -> None:
    """Compile what flights need, or take it from the cache, so that no start has to."""
    load(None)
    _callbacks()
    over = Flight(0)
    over.mark_over()
    run_board(over.address, TEST_FLIGHT, 0)


@cache
def board() -> Board:
    """Return the board of this process; its thread begins now."""
    return Board()


def _semaphore(value: int) -> npt.NDArray[np.uint8]:
    memory = np.zeros(SEMAPHORE_BYTES, np.uint8)
    initialise: Any = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_uint)(address_of("sem_init"))
    if initialise(memory.ctypes.data, 0, value) != 0:
        raise OSError("the system has no semaphores without names")
    return memory


def _empty_status() -> npt.NDArray[np.uint8]:
    """Return the bytes of the status that collectives end with."""
    status = MPI.Status()
    status.Set_source(MPI.ANY_SOURCE)
    status.Set_tag(MPI.ANY_TAG)
    status.Set_error(MPI.SUCCESS)
    status.Set_elements(MPI.BYTE, 0)
    status.Set_cancelled(False)
    there: Any = MPI.buffer.fromaddress(MPI._addressof(status), STATUS_BYTES)
    return np.frombuffer(there, np.uint8).copy()


@cache
def _grequest_start() -> Any:
    kind = ctypes.CFUNCTYPE(c_int, *(c_void_p,) * 5)
    return kind(address_of("MPI_Grequest_start", MPI.__file__))


@cache
def _callbacks() -> tuple[int, int, int]:
    """Return the addresses of what MPI calls for generalized requests."""
    word, number = types.int64, types.int32
    return (
        compile_callback(query_flight, number(word, word), _nrt=False),
        compile_callback(free_flight, number(word), _nrt=False),
        compile_callback(cancel_flight, number(word, number), _nrt=False),
    )


def _shorten_timer_slack() -> None:
    """Let short sleeps of this thread be short, where the system knows how."""
    set_option = getattr(ctypes.CDLL(None), "prctl", None)
    if set_option is not None:
        set_option(_SET_TIMER_SLACK, c_ulong(TIMER_SLACK_NS), c_ulong(0), c_ulong(0), c_ulong(0))
