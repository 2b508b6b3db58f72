"""Transfers: what moves along one edge of a tree, from one rank to another."""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import joint_key
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import NONE, Buffer, Extents, Op, Plan


def number_transfers(plan: Plan) -> tuple[Ints, Ints]:
    """Return the transfer every task belongs to, and whom it comes from.

    A transfer is a message, both its ends and what its receiver then does with
    it in the round; or in shared memory what one rank reads of another in a
    round. Segments of one are one.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    transfer : ndarray of int64, shape (n_tasks,)
        Transfers are numbered by round, the rank they go to, and the one they
        come from; -1 for what a rank does alone.
    source : ndarray of int64, shape (n_transfers,)
        The rank each comes from, of several the first.
    """
    n, n_ranks = plan.n_tasks, plan.n_ranks
    sends, recvs = match_messages(plan)
    before, after = plan.deps.task, plan.deps.owner()
    comes = _touches_shared(plan.writes)[before] & _touches_shared(plan.reads)[after]
    comes &= plan.rank[before] != plan.rank[after]
    source = np.full(n, n_ranks, dtype=np.int64)
    np.minimum.at(source, after[comes], plan.rank[before[comes]])
    source[recvs] = plan.peer[recvs]
    source[sends] = n_ranks
    heads = np.flatnonzero(source < n_ranks)
    place = joint_key(plan.round, plan.rank, n_ranks)
    keys, number = np.unique(joint_key(place[heads], source[heads], n_ranks), return_inverse=True)
    transfer = np.full(n, NONE, dtype=np.int64)
    transfer[heads] = number.ravel()
    follows = (transfer[before] >= 0) & (transfer[after] < 0) & (place[before] == place[after])
    follows &= (plan.op[after] == Op.COPY) | (plan.op[after] == Op.REDUCE)
    # Of several the last: a reduction waits for the one before it, too.
    order = np.argsort(before[follows], kind="stable")
    transfer[after[follows][order]] = transfer[before[follows][order]]
    transfer[sends] = transfer[recvs]
    return transfer, keys % n_ranks


def _touches_shared(extents: Extents) -> Bools:
    touches = np.zeros(len(extents.indptr) - 1, dtype=bool)
    touches[extents.owner()[extents.buffer == Buffer.SHARED]] = True
    return touches
