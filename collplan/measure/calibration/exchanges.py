"""Messages between two ranks as plans, so that the engine waits as it does for any plan."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.csr import running_total
from collplan.planner.plan.plan import NONE, Buffer, Dependencies, Extents, Op, Plan, Stage

Ints = npt.NDArray[np.int64]
_RANKS: Final = 2


def ping_pong_plan(n_bytes: int, round_trips: int) -> Plan:
    """Return a plan of two ranks that pass a message to and fro; rank 0 begins and ends.

    Each receive is posted before its rank's turn to send.
    """
    sender = np.arange(2 * round_trips) % 2
    # Send i waits for message i - 1; receive i for message i - 2, which used the same place.
    return _plan(sender, n_bytes, before_send=1, before_recv=2, n_places=1)


def burst_plan(n_bytes: int, n_messages: int) -> Plan:
    """Return a plan in which rank 0 sends messages to rank 1, none waiting for another."""
    sender = np.zeros(n_messages, dtype=np.int64)
    return _plan(sender, n_bytes, before_send=0, before_recv=0, n_places=n_messages)


def _plan(sender: Ints, n_bytes: int, *, before_send: int, before_recv: int, n_places: int) -> Plan:
    """Return the plan of messages, two rows each: the receive, then the send.

    Where `before_send` or `before_recv` is k > 0, message i waits for the receive of i - k.
    """
    n = len(sender)
    message = np.arange(n)
    is_send = np.tile([False, True], n)
    rank = np.column_stack((1 - sender, sender)).reshape(-1)
    place = np.repeat(message % n_places, 2) * n_bytes
    waits = np.column_stack((message - before_recv, message - before_send)).reshape(-1)
    has = (waits >= 0) & np.where(is_send, before_send > 0, before_recv > 0)
    rows = 2 * n
    columns: dict[str, Any] = {
        "op": np.where(is_send, Op.SEND, Op.RECV),
        "rank": rank,
        "peer": 1 - rank,
        "tag": np.zeros(rows),
        "node": rank,
        "lane": np.zeros(rows),
        "stream": np.full(rows, NONE),
        "round": np.repeat(message, 2),
    }
    columns["stage"] = np.full(rows, Stage.BACKGROUND)
    for name in ("core", "phase", "priority", "duration_ns"):
        columns[name] = np.zeros(rows)
    buffers = np.full((_RANKS, 3), n_bytes * n_places, dtype=np.int64)
    buffers[:, Buffer.SCRATCH] = 0
    return Plan(
        **columns,
        reads=_extents(is_send, Buffer.SEND, place, n_bytes),
        writes=_extents(~is_send, Buffer.RECV, place, n_bytes),
        deps=Dependencies(
            indptr=running_total(has),
            task=2 * waits[has],
            kind=np.zeros(int(has.sum()), dtype=np.int8),
        ),
        patterns=np.array([[0, 1, 0, 1]]),
        buffer_sizes=buffers,
        shared_sizes=np.zeros(_RANKS, dtype=np.int64),
        rank_node=np.arange(_RANKS),
        rank_lane=np.zeros(_RANKS, dtype=np.int16),
        rank_core=np.zeros(_RANKS, dtype=np.int32),
        itemsize=1,
    )


def _extents(has: npt.NDArray[np.bool_], buffer: Buffer, offset: Ints, count: int) -> Extents:
    n = int(has.sum())
    zeros = np.zeros(n, dtype=np.int32)
    return Extents(
        running_total(has),
        zeros + buffer,
        offset[has],
        zeros.astype(np.int64) + count,
        pattern=zeros,
    )
