"""Matching of sends and receives, by the rules of MPI, before execution."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.errors import SizeMismatchError, UnmatchedRecvError, UnmatchedSendError
from collplan.planner.plan.plan import Op, Plan

Rows = Ints
"""Rows of one end of every message."""


def match_messages(plan: Plan) -> tuple[Rows, Rows]:
    """Pair every send with its receive.

    Messages with the same source, destination and tag match in row order. MPI matches them in the
    order of their starts, and `collplan.planner.verify` proves that starts have this order.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    sends, recvs : ndarray of int64, shape (n_messages,)
        Rows of the two ends of every message, in ascending order of sends.

    Raises
    ------
    UnmatchedSendError, UnmatchedRecvError, SizeMismatchError
        The message names the first tasks without a partner or with different sizes.
    """
    send_rows, send_keys = sorted_ends(plan, Op.SEND, plan.rank, plan.peer)
    recv_rows, recv_keys = sorted_ends(plan, Op.RECV, plan.peer, plan.rank)
    if not np.array_equal(send_keys, recv_keys):
        _raise_unmatched(plan, send_rows, send_keys, recv_rows, recv_keys)
    unequal = plan.elements[send_rows] != plan.elements[recv_rows]
    if unequal.any():
        i = int(np.argmax(unequal))
        send, recv = plan.task(int(send_rows[i])), plan.task(int(recv_rows[i]))
        raise SizeMismatchError(
            f"{send} sends {plan.elements[send.row]} elements, "
            f"{recv} expects {plan.elements[recv.row]}, {plan.round_of(send.row)}"
        )
    order = np.argsort(send_rows)
    return send_rows[order], recv_rows[order]


def sorted_ends(plan: Plan, op: Op, source: Ints, dest: Ints) -> tuple[Rows, Ints]:
    """Return the rows of `op`, sorted by message key and then by row, and the sorted keys.

    Messages with the same source, destination and tag have the same key.
    """
    rows = np.flatnonzero(plan.op == op)
    pair = csr.joint_key(source[rows], dest[rows], plan.n_ranks)
    pair = csr.joint_key(pair, plan.apart[rows], plan.n_copies)
    # A pair and a tag share one int64, as ranks are below 2**16 and tags below 2**31.
    keys = csr.joint_key(pair, plan.tag[rows], int(plan.tag.max(initial=0)) + 1)
    order = np.argsort(keys, kind="stable")
    return rows[order], keys[order]


def _raise_unmatched(
    plan: Plan, send_rows: Rows, send_keys: Rows, recv_rows: Rows, recv_keys: Rows
) -> None:
    """Raise for the first end, in row order, that has no partner."""
    spare_sends = send_rows[_occurrence_missing(send_keys, recv_keys)]
    spare_recvs = recv_rows[_occurrence_missing(recv_keys, send_keys)]
    if len(spare_sends):
        send = plan.task(int(spare_sends.min()))
        raise UnmatchedSendError(
            f"{send}: rank {send.peer} has no receive for it, {plan.round_of(send.row)}"
        )
    recv = plan.task(int(spare_recvs.min()))
    raise UnmatchedRecvError(
        f"{recv}: rank {recv.peer} has no send for it, {plan.round_of(recv.row)}"
    )


def _occurrence_missing(keys: Rows, others: Rows) -> Bools:
    """Mark entries of sorted `keys` whose k-th occurrence `others` lacks."""
    occurrence = np.arange(len(keys)) - np.searchsorted(keys, keys, side="left")
    available = np.searchsorted(others, keys, side="right") - np.searchsorted(others, keys)
    return np.asarray(occurrence >= available)
