"""Run a plan's messages in random legal orders and count how many are under way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable

import numpy as np

from collplan.planner import Plan
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op
from collplan.planner.plan.ragged import ON_START


def most_in_flight(plan: Plan, rng: random.Random, *, by_node: bool = False) -> Counter[Hashable]:
    """Start all that may start; complete what has started in any order, messages at both ends.

    Returns the most that ever were under way: sends by ``("remote" or
    "local", rank)``, receives by ``(source, dest)``. Fails if tasks are left.
    With `by_node`, sends to other nodes are counted by ``("remote", node)``.
    """
    sends, recvs = match_messages(plan)
    partner = dict(zip(sends.tolist(), recvs.tolist(), strict=True))
    partner |= {recv: send for send, recv in partner.items()}
    waiting = np.diff(plan.deps.indptr).tolist()
    after: list[list[tuple[int, bool]]] = [[] for _ in range(plan.n_tasks)]
    for row in range(plan.n_tasks):
        for j in range(plan.deps.indptr[row], plan.deps.indptr[row + 1]):
            after[plan.deps.task[j]].append((row, bool(plan.deps.kind[j] & ON_START)))
    started: set[int] = set()
    completable: list[int] = []
    now: Counter[Hashable] = Counter()
    most: Counter[Hashable] = Counter()

    def release(row: int, on_start: bool) -> None:
        for other, by_start in after[row]:
            if by_start == on_start:
                waiting[other] -= 1
                if waiting[other] == 0:
                    start(other)

    def start(row: int) -> None:
        started.add(row)
        key = _what(plan, row, by_node)
        now[key] += 1
        most[key] = max(most[key], now[key])
        if row not in partner:
            completable.append(row)
        elif partner[row] in started:
            completable.append(max(row, partner[row]))
        release(row, on_start=True)

    for row in [row for row, n in enumerate(waiting) if n == 0]:
        start(row)
    while completable:
        row = completable.pop(rng.randrange(len(completable)))
        ends = [row, partner[row]] if row in partner else [row]
        for end in ends:
            now[_what(plan, end, by_node)] -= 1
        for end in ends:
            release(end, on_start=False)
    assert len(started) == plan.n_tasks
    return most


def _what(plan: Plan, row: int, by_node: bool) -> Hashable:
    rank, peer = int(plan.rank[row]), int(plan.peer[row])
    if plan.op[row] == Op.SEND:
        is_remote = plan.rank_node[rank] != plan.rank_node[peer]
        if is_remote and by_node:
            return ("remote", int(plan.rank_node[rank]))
        return ("remote" if is_remote else "local", rank)
    return (peer, rank) if plan.op[row] == Op.RECV else "step"
