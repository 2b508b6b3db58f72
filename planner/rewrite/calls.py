"""Calls of the MPI library's own collectives, and their replacement by messages and reductions.

A call is replaced by the messages of a *direct* algorithm: each member sends the data that another
member needs directly to it, so that members wait for each other only if data require it. The MPI
library may send other messages. To find out whether calls can deadlock, each call is replaced by
the messages of a barrier, as MPI may block every member until all members have made the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.memory import require_memory
from collplan.planner.plan.pieces import Pieces, empty, one_each, pieces_of, stack, with_pieces
from collplan.planner.plan.plan import COLUMNS, NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START, Dependencies

BYTES_PER_ROW: Final = 600
"""Peak memory of replacing calls, in bytes per task."""
COMBINING: Final = ("allreduce", "exscan", "reduce", "reduce_scatter_block", "scan")
"""Collectives that combine the contributions of members."""
CALLED: Final = (
    *("allgather", "alltoall", "barrier", "bcast", "gather", "scatter"),
    *COMBINING,
)
"""Collectives that can be called."""


@dataclass(frozen=True, eq=False)
class CallRows:
    """Tasks of one call, in the order of positions in its group.

    Parameters
    ----------
    kind : str
        The collective.
    rows, ranks : ndarray of int64, shape (n_members,)
        Tasks of the plan, and their ranks.
    root : int
        The root's position, -1 if there is none.
    n_read, n_written : ndarray of int64, shape (n_members,)
        Elements that each member reads and writes.
    """

    kind: str
    rows: Ints
    ranks: Ints
    root: int
    n_read: Ints
    n_written: Ints


def has_calls(plan: Plan) -> bool:
    """Return whether a plan calls collectives of the MPI library."""
    return bool((plan.op == Op.CALL).any())


def calls_of(plan: Plan) -> Iterator[CallRows]:
    """Yield the calls of a plan of all ranks, which `collplan.planner.verify` must accept."""
    rows = np.flatnonzero(plan.op == Op.CALL)
    n_read, n_written = plan.sizes
    at = {(int(plan.phase[row]), int(plan.rank[row]), int(plan.tag[row])): row for row in rows}
    for number, phase in enumerate(plan.phases):
        for call, tags in zip(phase.calls, phase.call_tags, strict=True):
            own = np.array([at[number, *key] for key in zip(call.members, tags, strict=True)])
            root = int(plan.peer[own[0]])
            position = NONE if root == NONE else call.members.index(root)
            ranks = np.array(call.members)
            yield CallRows(phase.kind, own, ranks, position, n_read[own], n_written[own])


@dataclass(frozen=True, eq=False)
class Deliveries:
    """Parts of vectors that members of a call receive from each other, or own.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n,)
        Positions.
    low, count : ndarray of int64, shape (n,)
        The part of what the source reads.
    place : ndarray of int64, shape (n,)
        Place of the part in the output of the destination.
    """

    source: Ints
    dest: Ints
    low: Ints
    count: Ints
    place: Ints


def deliveries(call: CallRows) -> Deliveries:
    """Return the parts that members of a call need, sorted by destination and then source."""
    n, kind = len(call.rows), call.kind
    dest, source = (side.ravel() for side in np.indices((n, n)))
    is_root_source, is_root_dest = source == call.root, dest == call.root
    needed = {
        "bcast": is_root_source & ~is_root_dest,
        "scatter": is_root_source & ~is_root_dest,
        "gather": is_root_dest,
        "reduce": is_root_dest,
        "scan": source <= dest,
        "exscan": source < dest,
    }.get(kind, np.full(n * n, True))
    source, dest = source[needed], dest[needed]
    none = np.zeros(len(source), dtype=np.int64)
    before_read, before_written = (csr.running_total(x)[:-1] for x in (call.n_read, call.n_written))
    low, count, place = none, call.n_read[source], none
    if kind in ("scatter", "reduce_scatter_block"):
        if kind == "scatter":
            # The root writes nothing, but has a block.
            own = call.n_written.copy()
            own[call.root] += call.n_read[call.root] - own.sum()
            before_written = csr.running_total(own)[:-1]
        low, count = before_written[dest], call.n_written[dest]
    elif kind in ("allgather", "gather"):
        place = before_read[source]
    elif kind == "alltoall":
        count = call.n_read[source] // n
        low, place = dest * count, source * count
    return Deliveries(source, dest, low, count, place)


class _Written:
    """Tasks that replace calls, as growing columns."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.reads, self.writes = pieces_of(plan)
        self.n_rows = plan.n_tasks
        self.scratch = plan.buffer_sizes[:, Buffer.SCRATCH].astype(np.int64)
        self.first_tag = int(plan.tag.max(initial=NONE)) + 1
        self._columns: list[dict[str, Ints]] = []
        self._accesses: tuple[list[Pieces], list[Pieces]] = ([self.reads], [self.writes])
        self._edges: list[tuple[Ints, Ints]] = []

    def add(self, call_rows: Ints, op: Op, reads: Pieces, writes: Pieces,
            peer: Ints | int = NONE, tag: int = NONE) -> Ints:  # fmt: skip
        """Add a task for each of some rows of calls; return the new rows."""
        plan, n = self.plan, len(call_rows)
        columns = {name: getattr(plan, name)[call_rows] for name in COLUMNS}
        peer = np.broadcast_to(peer, n)
        crosses = (peer != NONE) & (plan.rank_node[columns["rank"]] != plan.rank_node[peer])
        dest = peer if op == Op.SEND else columns["rank"]
        columns |= {
            "op": np.full(n, op),
            "peer": peer,
            "tag": np.full(n, tag),
            "lane": np.where(crosses, plan.rank_lane[dest], NONE),
        }
        self._columns.append(columns)
        for parts, side in zip(self._accesses, (reads, writes), strict=True):
            parts.append(side)
        self.n_rows += n
        return np.arange(self.n_rows - n, self.n_rows)

    def join(self, before: Ints, after: Ints) -> None:
        """Make rows wait for other rows."""
        self._edges.append((before, after))

    def finish(self, ends: Ints) -> Plan:
        """Return the plan, in which tasks that waited for a call wait for its entry in `ends`."""
        plan = self.plan
        is_call = plan.op == Op.CALL
        columns = {
            name: np.concatenate([getattr(plan, name), *(part[name] for part in self._columns)])
            for name in COLUMNS
        }
        for name, value in (("op", Op.COMPUTE), ("peer", NONE), ("tag", NONE)):
            columns[name][: plan.n_tasks][is_call] = value
        before = plan.deps.task.astype(np.int64)
        waits_for_end = (ends[before] != NONE) & (plan.deps.kind & ON_START == 0)
        before = np.where(waits_for_end, ends[before], before)
        new_before, new_after = (np.concatenate(side) for side in zip(*self._edges, strict=True))
        after = np.concatenate((plan.deps.owner(), new_after))
        order = np.argsort(after, kind="stable")
        kind = np.concatenate((plan.deps.kind, np.zeros(len(new_before), dtype=np.int8)))
        deps = Dependencies(
            csr.indptr_of(after[order], self.n_rows),
            np.concatenate((before, new_before))[order],
            kind[order],
        )
        kept = ~is_call
        first = [side[0].masked(kept) for side in self._accesses]
        reads, writes = (
            stack([one, *side[1:]]) for one, side in zip(first, self._accesses, strict=True)
        )
        sizes = plan.buffer_sizes.copy()
        sizes[:, Buffer.SCRATCH] = self.scratch
        phases = tuple(replace(phase, calls=()) for phase in plan.phases)
        return with_pieces(
            plan, reads, writes, **columns, deps=deps, buffer_sizes=sizes, phases=phases,
            foreign=None, apart=None,
        )  # fmt: skip


_Write = Callable[[_Written, CallRows, int], tuple[Ints, Ints]]
"""A function that writes the tasks of a call with a tag, and returns rows and their positions."""


def write_out(plan: Plan) -> Plan:
    """Return a plan with messages, copies and reductions in place of its calls.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks whose calls `collplan.planner.verify` accepts.

    Returns
    -------
    Plan
        With the same rows, in which calls only mark the beginning, and additional rows behind
        them. `plan` itself if it has no calls.
    """
    return _replaced(plan, _write_messages, lambda n: 4 * n * n)


def write_barriers(plan: Plan) -> Plan:
    """Return a plan with each call replaced by the messages of a barrier, which move no data."""
    return _replaced(plan, _write_barrier, lambda n: 5 * n)


def _replaced(plan: Plan, write: _Write, n_rows_of: Callable[[int], int]) -> Plan:
    """Return a plan in which a function writes the tasks of each call between begin and end."""
    if not has_calls(plan):
        return plan
    sizes = [len(call.members) for phase in plan.phases for call in phase.calls]
    require_memory(sum(map(n_rows_of, sizes)) * BYTES_PER_ROW)
    written = _Written(plan)
    ends = np.full(plan.n_tasks, NONE, dtype=np.int64)
    for number, call in enumerate(calls_of(plan)):
        n = len(call.rows)
        rows, owner = write(written, call, written.first_tag + number)
        nothing = empty(n)
        ends[call.rows] = written.add(call.rows, Op.COMPUTE, nothing, nothing)
        written.join(call.rows[owner], rows)
        written.join(rows, ends[call.rows][owner])
        written.join(call.rows, ends[call.rows])
    return written.finish(ends)


def _write_barrier(written: _Written, call: CallRows, tag: int) -> tuple[Ints, Ints]:
    """Write a barrier through the first member; return rows and their positions."""
    n = len(call.rows)
    others, first = np.arange(1, n), np.zeros(n - 1, dtype=np.int64)
    rows = []
    for op, own, other in (
        (Op.SEND, others, first), (Op.RECV, first, others),
        (Op.SEND, first, others), (Op.RECV, others, first),
    ):  # fmt: skip
        nothing = empty(n - 1)
        rows.append(written.add(call.rows[own], op, nothing, nothing, call.ranks[other], tag))
    all_are_here = written.add(call.rows[:1], Op.COMPUTE, empty(1), empty(1))
    written.join(rows[1], np.repeat(all_are_here, n - 1))
    written.join(np.repeat(all_are_here, n - 1), rows[2])
    owners = (others, first, first, others, first[:1])
    return np.concatenate((*rows, all_are_here)), np.concatenate(owners)


def _part(side: Pieces, call_rows: Ints, low: Ints, count: Ints) -> Pieces:
    """Return a part of the one piece that each of some calls reads or writes."""
    at = side.indptr[call_rows]
    has = csr.lengths_of(side.indptr)[call_rows] > 0
    at = np.where(has, at, 0)
    n = len(call_rows)
    buffer = side.buffer[at] if len(side.buffer) else np.zeros(n, dtype=np.int8)
    offset = side.offset[at] if len(side.offset) else np.zeros(n, dtype=np.int64)
    return one_each(buffer, offset + low, count)


def _write_messages(written: _Written, call: CallRows, tag: int) -> tuple[Ints, Ints]:
    """Write a direct message for every part; return rows and their positions."""
    if call.kind == "barrier":
        return _write_barrier(written, call, tag)
    all_parts = deliveries(call)
    moved = all_parts.count > 0
    parts = Deliveries(
        **{one.name: getattr(all_parts, one.name)[moved] for one in fields(all_parts)}
    )
    is_remote = parts.source != parts.dest
    places = _part(written.reads, call.rows[parts.source], parts.low, parts.count)
    results = _part(written.writes, call.rows[parts.dest], parts.place, parts.count)
    combines = call.kind in COMBINING
    remote = np.flatnonzero(is_remote)
    source, dest = parts.source[remote], parts.dest[remote]
    landing = results.take(remote)
    if combines:
        landing = _slots(written, call.ranks[dest], parts.count[remote])
    nothing = empty(len(remote))
    sends = written.add(
        call.rows[source], Op.SEND, places.take(remote), nothing, call.ranks[dest], tag
    )
    recvs = written.add(call.rows[dest], Op.RECV, nothing, landing, call.ranks[source], tag)
    rows, owners = [sends, recvs], [source, dest]
    if combines:
        operands = stack((places, landing))
        index = np.arange(len(parts.dest))
        index[remote] = len(index) + np.arange(len(remote))
        arrived = np.full(len(index), NONE, dtype=np.int64)
        arrived[remote] = recvs
        made, owner = _combine(written, call, parts, operands.take(index), results, arrived)
    else:
        own = np.flatnonzero(~is_remote)
        owner = parts.dest[own]
        made = written.add(call.rows[owner], Op.COPY, places.take(own), results.take(own))
    return np.concatenate((*rows, made)), np.concatenate((*owners, owner))


def _slots(written: _Written, ranks: Ints, counts: Ints) -> Pieces:
    """Return scratch space for messages to some ranks, which are sorted by rank."""
    offset = written.scratch[ranks] + csr.group_offsets(ranks, counts)
    np.add.at(written.scratch, ranks, counts)
    return one_each(Buffer.SCRATCH, offset, counts)


def _combine(
    written: _Written, call: CallRows, parts: Deliveries, operands: Pieces, results: Pieces,
    arrived: Ints,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Combine the operands of each member in the order of positions; return rows and positions."""
    first = csr.run_starts(parts.dest)
    is_alone = first & np.append(first[1:], True)
    alone, later = np.flatnonzero(is_alone), np.flatnonzero(~first)
    copies = written.add(
        call.rows[parts.dest[alone]], Op.COPY, operands.take(alone), results.take(alone)
    )
    _join_arrivals(written, arrived[alone], copies)
    # The first two operands are combined, then the result with each of the others.
    begins: Bools = first[later - 1]
    left = stack((operands, results)).take(np.where(begins, later - 1, len(first) + later))
    pairs = stack((left, operands.take(later)))
    n = len(later)
    both = pairs.take(np.column_stack((np.arange(n), n + np.arange(n))).ravel())
    reads = both.merged(np.arange(0, 2 * n + 1, 2))
    made = written.add(call.rows[parts.dest[later]], Op.REDUCE, reads, results.take(later))
    _join_arrivals(written, arrived[later], made)
    _join_arrivals(written, np.where(begins, arrived[later - 1], NONE), made)
    goes_on = np.flatnonzero(~begins)
    written.join(made[goes_on - 1], made[goes_on])
    return np.concatenate((copies, made)), parts.dest[np.concatenate((alone, later))]


def _join_arrivals(written: _Written, arrived: Ints, rows: Ints) -> None:
    came = arrived != NONE
    written.join(arrived[came], rows[came])
