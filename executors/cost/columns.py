"""Columns of a plan as the simulator's kernels take them, and the partners of messages.

`collplan.planner.plan.matching` sorts by tag; here the k-th send of a pair of ranks meets
its k-th receive, as almost every plan has it, and only where their tags differ
is sorting left to it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from collplan.executors.cost.prefetching import prefetch
from collplan.executors.cost.tables import inner
from collplan.planner.arrays import Ints
from collplan.planner.arrays.jit import compile_with
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import Stored

_SEND, _RECV = int(Op.SEND), int(Op.RECV)
_PAIR: Final = np.dtype([("key", "i8"), ("first", "i4"), ("last", "i4")])
"""A slot of the hash table: the pair of ranks plus 1, and its ends that wait for the other end."""
_AHEAD: Final = 12
"""Number of rows ahead of which slots are prefetched."""
_DIRECT: Final = 4
"""Largest ratio of rank pairs to messages at which every pair has a slot of its own."""


def dense(part: Stored, *names: str) -> tuple[Any, ...]:
    """Return columns of a plan, or of a part of it, as kernels take them: entry by entry."""
    return tuple(_contiguous(getattr(part, name)) for name in names)


def thin(part: Stored, *names: str) -> tuple[Any, ...]:
    """Return columns as values and a step each: entry i is ``values[i * step]``.

    The step is 0 where all rows are equal: a constant column need not be spelt out.
    """
    return tuple(
        (_contiguous(column[:1] if column.strides == (0,) else column), int(column.strides != (0,)))
        for column in (getattr(part, name) for name in names)
    )


def _contiguous(column: Ints) -> Ints:
    """Return a contiguous read-only array, so that a kernel meets one type and compiles once."""
    contiguous = np.ascontiguousarray(column)
    contiguous.flags.writeable = False
    return contiguous


def partners(plan: Plan) -> Ints:
    """Return the row of the other end of every message.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    ndarray of int32, shape (n_tasks,)
        0 for tasks that are no message.

    Raises
    ------
    MatchError
        Where sends and receives do not pair up.
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
    """Return the pair of ranks of a message, plus 1."""
    source, dest = (rank[row], peer[row]) if op[row] == _SEND else (peer[row], rank[row])
    return int((np.int64(source) * n_ranks + dest) * n_copies + 1)


@inner
def _slot(key: int, mask: int, is_direct: bool) -> int:
    """Return where the slot of a pair is, if no other pair has taken it."""
    if is_direct:
        return key - 1
    # Fibonacci hashing, in 63 bits: neighboring pairs of ranks land far apart.
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
    """Fill in partners and return how many ends have one; stop where tags differ.

    Ends that wait are a list linked by `partner`, which they have no other use for yet.
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
            # More pairs than half the ends: some end has no partner.
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
