"""Flights: ends that raise, and starts while the thread still looks at the previous one."""

from __future__ import annotations

import io
import threading
from contextlib import redirect_stderr
from typing import Any

import pytest
from mpi4py import MPI

from collplan.executors.mpi.engine.in_flight import Flight, board


@pytest.mark.ranks(1)
def test_a_flight_that_starts_again_is_not_ended_by_a_late_thread(comm: Any) -> None:
    """The thread reads that a start is over, and then the next start of the flight begins."""
    again: list[threading.Thread] = []
    ended: list[int] = []
    requests: list[MPI.Request] = []

    def start(number: int) -> None:
        handle = flight.prepare(board().address, lambda: ended.append(number))
        requests.append(MPI.Request.fromhandle(handle))

    class Reused(Flight):
        @property
        def is_done(self) -> bool:
            if not again:
                again.append(threading.Thread(target=start, args=(1,)))
                again[0].start()
                again[0].join(0.5)
            return super().is_done

    flight = Reused(0)
    start(0)
    flight.abandon(MPI.ERR_OTHER)
    with pytest.raises(MPI.Exception):
        requests[0].Wait()
    flight.end()
    again[0].join()
    assert ended == []
    assert not requests[1].Test()
    flight.abandon(MPI.ERR_OTHER)
    with pytest.raises(MPI.Exception):
        requests[1].Wait()


@pytest.mark.ranks(1)
def test_an_end_that_raises_completes_the_request_with_an_error(comm: Any) -> None:
    def finish() -> None:
        raise ValueError("no such place")

    flight = Flight(0)
    request = MPI.Request.fromhandle(flight.prepare(board().address, finish))
    flight.set(is_over=1)
    with redirect_stderr(io.StringIO()) as printed:
        flight.end()
    assert "ValueError: no such place" in printed.getvalue()
    with pytest.raises(MPI.Exception):
        request.Wait()
