"""Rounds of a schedule that states every message: what a search writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.algorithms.rounds import (
    Chunks,
    Copy,
    Group,
    Message,
    Reduce,
    Round,
    Rounds,
    Step,
    at,
)
from collplan.planner.errors import AlgorithmError

MessageRow = tuple[int, int, tuple[int, ...]]
"""A message: its sender, its receiver, and the chunks that it carries."""
Schedule = Sequence[Sequence[MessageRow]]
"""The messages of every round."""
Place = tuple[int, int]
"""A space, and a chunk of it."""

_VECTORS: Final = ("bcast", "reduce", "allreduce")
_COMBINING: Final = ("reduce", "allreduce", "reduce_scatter_block")
_ROOTED: Final = ("bcast", "reduce", "gather", "scatter")


def stated_rounds(
    group: Group,
    kind: str,
    schedule: Schedule,
    *,
    n_parts: int = 1,
    root: int = 0,
    rotates: bool = False,
) -> Rounds:
    """Yield the rounds of a schedule.

    Part i of a vector is chunk i, and part i of rank r's block chunk ``i * size + r``. For
    alltoall, the block of rank a for rank b is chunk ``a * size + b``. Collectives that combine
    do so where the operands of two partial results differ; a result replaces a partial result.

    Parameters
    ----------
    group : Group
    kind : str
        The collective.
    schedule : sequence of sequences of (int, int, tuple of int)
        Of every round, its messages: sender, receiver and chunks.
    n_parts : int
        Parts of a block or vector: the default of the option `blocks`. Of fewer parts, those
        that there are not are left out.
    root : int
        The root that the schedule is for.
    rotates : bool
        Whether other roots take it with all ranks shifted.

    Raises
    ------
    AlgorithmError
        If the root is another one and the schedule does not rotate, or there are more parts.
    """
    given = int(group.options.get("blocks", 1))
    if given > n_parts:
        raise AlgorithmError(
            f"algorithms.blocks: {given} parts, the schedule has {n_parts}; give {n_parts} or "
            f"fewer"
        )
    if kind in _ROOTED and group.root != root and not rotates:
        raise AlgorithmError(
            f"algorithms: the schedule is for root {root}, not for root {group.root}; synthesize "
            f"one for that root"
        )
    shift = (group.root - root) % group.size if kind in _ROOTED else 0
    shown = _Shown(group, kind, schedule, shift, given)
    if kind in _COMBINING:
        return _combining(group, kind, shown)
    return _alltoall(group, shown) if kind == "alltoall" else _moving(group, kind, shown)


@dataclass(frozen=True)
class _Shown:
    """A schedule as a group sees it: for its root, with the parts that it has."""

    group: Group
    kind: str
    schedule: Schedule
    shift: int
    n_parts: int

    def rounds(self) -> Iterator[list[MessageRow]]:
        """Yield the messages of every round."""
        size = self.group.size
        for messages in self.schedule:
            kept = []
            for source, dest, chunks in messages:
                there = tuple(self._chunk(chunk) for chunk in chunks if self._is_there(chunk))
                if there:
                    ends = (source + self.shift) % size, (dest + self.shift) % size
                    kept.append((*ends, there))
            yield kept

    def _is_there(self, chunk: int) -> bool:
        if self.kind == "alltoall":
            return True
        return (chunk if self.kind in _VECTORS else chunk // self.group.size) < self.n_parts

    def _chunk(self, chunk: int) -> int:
        if self.kind not in ("gather", "scatter"):
            return chunk
        part, rank = divmod(chunk, self.group.size)
        return part * self.group.size + (rank + self.shift) % self.group.size


def _runs(places: Sequence[Place]) -> tuple[Chunks, ...]:
    """Name places one after another, neighbors as one run."""
    runs: list[list[int]] = []
    for space, chunk in places:
        if runs and runs[-1][0] == space and runs[-1][1] + runs[-1][2] == chunk:
            runs[-1][2] += 1
        else:
            runs.append([space, chunk, 1])
    return tuple(at(*run) for run in runs)


def _own_blocks(group: Group, rank: int) -> range:
    """Return the parts of a rank's block."""
    return range(rank, group.n_chunks, group.size)


def _copies(ranks: Sequence[int], group: Group) -> list[Step]:
    """Copy the ranks' own blocks from the input to the output."""
    return [
        Copy(
            rank,
            _runs([(group.input, chunk) for chunk in _own_blocks(group, rank)]),
            _runs([(group.output, chunk) for chunk in _own_blocks(group, rank)]),
        )
        for rank in ranks
    ]


def _moving(group: Group, kind: str, shown: _Shown) -> Rounds:
    """Move chunks from where they start; what is for others lies in scratch on the way."""
    root, size = group.root, group.size
    scratch = group.packed_scratch() if kind in ("gather", "scatter") else group.output
    owners = {"allgather": range(size), "gather": [root], "scatter": [root]}.get(kind, [])
    yield Round(*_copies(owners, group))

    def place(rank: int, chunk: int) -> Place:
        if kind == "scatter" and rank != root:
            return (group.output if chunk % size == rank else scratch), chunk
        if kind == "gather" and rank != root:
            return (group.input if chunk % size == rank else scratch), chunk
        return (group.input if kind == "scatter" else group.output), chunk

    for messages in shown.rounds():
        yield Round(*_direct(messages, place, place))


def _direct(
    messages: Sequence[MessageRow],
    read: Callable[[int, int], Place],
    write: Callable[[int, int], Place],
) -> Iterator[Message]:
    for source, dest, chunks in messages:
        yield Message(
            source,
            dest,
            _runs([read(source, chunk) for chunk in chunks]),
            _runs([write(dest, chunk) for chunk in chunks]),
        )


def _alltoall(group: Group, shown: _Shown) -> Rounds:
    """Move blocks between pairs of ranks; on the way they lie in slots of scratch."""
    size = group.size
    counts = np.broadcast_to(group.counts, (size, size))
    rounds = list(shown.rounds())
    slots: list[dict[int, int]] = [{} for _ in range(size)]
    for messages in rounds:
        for _, dest, chunks in messages:
            for chunk in chunks:
                if chunk % size != dest:
                    slots[dest].setdefault(chunk, len(slots[dest]))
    sizes = np.zeros((size, max(1, *map(len, slots))), dtype=np.int64)
    for rank, own in enumerate(slots):
        for chunk, slot in own.items():
            sizes[rank, slot] = counts[chunk // size, chunk % size]
    scratch = group.unlike_scratch(sizes)

    def place(rank: int, chunk: int) -> Place:
        source, dest = divmod(chunk, size)
        if rank == source:
            return group.input, dest
        return (group.output, source) if rank == dest else (scratch, slots[rank][chunk])

    me = group.positions
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for messages in rounds:
        yield Round(*_direct(messages, place, place))


def _combining(group: Group, kind: str, shown: _Shown) -> Rounds:
    """Combine partial results; what cannot be combined where it lies lands in scratch."""
    size = group.size
    partial = group.packed_scratch() if kind == "reduce_scatter_block" else group.output
    operands = {(rank, chunk): 1 << rank for rank in range(size) for chunk in range(group.n_chunks)}
    touched: set[tuple[int, int]] = set()
    landing: list[int] = []

    def value(rank: int, chunk: int) -> Place:
        return home(rank, chunk) if (rank, chunk) in touched else (group.input, chunk)

    def home(rank: int, chunk: int) -> Place:
        return (group.output if chunk % size == rank else partial), chunk

    for messages in shown.rounds():
        steps: list[Step] = []
        local: list[Step] = []
        before, was_touched = dict(operands), set(touched)
        taken: dict[tuple[int, int], int] = {}
        for source, dest, chunks in messages:
            read = _runs(
                [
                    home(source, chunk) if (source, chunk) in was_touched else (group.input, chunk)
                    for chunk in chunks
                ]
            )
            ways = [before[source, chunk] & operands[dest, chunk] == 0 for chunk in chunks]
            is_first = all(taken.get((dest, chunk), 0) == 0 for chunk in chunks)
            own, homes = ([f(dest, chunk) for chunk in chunks] for f in (value, home))
            for chunk, combines in zip(chunks, ways, strict=True):
                _require_known(before[source, chunk], operands[dest, chunk], combines, size)
            if is_first and all(ways):
                steps.append(Message(source, dest, read, _runs(homes), _runs(own)))
            elif is_first and not any(ways):
                steps.append(Message(source, dest, read, _runs(homes)))
            else:
                turn = max(taken.get((dest, chunk), 0) for chunk in chunks)
                while len(landing) <= turn:
                    landing.append(group.packed_scratch())
                here = [(landing[turn], chunk) for chunk in chunks]
                steps.append(Message(source, dest, read, _runs(here)))
                for chunk, combines in zip(chunks, ways, strict=True):
                    there, came = at(*home(dest, chunk)), at(landing[turn], chunk)
                    local.append(
                        Reduce(dest, at(*value(dest, chunk)), came, there)
                        if combines
                        else Copy(dest, came, there)
                    )
            for chunk in chunks:
                operands[dest, chunk] |= before[source, chunk]
                taken[dest, chunk] = taken.get((dest, chunk), 0) + 1
                touched.add((dest, chunk))
        yield Round(*steps, *local)


def _require_known(comes: int, there: int, combines: bool, size: int) -> None:
    """Raise where a partial result would be lost or counted twice."""
    if not combines and comes != (1 << size) - 1:
        raise AlgorithmError(
            f"algorithms: a message brings operands {comes:b} to {there:b}, which overlap; "
            f"synthesize the schedule again"
        )
