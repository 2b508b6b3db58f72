"""Rounds of a schedule that lists every message, as the result of a search."""

from __future__ import annotations

from collections import Counter
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
"""Sender, receiver, and chunks of a message."""
Schedule = Sequence[Sequence[MessageRow]]
"""Messages of every round."""
Place = tuple[int, int]
"""Space, and number of a chunk in it."""

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

    Part i of a vector is chunk i, and part i of the block of rank r is chunk ``i * size + r``. For
    alltoall, the block of rank a for rank b is chunk ``a * size + b``. In reductions, a received
    partial result is combined with the partial result of the receiver. A received complete result
    replaces it.

    Parameters
    ----------
    group : Group
    kind : str
        Kind of the collective.
    schedule : sequence of sequences of (int, int, tuple of int)
        Messages of every round, each with sender, receiver and chunks.
    n_parts : int
        Number of parts of a block or vector in the schedule. If the option `blocks` is smaller,
        chunks of the missing parts are left out.
    root : int
        Root in the schedule.
    rotates : bool
        Whether the schedule is also used for other roots, with all ranks shifted.

    Raises
    ------
    AlgorithmError
        If the group has another root and the schedule does not rotate, or has more parts than
        the schedule.
    """
    given = int(group.options.get("blocks", 1))
    if given > n_parts:
        raise AlgorithmError(
            f"algorithms.blocks: {given} parts, the schedule has {n_parts}; give {n_parts} or fewer"
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
    """A schedule adapted to a group: shifted to its root, and without missing parts."""

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
    """Return the runs of given places, with consecutive chunks as one run."""
    runs: list[list[int]] = []
    for space, chunk in places:
        if runs and runs[-1][0] == space and runs[-1][1] + runs[-1][2] == chunk:
            runs[-1][2] += 1
        else:
            runs.append([space, chunk, 1])
    return tuple(at(*run) for run in runs)


def _own_blocks(group: Group, rank: int) -> range:
    """Return the chunks of a rank's block."""
    return range(rank, group.n_chunks, group.size)


def _copies(ranks: Sequence[int], group: Group) -> list[Step]:
    """Return copies of the ranks' own blocks from the input to the output."""
    return [
        Copy(
            rank,
            _runs([(group.input, chunk) for chunk in _own_blocks(group, rank)]),
            _runs([(group.output, chunk) for chunk in _own_blocks(group, rank)]),
        )
        for rank in ranks
    ]


def _moving(group: Group, kind: str, shown: _Shown) -> Rounds:
    """Yield rounds that move chunks; chunks that are passed on are kept in scratch."""
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
    """Yield the rounds of an alltoall; blocks that are passed on are kept in slots of scratch."""
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
    """Yield rounds that combine partial results; some chunks are received into scratch first."""
    combining = _Combining(group, kind)
    for messages in shown.rounds():
        combining.begin()
        steps = [combining.receive(*message) for message in messages]
        yield Round(*steps, *combining.local)


class _Combining:
    """State of a reduction: the places of partial results and the operands that they include.

    Parameters
    ----------
    group : Group
    kind : str
        Kind of the collective.
    """

    def __init__(self, group: Group, kind: str) -> None:
        self.group = group
        self.has_blocks = kind == "reduce_scatter_block"
        self.partial = group.packed_scratch() if self.has_blocks else group.output
        ranks, chunks = range(group.size), range(group.n_chunks)
        self.operands = {(rank, chunk): 1 << rank for rank in ranks for chunk in chunks}
        self.touched: set[Place] = set()
        self.landing: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Begin a round, whose messages read the current state."""
        self.before, self.was_touched = dict(self.operands), set(self.touched)
        self.arrived: set[Place] = set()
        self.landed: Counter[Place] = Counter()
        self.local: list[Step] = []

    def _home(self, rank: int, chunk: int) -> Place:
        """Return the place of a rank's partial result of a chunk."""
        is_own = chunk % self.group.size == rank or not self.has_blocks
        return (self.group.output if is_own else self.partial), chunk

    def _value(self, rank: int, chunk: int, touched: set[Place]) -> Place:
        """Return the place of a rank's partial result, or of its operand if there is none yet."""
        return self._home(rank, chunk) if (rank, chunk) in touched else (self.group.input, chunk)

    def receive(self, source: int, dest: int, chunks: tuple[int, ...]) -> Message:
        """Return a message, and add the local steps that it needs at its receiver to `local`."""
        places = [(dest, chunk) for chunk in chunks]
        read = _runs([self._value(source, chunk, self.was_touched) for chunk in chunks])
        combines = [self._combines(source, dest, chunk) for chunk in chunks]
        own = [self._value(*place, self.touched) for place in places]
        homes = [self._home(*place) for place in places]
        is_first = not self.arrived.intersection(places)
        if is_first and all(combines):
            message = Message(source, dest, read, _runs(homes), _runs(own))
        elif is_first and not any(combines):
            message = Message(source, dest, read, _runs(homes))
        else:
            turn = max(self.landed[place] for place in places)
            if turn == len(self.landing):
                self.landing.append(self.group.packed_scratch())
            here = [(self.landing[turn], chunk) for chunk in chunks]
            message = Message(source, dest, read, _runs(here))
            for place, value, home, came, does in zip(
                places, own, homes, here, combines, strict=True
            ):
                self.landed[place] = turn + 1
                to = at(*home)
                step = Reduce(dest, at(*value), at(*came), to) if does else None
                self.local.append(step or Copy(dest, at(*came), to))
        for place in places:
            self.operands[place] |= self.before[source, place[1]]
        self.arrived.update(places)
        self.touched.update(places)
        return message

    def _combines(self, source: int, dest: int, chunk: int) -> bool:
        """Return whether a received chunk is combined, rather than replaces the partial result.

        Only a complete result may replace a partial result.
        """
        comes, there = self.before[source, chunk], self.operands[dest, chunk]
        if comes & there and comes != (1 << self.group.size) - 1:
            raise AlgorithmError(
                f"algorithms: a message brings operands {comes:b} to {there:b}, which overlap; "
                f"synthesize the schedule again"
            )
        return not comes & there
