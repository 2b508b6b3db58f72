"""Small plans written by hand: formats and pictures need no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import COLUMNS, Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT, ON_START, Dependencies, Extents

Interval = tuple[Buffer, int, int]


@dataclass
class PlanBook:
    """Rows written one after another; `plan` makes the columns of them."""

    rank_node: list[int]
    elements: int = 16
    n_lanes: int = 1
    rows: list[dict[str, int]] = field(default_factory=list)
    reads: list[list[Interval]] = field(default_factory=list)
    writes: list[list[Interval]] = field(default_factory=list)
    deps: list[list[tuple[int, int]]] = field(default_factory=list)

    def add(
        self,
        op: Op,
        rank: int,
        reads: list[Interval],
        writes: list[Interval],
        after: list[int | tuple[int, int]] | None = None,
        **columns: int,
    ) -> int:
        """Append one task and return its row."""
        row = dict.fromkeys(COLUMNS, 0)
        row |= {"op": op, "rank": rank, "peer": -1, "tag": -1, "lane": -1, "stream": -1}
        row |= columns
        peer = row["peer"]
        if peer >= 0:
            row["tag"] = max(row["tag"], 0)
            if self.rank_node[peer] != self.rank_node[rank]:
                row["lane"] = (rank if op is Op.RECV else peer) % self.n_lanes
        self.rows.append(row)
        self.reads.append(reads)
        self.writes.append(writes)
        self.deps.append([dep if isinstance(dep, tuple) else (dep, 0) for dep in after or []])
        return len(self.rows) - 1

    def plan(self, phases: Sequence[str] = ("",)) -> Plan:
        n_ranks, n_nodes = len(self.rank_node), max(self.rank_node) + 1
        return Plan(
            **{
                name: np.array([row[name] for row in self.rows], dtype=dtype)
                for name, dtype in COLUMNS.items()
            },
            reads=_extents(self.reads),
            writes=_extents(self.writes),
            deps=Dependencies(
                indptr=_indptr(self.deps),
                task=np.array([dep for deps in self.deps for dep, _ in deps], dtype=np.int32),
                kind=np.array([kind for deps in self.deps for _, kind in deps], dtype=np.int8),
            ),
            patterns=np.array([[0, 1, 0, 1], [4, 2, 0, 1]]),
            buffer_sizes=np.full((n_ranks, 3), self.elements),
            shared_sizes=np.zeros(n_nodes, dtype=np.int64),
            rank_node=np.array(self.rank_node),
            rank_lane=np.arange(n_ranks) % self.n_lanes,
            rank_core=np.zeros(n_ranks, dtype=np.int32),
            itemsize=4,
            phases=tuple(map(Phase, phases)),
        )


def against_the_rows() -> tuple[Plan, int, int, int, int, int]:
    """Return a plan whose first send waits for the answer to its second, and five of its rows.

    These are both sends, the receives of the second send, of the answer, and of the first send.
    """
    book = PlanBook([0, 1])
    a, b, c = ([(Buffer.RECV, i, 1)] for i in range(3))
    got = 4
    first = book.add(Op.SEND, 0, a, [], [got], peer=1, tag=0)
    second = book.add(Op.SEND, 0, b, [], peer=1, tag=1)
    asked = book.add(Op.RECV, 1, [], b, peer=0, tag=1)
    book.add(Op.SEND, 1, c, [], [asked], peer=0, tag=2)
    assert book.add(Op.RECV, 0, [], c, peer=1, tag=2) == got
    last = book.add(Op.RECV, 1, [], a, peer=0, tag=0)
    return book.plan(), first, second, asked, got, last


def _indptr(lists: list[list[object]]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(entries) for entries in lists]))).astype(np.int32)


def _extents(lists: list[list[Interval]]) -> Extents:
    flat = [interval for intervals in lists for interval in intervals]
    columns = np.array(flat, dtype=np.int64).reshape(-1, 3).T
    return Extents(_indptr(lists), *columns, pattern=np.zeros(len(flat), dtype=np.int32))


def ring_allreduce(rank_node: list[int], count: int = 4, n_lanes: int = 1) -> Plan:
    """Reduce-scatter round a ring, then allgather round it; in place, `count` a chunk."""
    size = len(rank_node)
    book = PlanBook(rank_node, elements=size * count, n_lanes=n_lanes)
    last = [[] for _ in range(size)]
    for rnd in range(2 * (size - 1)):
        is_reducing = rnd < size - 1
        for rank in range(size):
            sent, got = (rank - rnd) % size * count, (rank - rnd - 1) % size * count
            if not is_reducing:
                sent, got = (sent + count) % (size * count), (got + count) % (size * count)
            here = (Buffer.RECV, got, count)
            scratch = (Buffer.SCRATCH, 0, count)
            columns = {"round": rnd, "phase": 0}
            before = last[rank]
            send = book.add(
                Op.SEND,
                rank,
                [(Buffer.RECV, sent, count)],
                [],
                before,
                peer=(rank + 1) % size,
                **columns,
            )
            target = scratch if is_reducing else here
            peer = (rank - 1) % size
            recv = book.add(Op.RECV, rank, [], [target], before, peer=peer, **columns)
            last[rank] = [recv]
            if is_reducing:
                last[rank] = [book.add(Op.REDUCE, rank, [scratch, here], [here], [recv], **columns)]
            del send
    return book.plan(("ring",))


def binomial_bcast(rank_node: list[int], count: int = 8, n_lanes: int = 1) -> Plan:
    """Broadcast from rank 0: whoever has the message sends it 2**round further."""
    size = len(rank_node)
    book = PlanBook(rank_node, elements=count, n_lanes=n_lanes)
    got: dict[int, list[int | tuple[int, int]]] = {0: []}
    message = [(Buffer.RECV, 0, count)]
    for rnd in range((size - 1).bit_length()):
        for rank in range(min(1 << rnd, size - (1 << rnd))):
            dest = rank + (1 << rnd)
            send = book.add(Op.SEND, rank, message, [], got[rank], peer=dest, round=rnd)
            got[dest] = [book.add(Op.RECV, dest, [], message, peer=rank, round=rnd)]
            if rank == 0:
                got[0] = [(send, ON_START | INTENT)]
    return book.plan(("bcast",))
