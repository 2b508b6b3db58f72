"""Task graphs that no compiler made: shared memory, self-messages, few tags, odd edges."""

from __future__ import annotations

import random

import numpy as np

from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START
from handmade import Interval, PlanBook

SIZE = 4
"""Elements of every buffer: few, so that tasks meet."""


class GraphWriter:
    """Writes random tasks; most of what must be ordered gets an edge."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        n_ranks = rng.randint(1, 4)
        self.book = PlanBook([rng.randrange(2) for _ in range(n_ranks - 1)] + [1], elements=SIZE)
        self.n_ranks = n_ranks
        self.missing = rng.choice((0.0, 0.02, 0.1))
        """Probability that an edge is left out."""
        self.posted: list[tuple[int, int, int, int]] = []
        """Messages of which one end is written: source, dest, tag, elements."""

    def interval(self, n: int) -> list[Interval]:
        """Return `n` elements of some buffer, in one piece or two."""
        buffer = self.rng.choice((Buffer.RECV, Buffer.RECV, Buffer.SCRATCH, Buffer.SHARED))
        offset = self.rng.randint(0, SIZE - n)
        if n < 2 or self.rng.random() < 0.7:
            return [(buffer, offset, n)]
        parts = [(buffer, offset, 1), (buffer, offset + 1, n - 1)]
        return parts if self.rng.random() < 0.5 else parts[::-1]

    def add(self, op: Op, rank: int, reads: list[Interval], writes: list[Interval],
            **columns: int) -> None:  # fmt: skip
        """Append a task that waits for most of what it conflicts with."""
        book, rng = self.book, self.rng
        after: list[tuple[int, int]] = []
        for row, other in enumerate(book.rows):
            if book.rank_node[other["rank"]] != book.rank_node[rank]:
                continue
            theirs = (book.reads[row], book.writes[row])
            conflicts = meets(writes, rank, theirs[0] + theirs[1], other["rank"])
            conflicts |= meets(reads, rank, theirs[1], other["rank"])
            mine = (op, rank, columns.get("peer"), columns.get("tag"))
            is_twin = op <= Op.RECV and mine == tuple(
                other[name] for name in ("op", "rank", "peer", "tag")
            )
            if conflicts and rng.random() >= self.missing:
                after.append((row, 0))
            elif is_twin and rng.random() >= self.missing:
                after.append((row, ON_START))
            elif rng.random() < 0.03:
                after.append((row, rng.choice((0, ON_START))))
        book.add(op, rank, reads, writes, after, **columns)

    def write_something(self) -> None:
        rng = self.rng
        n, rank = rng.choice((0, 1, 1, 2)), rng.randrange(self.n_ranks)
        if self.posted and rng.random() < 0.6:
            self.receive(rng.randrange(len(self.posted)))
        elif rng.random() < 0.5:
            dest, tag = rng.randrange(self.n_ranks), rng.choice((0, 0, 1))
            self.posted.append((rank, dest, tag, n))
            self.add(Op.SEND, rank, self.interval(n), [], peer=dest, tag=tag)
        elif rng.random() < 0.8:
            self.add(Op.COPY, rank, self.interval(n), self.interval(n))
        else:
            self.add(Op.COMPUTE, rank, self.interval(n), [])

    def receive(self, which: int) -> None:
        source, dest, tag, _ = self.posted[which]
        first = next(i for i, m in enumerate(self.posted) if m[:3] == (source, dest, tag))
        n = self.posted.pop(first)[3]
        self.add(Op.RECV, dest, [], self.interval(n), peer=source, tag=tag)

    def write(self, n_tasks: int) -> Plan:
        for _ in range(n_tasks):
            self.write_something()
        while self.posted:
            self.receive(0)
        plan = self.book.plan()
        return plan.replace(shared_sizes=np.full(plan.n_nodes, SIZE))


def meets(some: list[Interval], rank: int, others: list[Interval], other_rank: int) -> bool:
    """Return whether two lists of intervals have an element in common."""
    return any(
        one[0] == other[0]
        and (rank == other_rank or one[0] == Buffer.SHARED)
        and max(one[1], other[1]) < min(one[1] + one[2], other[1] + other[2])
        for one in some
        for other in others
    )


def random_graph(rng: random.Random) -> Plan:
    """Return a plan of 1 to 4 ranks and up to 30 tasks without a collective."""
    return GraphWriter(rng).write(rng.randint(2, 15))
