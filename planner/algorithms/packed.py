"""Algorithms whose messages are packed into the links of a topology, for most collectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collplan.planner.algorithms.registry import BLOCKS, algorithm
from collplan.planner.algorithms.rounds import Chunks, Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays import Ints, csr
from collplan.planner.packing.schedule import GroupSchedule

Find = Callable[[Ints, Ints], Chunks]
"""Function from positions and chunks to places in memory."""


def packed_rounds(group: Group, schedule: GroupSchedule) -> Rounds:
    """Yield the rounds of a schedule.

    Parameters
    ----------
    group : Group
    schedule : GroupSchedule
        Schedule in which every position receives a chunk at most once, or in a reduction sends its
        partial result of a chunk once.
    """
    if schedule.kind in ("reduce", "reduce_scatter_block", "allreduce"):
        yield from _combined(group, schedule)
        return
    find = _places(group, schedule)
    if schedule.kind != "bcast":
        me = group.positions if schedule.kind in ("allgather", "alltoall") else group.root
        own = me * group.size + me if schedule.kind == "alltoall" else me
        for part in range(schedule.n_parts):
            yield Round(_copy_own(group, schedule.kind, me, own + part * group.size))
    for rows in schedule.rounds():
        source, dest, chunk = (
            column[rows] for column in (schedule.source, schedule.dest, schedule.chunk)
        )
        yield Round(Message(source, dest, find(source, chunk), find(dest, chunk), queue=dest))


def _copy_own(group: Group, kind: str, me: Ints | int, chunk: Ints | int) -> Copy:
    """Return the copy of a position's own chunk from its input to its output."""
    if kind == "alltoall":
        return Copy(me, at(group.input, me), at(group.output, me))
    return Copy(me, at(group.input, chunk), at(group.output, chunk))


def _places(group: Group, schedule: GroupSchedule) -> Find:
    """Return the function that finds the place of a chunk that is moved."""
    size, root, kind = group.size, group.root, schedule.kind
    if kind in ("allgather", "bcast"):
        return lambda _, chunk: at(group.output, chunk)
    if kind == "alltoall":
        return _pair_places(group, schedule)
    scratch = group.packed_scratch()
    ends = (group.output, group.input) if kind == "scatter" else (group.input, group.output)

    def find(position: Ints, chunk: Ints) -> Chunks:
        inner = np.where(chunk % size == position, ends[0], scratch)
        return at(np.where(position == root, ends[1], inner), chunk)

    return find


def _pair_places(group: Group, schedule: GroupSchedule) -> Find:
    """Return the function that finds blocks of an alltoall; those in transit have slots."""
    size = group.size
    counts = np.broadcast_to(group.counts, (size, size))
    is_transit = schedule.chunk % size != schedule.dest
    keys = csr.sorted_unique(
        csr.joint_key(schedule.dest[is_transit], schedule.chunk[is_transit], size * size)
    )
    position, chunk = np.divmod(keys, size * size)
    begin = csr.indptr_of(position, size)
    sizes = np.zeros((size, max(1, int(csr.lengths_of(begin).max(initial=0)))), dtype=np.int64)
    slot = np.arange(len(keys)) - begin[position]
    sizes[position, slot] = counts[chunk // size, chunk % size]
    scratch = group.unlike_scratch(sizes)

    def find(at_position: Ints, chunk: Ints) -> Chunks:
        source, dest = np.divmod(chunk, size)
        key = csr.joint_key(at_position, chunk, size * size)
        found = np.minimum(np.searchsorted(keys, key), max(0, len(keys) - 1))
        transit = slot[found] if len(slot) else np.zeros_like(chunk)
        is_source, is_dest = at_position == source, at_position == dest
        space = np.where(is_source, group.input, np.where(is_dest, group.output, scratch))
        return at(space, np.where(is_source, dest, np.where(is_dest, source, transit)))

    return find


def _combined(group: Group, schedule: GroupSchedule) -> Rounds:
    """Yield the rounds of a reduction, and of the allgather that follows it in an allreduce."""
    size, output = group.size, group.output
    has_blocks = schedule.kind == "reduce_scatter_block"
    scratch = group.packed_scratch() if has_blocks else output
    begin = schedule.begin
    number = csr.row_numbers(begin)
    n_chunks = int(schedule.chunk.max(initial=0)) + 1
    # Round in which a position first receives a chunk.
    first = np.full((size, n_chunks), len(begin), dtype=np.int64)
    np.minimum.at(first, (schedule.dest, schedule.chunk), number)

    def home(position: Ints, chunk: Ints) -> Ints:
        return np.where(chunk % size == position, output, scratch)

    for round_, rows in enumerate(schedule.rounds()):
        source, dest, chunk = (
            column[rows] for column in (schedule.source, schedule.dest, schedule.chunk)
        )
        read = np.where(first[source, chunk] < round_, home(source, chunk), group.input)
        write = home(dest, chunk)
        if round_ >= schedule.n_combining:
            yield Round(Message(source, dest, at(read, chunk), at(write, chunk), queue=dest))
            continue
        operand = np.where(first[dest, chunk] < round_, write, group.input)
        moved = at(read, chunk), at(write, chunk), at(operand, chunk)
        yield Round(Message(source, dest, *moved, queue=dest))


_AUTO = {BLOCKS: "auto"}


@algorithm("allgather", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm(
    "reduce_scatter_block",
    "packed",
    parts="blocks",
    commutative_only=True,
    is_packed=True,
    options=_AUTO,
)
@algorithm(
    "allreduce", "packed", parts="size", commutative_only=True, is_packed=True, options=_AUTO
)
@algorithm("bcast", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("reduce", "packed", parts="blocks", commutative_only=True, is_packed=True, options=_AUTO)
@algorithm("gather", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("scatter", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("alltoall", "packed", by_counts=True, is_packed=True)
def packed(group: Group) -> Rounds:
    """Send chunks over every link of the topology for as much of the time as possible.

    A search simulates time: each link that becomes free takes a chunk that the receiver lacks, the
    one that the fewest of its neighbors can give it. Chunks of scatter, gather and alltoall take
    ways that load all links evenly. Gather, reduce and reduce_scatter_block are scatter, bcast and
    allgather turned around, and allreduce is two of them.

    Notes
    -----
    The groups of a component are packed together, as they share links. The number of rounds
    depends on the topology; `collplan cost` prints the lower bound that its cuts give.

    References
    ----------
    Won et al., "TACOS: topology-aware collective algorithm synthesizer for distributed machine
    learning", MICRO 2024: time-expanded search. Zhao et al., "ForestColl: throughput-optimal
    collective communications on heterogeneous network fabrics", 2024: the bound of allgather.
    """
    assert group.schedule is not None, "a packed algorithm has a schedule"
    yield from packed_rounds(group, group.schedule)
