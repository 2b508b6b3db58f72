"""Columns of a plan in the form that the simulator's kernels take, and partners of messages.

In almost every plan, the k-th send of a pair of ranks matches its k-th receive. Messages are
matched in this way first. If any tags differ, `collplan.planner.plan.matching` matches all
messages by sorting them by tag.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.cost.prefetching import prefetch
from collplan.executors.cost.tables import inner
from collplan.planner.arrays import Ints
from collplan.planner.machine_code.kernel import compile_with
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import Stored

_SEND, _RECV = int(Op.SEND), int(Op.RECV)
_PAIR: Final = np.dtype([("key", "i8"), ("first", "i4"), ("last", "i4")])
"""A slot of the hash table: key of a pair of ranks, first and last row of its unmatched ends."""
_AHEAD: Final = 12
"""Number of rows ahead of which slots are prefetched."""
_DIRECT: Final = 4
"""Largest ratio of rank pairs to messages at which every pair has a slot of its own."""


def dense(part: Stored, *names: str) -> tuple[Any, ...]:
    """Return columns of a plan, or of a part of it, as contiguous arrays."""
    return tuple(_contiguous(getattr(part, name)) for name in names)


def thin(part: Stored, *names: str) -> tuple[Any, ...]:
    """Return each column as an array of values and a step: entry i is ``values[i * step]``.

    The step is 0 for a column whose rows are all equal, so that it need not be expanded.
    """
    return tuple(
        (_contiguous(column[:1] if column.strides == (0,) else column), int(column.strides != (0,)))
        for column in (getattr(part, name) for name in names)
    )


def _contiguous(column: Ints) -> Ints:
    """Return a contiguous read-only array, so that kernels are compiled for one type only."""
    contiguous = np.ascontiguousarray(column)
    contiguous.flags.writeable = False
    return contiguous


def partners(plan: Plan) -> Ints:
    """Return the row of the other end of every message.

    Parameters
    ----------
    plan : Plan
        Plan of all ranks.

    Returns
    -------
    ndarray of int32, shape (n_tasks,)
        Row of the matching receive or send; 0 for other tasks.

    Raises
    ------
    MatchError
        If sends and receives do not match.
    """
    n_ends = int(np.count_nonzero(plan.op <= Op.RECV))
    n_all_pairs = plan.n_ranks**2 * plan.n_copies
    n_pairs = min(n_ends // 2, n_all_pairs)
    n_slots = 1 << (n_pairs + n_pairs // 3 + 1).bit_length()
    is_direct = n_all_pairs <= _DIRECT * n_pairs
    partner = np.zeros(plan.n_tasks, dtype=np.int32)
    n_matched = _pair_up(
        (*dense(plan, "op", "rank", "peer", "tag"), *thin(plan, "apart")),
        plan.n_ranks,
        plan.n_copies,
        np.zeros(n_all_pairs if is_direct else n_slots, dtype=_PAIR),
        is_direct,
        partner,
    )
    if n_matched < n_ends:
        sends, recvs = match_messages(plan)
        partner[sends], partner[recvs] = recvs, sends
    return partner


@inner
def _key(op: Ints, rank: Ints, peer: Ints, row: int, n_ranks: int, n_copies: int) -> int:
    """Return the key of the pair of ranks of a message, which is at least 1."""
    source, dest = (rank[row], peer[row]) if op[row] == _SEND else (peer[row], rank[row])
    return int((np.int64(source) * n_ranks + dest) * n_copies + 1)


@inner
def _slot(key: int, mask: int, is_direct: bool) -> int:
    """Return the preferred slot of a pair, which another pair may have taken."""
    if is_direct:
        return key - 1
    # Fibonacci hashing in 63 bits puts neighboring pairs of ranks far apart.
    return ((key ^ key >> 31) & 0x7FFFFFFF) * 0x9E3779B9 >> 12 & mask


@compile_with(_nrt=False)
def _pair_up(
    ends: tuple[Any, ...],
    n_ranks: int,
    n_copies: int,
    pairs: Any,
    is_direct: bool,
    partner: Ints,
) -> int:
    """Match ends of messages, and return the number of matched ends.

    Matching stops at the first pair whose tags differ. Unmatched ends of a pair of ranks are a
    list that is linked by their entries in `partner`.

    Parameters
    ----------
    ends : tuple
        Columns ``op, rank, peer, tag`` and ``apart``.
    pairs : ndarray of _PAIR
        Empty hash table; if it `is_direct`, every pair of ranks has a slot of its own.
    partner : ndarray of int32, shape (n_tasks,)
        Receives the partners.
    """
    op, rank, peer, tag, (apart, step) = ends
    mask = len(pairs) - 1
    n_slots, n_matched = 0, 0
    for row in range(len(op)):
        later = min(row + _AHEAD, len(op) - 1)
        prefetch(pairs, _slot(_key(op, rank, peer, later, n_ranks, n_copies), mask, is_direct))
        if op[row] > _RECV:
            continue
        key = _key(op, rank, peer, row, n_ranks, n_copies) + apart[row * step]
        slot = _slot(key, mask, is_direct)
        if not is_direct:
            while pairs[slot].key != key and pairs[slot].key != 0:
                slot = (slot + 1) & mask
        pair = pairs[slot]
        if pair.key == 0:
            # There are more pairs than half the ends, so some end has no partner.
            n_slots += 1
            if n_slots > mask and not is_direct:
                return n_matched
            pair.key = key
            pair.first = -1
        first = pair.first
        if first < 0:
            pair.first = pair.last = row
            partner[row] = -1
        elif op[first] == op[row]:
            partner[pair.last] = row
            partner[row] = -1
            pair.last = row
        else:
            if tag[first] != tag[row]:
                return n_matched
            pair.first = partner[first]
            partner[first] = row
            partner[row] = first
            n_matched += 2
    return n_matched
