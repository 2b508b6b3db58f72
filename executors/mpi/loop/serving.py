"""Progress of all started programs, by a progress thread or by a thread that waits for a program.

The thread that holds the lock of the board advances all programs on it. When a program ends, its
generalized request of MPI completes, so that any function of MPI can wait for it. This code does
not need Python, because MPI may hold locks of its own while it queries the status of a request.
"""

from __future__ import annotations

import numpy as np

from collplan.executors.mpi.loop import codes
from collplan.executors.mpi.loop.calls import (
    call,
    fence,
    inlined,
    inner,
    load_acquire,
    move,
    pointer,
    record_at,
    store_release,
)
from collplan.executors.mpi.loop.loop import POLLS_A_CLOCK, idle, run_loop
from collplan.executors.mpi.loop.records import BOARD, FLIGHT
from collplan.executors.mpi.loop.state import Long, Record, nap, now, sleep_on, state_at

LOCK_SPINS = 1000
"""Number of attempts to take the lock before a waiting thread sleeps, as most sweeps are short."""
LOCK_TURN_NS = 1_000_000
"""Sleep of a waiting thread while another thread advances all programs, in ns."""
WORD_BYTES = 8


@inlined
def _board_at(address: int) -> Record:
    return record_at(address, 0, BOARD)


@inlined
def _flight_at(address: int) -> Record:
    return record_at(address, 0, FLIGHT)


@inner
def _sweep(board: Record) -> None:
    """Advance all programs once."""
    for i in range(board.n_places):
        place = board.places + WORD_BYTES * i
        address = load_acquire(place)
        if address == 0:
            continue
        flight = _flight_at(address)
        state = state_at(flight.state)
        before = state.progress
        found = run_loop(flight.state, codes.TEST)
        board.progress += state.progress - before
        if found == codes.PENDING:
            continue
        board.progress += 1
        if found != codes.DONE:
            flight.code = state.code
        store_release(place, 0)
        if flight.needs_python:
            store_release(board.over, 1)
            store_release(flight.over, 1)
        else:
            _complete(board, flight)


@inner
def _complete(board: Record, flight: Record) -> None:
    """Complete the request of a flight, which may then be reused."""
    done = flight.done
    call(board.MPI_Grequest_complete, (flight.request,))
    store_release(flight.over, 1)
    store_release(done, 1)


@inner
def _are_any(board: Record) -> bool:
    """Return whether a program is in flight."""
    # The lock is not needed: the number of places may increase meanwhile, but never decreases.
    n_found = 0
    for i in range(board.n_places):
        if load_acquire(board.places + WORD_BYTES * i):
            n_found += 1
    return n_found > 0


@inner
def _take_turn(board: Record) -> None:
    """Advance all programs once, unless another thread does or wants to."""
    if load_acquire(board.wanted) == 0 and call(board.sem_trywait, (pointer(board.lock),)) == 0:
        _sweep(board)
        call(board.sem_post, (pointer(board.lock),))


@inner
def _serve(board: Record) -> Long:
    """Advance programs until the thread is stopped (DONE) or Python must end one (PENDING)."""
    while True:
        while call(board.sem_wait, (pointer(board.work),)) != 0:
            pass
        # One sweep finds all programs that were started since.
        while call(board.sem_trywait, (pointer(board.work),)) == 0:
            pass
        store_release(board.awake, 1)
        found = _serve_awake(board)
        store_release(board.awake, 0)
        fence()
        # A caller that saw the thread awake did not wake it for its program.
        if found == codes.DONE and not load_acquire(board.stopping):
            if _are_any(board):
                call(board.sem_post, (pointer(board.work),))
            continue
        return found


@inner
def _serve_awake(board: Record) -> Long:
    """Advance programs until none has been in flight for a while.

    Returns
    -------
    int
        PENDING if Python must end a program, otherwise DONE.
    """
    # Begin with sleeps: the caller may wait for its program at once, and then advances it.
    polls = np.int64(board.spins + 1)
    n_vain = np.int64(0)
    while n_vain < board.dozes:
        if load_acquire(board.stopping):
            return codes.DONE
        if load_acquire(board.over):
            return codes.PENDING
        if not _are_any(board):
            n_vain += 1
            polls = np.int64(board.spins + 1)
            nap(board, board.longest_sleep_ns)
            continue
        n_vain = np.int64(0)
        if polls > board.spins:
            ns = board.first_sleep_ns * (polls - board.spins)
            nap(board, min(ns, board.longest_sleep_ns))
        before = board.progress
        _take_turn(board)
        polls = np.int64(0) if board.progress != before else polls + 1
    return codes.DONE


@inner
def _lock(board: Record, flight: Record) -> bool:
    """Take the lock, or sleep if another thread keeps it; return whether it was taken."""
    for _ in range(LOCK_SPINS):
        if call(board.sem_trywait, (pointer(board.lock),)) == 0:
            return True
    return bool(sleep_on(state_at(flight.state), board.lock, LOCK_TURN_NS))


@inner
def _advance(board: Record, flight: Record, turn_ns: int) -> None:
    state = state_at(flight.state)
    end_ns = now(state) + turn_ns
    polls = 0
    while not load_acquire(flight.over):
        before = board.progress
        _sweep(board)
        if board.progress != before:
            polls = 0
            continue
        polls += 1
        idle(state, polls)
        if polls % POLLS_A_CLOCK == 0 and now(state) >= end_ns:
            return


@inner
def run_board(address: int, what: int, turn_ns: int) -> Long:
    """Fulfill a request for a board or a flight.

    Parameters
    ----------
    address : int
        Address of the board for `SERVE_BOARD`, otherwise of a flight.
    what : int
        `SERVE_BOARD` advances programs until the thread is stopped. `WAIT_FOR_FLIGHT` advances all
        programs until the flight has ended. `TEST_FLIGHT` advances them once, unless another thread
        does. `COMPLETE_FLIGHT` completes the request of the flight.
    turn_ns : int
        Maximum time of a wait in ns.

    Returns
    -------
    int
        DONE if the request is fulfilled. PENDING if a flight has not ended, or if Python must end a
        program on the board.
    """
    if what == codes.SERVE_BOARD:
        return _serve(_board_at(address))
    flight = _flight_at(address)
    if what != codes.COMPLETE_FLIGHT and load_acquire(flight.over):
        return codes.DONE
    board = _board_at(flight.board)
    if what == codes.COMPLETE_FLIGHT:
        _complete(board, flight)
        return codes.DONE
    if what == codes.TEST_FLIGHT:
        if call(board.sem_trywait, (pointer(board.lock),)) != 0:
            return codes.PENDING
        _sweep(board)
    else:
        # Tasks that were held for this wait may now run in any thread.
        store_release(state_at(flight.state).hold_until, 0)
        # The progress thread leaves the work to waiting threads. If several wait, the first to
        # return clears this word.
        store_release(board.wanted, 1)
        is_locked = _lock(board, flight)
        if is_locked:
            _advance(board, flight, turn_ns)
        store_release(board.wanted, 0)
        if not is_locked:
            return codes.PENDING
    call(board.sem_post, (pointer(board.lock),))
    return codes.DONE if load_acquire(flight.over) else codes.PENDING


@inner
def publish(board: int, place: int, flight: int) -> bool:
    """Store a flight in a place of a board; return whether the thread is awake and will see it."""
    record = _board_at(board)
    store_release(record.places + WORD_BYTES * place, flight)
    fence()
    return bool(load_acquire(record.awake) != 0)


@inner
def query_flight(extra_state: int, status: int) -> Long:
    """Fill in the status of a generalized request for MPI, and return its error code."""
    flight = _flight_at(extra_state)
    board = _board_at(flight.board)
    move(status, board.status, board.status_bytes)
    return np.int32(flight.code)


@inner
def free_flight(extra_state: int) -> Long:
    """Note that MPI has freed a generalized request."""
    store_release(_flight_at(extra_state).freed, 1)
    return np.int32(0)


@inner
def cancel_flight(extra_state: int, is_complete: int) -> Long:
    """Do nothing, because MPI does not allow collectives to be canceled."""
    return np.int32(0)
