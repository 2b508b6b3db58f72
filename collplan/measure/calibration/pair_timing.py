"""Time messages that the engine sends between two ranks, and sends whose receive is late."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.measure.calibration.measurements import (
    Burst,
    Effort,
    LateReceive,
    LinkClass,
    PingPong,
    Transfer,
)
from collplan.measure.timing import everywhere, sleep_until
from collplan.planner.arrays import Longs, csr
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.pieces import one_each
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import Dependencies

_RANKS: Final = 2


def ping_pong_plan(n_bytes: int, round_trips: int) -> Plan:
    """Return a ping-pong plan of two ranks: rank 0 sends first and receives last.

    Each rank posts the receive of the answer before it sends a message.
    """
    sender = np.arange(2 * round_trips) % 2
    # Send i waits for message i - 1. Receive i waits for message i - 2, which used its buffer.
    return _plan(sender, n_bytes, before_send=1, before_recv=2, n_places=1)


def burst_plan(n_bytes: int, n_messages: int) -> Plan:
    """Return a plan in which rank 0 sends independent messages to rank 1."""
    sender = np.zeros(n_messages, dtype=np.int64)
    return _plan(sender, n_bytes, before_send=0, before_recv=0, n_places=n_messages)


def _plan(
    sender: Longs, n_bytes: int, *, before_send: int, before_recv: int, n_places: int
) -> Plan:
    """Return the plan of messages; each has two rows, first the receive and then the send.

    If `before_send` is k > 0, the send of message i waits for the receive of message i - k.
    The same holds for `before_recv` and the receive of message i.
    """
    n = len(sender)
    message = np.arange(n)
    is_send = np.tile([False, True], n)
    rank = np.column_stack((1 - sender, sender)).reshape(-1)
    place = np.repeat(message % n_places, 2) * n_bytes
    waits = np.column_stack((message - before_recv, message - before_send)).reshape(-1)
    has = (waits >= 0) & np.where(is_send, before_send > 0, before_recv > 0)
    buffers = np.full((_RANKS, 3), n_bytes * n_places, dtype=np.int64)
    buffers[:, Buffer.SCRATCH] = 0
    counts = np.full(2 * n, n_bytes)
    return assemble(
        RankPlaces.one_per_node(_RANKS),
        {
            "op": np.where(is_send, Op.SEND, Op.RECV),
            "rank": rank,
            "peer": 1 - rank,
            "tag": np.zeros_like(rank),
            "round": np.repeat(message, 2),
        },
        one_each(Buffer.SEND, place, counts).masked(is_send),
        one_each(Buffer.RECV, place, counts).masked(~is_send),
        Dependencies(
            indptr=csr.running_total(has),
            task=2 * waits[has],
            kind=np.zeros(int(has.sum()), dtype=np.int8),
        ),
        buffer_sizes=buffers,
        itemsize=1,
    )


def bind_messages(plan: Plan, comm: MPI.Intracomm) -> BoundPlan:
    """Bind a plan of messages to new buffers; collective over `comm`."""
    # Zeros would all be the same page, which never leaves the cache.
    sizes = plan.buffer_sizes[comm.rank, :2]
    return bind(plan, comm, *(np.ones(size, np.uint8) for size in sizes))


PING_PONG_SIZES: Final = (0, 1, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Sizes in bytes of the messages of ping-pongs."""
BURST_MESSAGES: Final = (4, 8, 32)
"""Numbers of one-byte messages in bursts; their differences show the constant cost of a burst."""
TRANSFER_SIZES: Final = (1 << 16, 1 << 18, 1 << 20)
"""Sizes in bytes of the messages whose processor time is measured."""
MOST_BYTES: Final = PING_PONG_SIZES[-1]
_ROUND_TRIPS: Final = 8
_LEAST_DELAY_S: Final = 0.02
_POLL_S: Final = 50e-6
_RARE_POLL_S: Final = 3e-3
_POLLS: Final = 5
_SPINNING: Final = 0.7
"""Share of processor time above which a waiting rank is taken to poll all the time."""


Entries = defaultdict[str, list[Any]]
"""Measured times by field name of `Measurements`."""


class PairTimer:
    """Time messages between two ranks, which both make the same calls.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the two ranks.
    link : str
        Class of the link between them.
    pair : tuple of int
        Ranks to record in the measurements.
    turn : int
        Turn to record in the measurements.
    effort : Effort
        Limits of the time to measure.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        link: LinkClass,
        pair: tuple[int, int],
        turn: int,
        effort: Effort,
    ) -> None:
        self._comm = comm
        self._between = {"link": link, "pair": pair, "turn": turn}
        self._effort = effort
        self._half_s: dict[int, float] = {}
        self._idle_share = 1.0
        self._limit = 0
        self.entries: Entries = defaultdict(list)

    def run(self, limit: int | None) -> int:
        """Measure all times; search for the eager limit only if `limit` is None.

        Return the limit in bytes. The search takes long. Only the first of the two ranks has
        all entries.
        """
        for n_bytes in PING_PONG_SIZES:
            if self._expected_s(n_bytes) > self._effort.longest_s:
                break
            self._ping_pong(n_bytes)
        self._limit = self._find_limit() if limit is None else limit
        for n_bytes in (self._limit, self._limit + 1):
            if n_bytes not in self._half_s:
                self._ping_pong(n_bytes)
        self._idle_share = self._measure_idling()
        for n in BURST_MESSAGES:
            self._burst(1, n)
        for n_bytes in TRANSFER_SIZES:
            if self._expected_s(n_bytes) <= self._effort.longest_s or n_bytes == TRANSFER_SIZES[0]:
                self._transfer(n_bytes)
        return self._limit

    def _add(self, name: str, kind: Callable[..., object], **measured: object) -> None:
        """Record one measurement of the two ranks."""
        self.entries[name].append(kind(**self._between, **measured))

    def _expected_s(self, n_bytes: int) -> float:
        """Estimate the time of a message in s from measured ones of about its size."""
        if not self._half_s:
            return 0.0
        longest = max(self._half_s)
        nearest = min((known for known in self._half_s if known >= n_bytes), default=longest)
        return self._half_s[nearest] * max(1.0, n_bytes / max(nearest, 1024))

    def _repetitions(self, once_s: float) -> int:
        effort = self._effort
        return min(effort.most, max(effort.least, int(effort.point_s / max(once_s, 1e-6))))

    def _ping_pong(self, n_bytes: int) -> None:
        expected = self._expected_s(n_bytes)
        trips = max(1, min(_ROUND_TRIPS, int(self._effort.longest_s / 2 / max(expected, 1e-6))))
        with bind_messages(ping_pong_plan(n_bytes, trips), self._comm) as exchange:

            def once() -> float:
                self._comm.Barrier()
                begin = time.perf_counter()
                exchange()
                return time.perf_counter() - begin

            once()
            first = once()
            n = everywhere(self._comm, self._repetitions(first))
            seconds = tuple(once() / (2 * trips) for _ in range(n))
        self._half_s[n_bytes] = everywhere(self._comm, median(seconds))
        self._add("ping_pongs", PingPong, bytes=n_bytes, seconds=seconds)

    def _measure_idling(self) -> float:
        """Return the share of a processor that the engine uses while it waits."""
        shares = []
        with bind_messages(burst_plan(1, 1), self._comm) as exchange:
            for _ in range(self._effort.least):
                self._comm.Barrier()
                if self._comm.rank == 0:
                    time.sleep(_LEAST_DELAY_S)
                begin, busy = time.perf_counter(), time.process_time()
                exchange()
                elapsed = time.perf_counter() - begin
                shares.append((time.process_time() - busy) / elapsed)
        return everywhere(self._comm, median(shares), root=1)

    def _burst(self, n_bytes: int, n: int) -> None:
        # Both ranks have slept, and lanes were idle. A late receiver finds its messages already
        # there. Messages above the eager limit would only wait for it, so it is not late then.
        pause = _LEAST_DELAY_S / 4
        late = pause if n_bytes <= self._limit else 0.0
        found: list[tuple[float, float]] = []
        with bind_messages(burst_plan(n_bytes, n), self._comm) as exchange:
            for _ in range(1 + everywhere(self._comm, self._repetitions(pause))):
                self._comm.Barrier()
                time.sleep(pause + (late if self._comm.rank == 1 else 0.0))
                begin, before = time.perf_counter(), time.process_time()
                exchange.start()
                started = time.process_time() - before
                exchange.wait()
                elapsed, busy = time.perf_counter() - begin, time.process_time() - before
                found.append((self._work(elapsed, started, busy), elapsed))
        if (sides := self._comm.gather(found[1:])) is not None:
            (sent, send_s), (received, _) = (zip(*side, strict=True) for side in sides)
            times = {"send_cpu_s": sent, "recv_cpu_s": received, "send_s": send_s}
            self._add("bursts", Burst, bytes=n_bytes, messages=n, **times)

    def _transfer(self, n_bytes: int) -> None:
        """Measure the processor time of a message while both ranks sleep between rare polls."""
        poll = self._poll_cpu()
        message = np.ones(n_bytes, np.uint8)
        own: list[float] = []
        for _ in range(1 + self._effort.least):
            self._comm.Barrier()
            before = time.process_time()
            request = self._start(message)
            polls = sleep_until(request.Test, _RARE_POLL_S)
            own.append(max(0.0, time.process_time() - before - polls * poll))
        if (sides := self._comm.gather(tuple(own[1:]))) is not None:
            sent, received = sides
            self._add("transfers", Transfer, bytes=n_bytes, send_cpu_s=sent, recv_cpu_s=received)

    def _poll_cpu(self) -> float:
        """Return the processor time in s of a rare poll that finds nothing."""
        own = []
        message = np.ones(1, np.uint8)
        peer = 1 - self._comm.rank
        for _ in range(self._effort.least):
            request = self._comm.Irecv([message, MPI.BYTE], source=peer)
            before = time.process_time()
            for _ in range(_POLLS):
                request.Test()
                time.sleep(_RARE_POLL_S)
            own.append((time.process_time() - before) / _POLLS)
            self._comm.Send([message, MPI.BYTE], dest=peer)
            sleep_until(request.Test, _POLL_S)
        return median(own)

    def _start(self, message: npt.NDArray[np.uint8]) -> MPI.Request:
        if self._comm.rank == 0:
            return self._comm.Isend([message, MPI.BYTE], dest=1)
        return self._comm.Irecv([message, MPI.BYTE], source=0)

    def _work(self, elapsed: float, started: float, busy: float) -> float:
        """Return the processor time of a burst in s without idle polls.

        If ranks spin, the sender polls only after it has started its sends, and the late
        receiver does not poll. Otherwise elapsed = work + idle and busy = work + share · idle.
        """
        share = self._idle_share
        if share > _SPINNING:
            return started if self._comm.rank == 0 else busy
        return max(0.0, busy - share * max(0.0, elapsed - busy) / (1 - share))

    def _find_limit(self) -> int:
        """Return the bytes of the longest message whose send does not wait, by bisection."""
        low, high = 0, MOST_BYTES
        while self._expected_s(high) > 2 * self._effort.longest_s:
            high //= 4
        if self._is_eager(high):
            return high
        while high - low > 1:
            # Bisect the logarithm first, because limits are small compared to the range.
            middle = (low + high) // 2 if low else high // 8
            if low and high > 2 * low:
                middle = round((low * high) ** 0.5)
            if self._is_eager(middle):
                low = middle
            else:
                high = middle
        return low

    def _is_eager(self, n_bytes: int) -> bool:
        delay = _LEAST_DELAY_S + 4 * self._expected_s(n_bytes)
        message = np.ones(n_bytes, np.uint8)
        seconds = [self._late_send(message, delay) for _ in range(self._effort.tries)]
        self._add(
            "late_receives", LateReceive, bytes=n_bytes, delay_s=delay, seconds=tuple(seconds)
        )
        return everywhere(self._comm, median(seconds) < delay / 2)

    def _late_send(self, message: npt.NDArray[np.uint8], delay: float) -> float:
        """Return the time of the send in s; the value on the receiver has no meaning."""
        comm = self._comm
        comm.Barrier()
        begin = time.perf_counter()
        if comm.rank == 1:
            time.sleep(delay)
        request = self._start(message)
        sleep_until(request.Test, _POLL_S)
        return time.perf_counter() - begin
