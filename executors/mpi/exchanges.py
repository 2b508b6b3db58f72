"""Messages between two ranks as plans, so that the engine waits as it does for any plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.plan import NONE, Buffer, Dependencies, Extents, Op, Plan, Stage

Ints = npt.NDArray[np.int64]
_RANKS: Final = 2


def ping_pong_plan(n_bytes: int, round_trips: int, pause_ns: int = 0) -> Plan:
    """Return a plan of two ranks that pass a message to and fro; rank 0 begins and ends.

    Each receive is posted before its rank's turn to send. Before a send its rank
    computes for `pause_ns`, long enough for the other to fall asleep.
    """
    sender = np.arange(2 * round_trips) % 2
    # Send i waits for message i - 1; receive i for message i - 2, which used the same place.
    return _plan(sender, n_bytes, before_send=1, before_recv=2, n_places=1, pause_ns=pause_ns)


def burst_plan(n_bytes: int, n_messages: int) -> Plan:
    """Return a plan in which rank 0 sends messages to rank 1, none waiting for another."""
    sender = np.zeros(n_messages, dtype=np.int64)
    return _plan(sender, n_bytes, before_send=0, before_recv=0, n_places=n_messages)


def _plan(
    sender: Ints,
    n_bytes: int,
    *,
    before_send: int,
    before_recv: int,
    n_places: int,
    pause_ns: int = 0,
) -> Plan:
    """Return the plan of messages: of each the receive, the pause if there are any, the send.

    Where `before_send` or `before_recv` is k > 0, message i waits for the receive of i - k.
    """
    n = len(sender)
    message = np.arange(n)
    ops = (Op.RECV, Op.COMPUTE, Op.SEND) if pause_ns else (Op.RECV, Op.SEND)
    k = len(ops)
    op = np.tile(ops, n)
    of = np.repeat(message, k)
    is_send, is_recv = op == Op.SEND, op == Op.RECV
    rank = np.where(is_recv, 1 - sender[of], sender[of])
    # What acts first for a message waits; a send that is not first waits for the row before.
    before = np.where(is_recv, before_recv, before_send)
    waits = k * (of - before)
    has = (before > 0) & (waits >= 0)
    if pause_ns:
        waits, has = np.where(is_send, np.arange(k * n) - 1, waits), has | is_send
    rows = k * n
    columns: dict[str, Any] = {
        "op": op,
        "rank": rank,
        "peer": np.where(op == Op.COMPUTE, NONE, 1 - rank),
        "tag": np.where(op == Op.COMPUTE, NONE, 0),
        "node": rank,
        "lane": np.where(op == Op.COMPUTE, NONE, 0),
        "stream": np.full(rows, NONE),
        "round": of,
        "duration_ns": np.where(op == Op.COMPUTE, pause_ns, 0),
    }
    columns["stage"] = np.full(rows, Stage.BACKGROUND)
    for name in ("core", "phase", "priority"):
        columns[name] = np.zeros(rows)
    place = of % n_places * n_bytes
    buffers = np.full((_RANKS, 3), n_bytes * n_places, dtype=np.int64)
    buffers[:, Buffer.SCRATCH] = 0
    return Plan(
        **columns,
        reads=_extents(is_send, Buffer.SEND, place, n_bytes),
        writes=_extents(is_recv, Buffer.RECV, place, n_bytes),
        deps=Dependencies(
            indptr=_indptr(has), task=waits[has], kind=np.zeros(int(has.sum()), dtype=np.int8)
        ),
        patterns=np.array([[0, 1, 0, 1]]),
        buffer_sizes=buffers,
        shared_sizes=np.zeros(_RANKS, dtype=np.int64),
        rank_node=np.arange(_RANKS),
        rank_lane=np.zeros(_RANKS, dtype=np.int16),
        rank_core=np.zeros(_RANKS, dtype=np.int32),
        itemsize=1,
        phases=("",),
    )


def _extents(has: npt.NDArray[np.bool_], buffer: Buffer, offset: Ints, count: int) -> Extents:
    n = int(has.sum())
    zeros = np.zeros(n, dtype=np.int32)
    return Extents(
        _indptr(has), zeros + buffer, offset[has], zeros.astype(np.int64) + count, pattern=zeros
    )


def _indptr(has: Sequence[bool] | npt.NDArray[np.bool_]) -> Ints:
    return np.concatenate(([0], np.cumsum(has)))
