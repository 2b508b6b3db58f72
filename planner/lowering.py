"""From rounds of chunks to messages and local steps of elements, for all ranks at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.chunks import Ints
from planner.pieces import Pieces, contiguous, running_total
from planner.plan import Buffer, Op
from planner.rounds import Chunks, Copy, Message, Reduce, Round, Where
from planner.spaces import Space

Bools = npt.NDArray[np.bool_]


class _Column:
    """A column that grows by arrays or scalars."""

    def __init__(self, dtype: npt.DTypeLike = np.int64) -> None:
        self.dtype = dtype
        self.parts: list[Any] = []

    def add(self, values: Any, n: int) -> None:
        if np.ndim(values) == 0:
            values = np.full(n, values, dtype=self.dtype)
        assert len(values) == n, f"{len(values)} entries for {n} messages"
        self.parts.append(np.asarray(values, dtype=self.dtype))

    def array(self) -> npt.NDArray[Any]:
        if not self.parts:
            return np.zeros(0, dtype=self.dtype)
        return np.concatenate(self.parts)


class _Runs:
    """Runs of chunks of many steps, waiting to be turned into pieces."""

    FIELDS = ("owner", "space", "first", "n", "stride", "repeat")

    def __init__(self) -> None:
        self.columns = {name: _Column(np.int32) for name in self.FIELDS}
        self.is_sorted = True

    def add(self, where: Where, first_owner: int, n: int, kept: Bools | None) -> None:
        """Add the runs of `n` steps, of which those in `kept` are numbered from `first_owner`."""
        runs = where if isinstance(where, tuple) else (where,)
        self.is_sorted &= len(runs) < 2
        n_kept = n if kept is None else int(np.count_nonzero(kept))
        for run in runs:
            self.columns["owner"].add(np.arange(first_owner, first_owner + n_kept), n_kept)
            for name in self.FIELDS[1:]:
                value = getattr(run, name)
                if kept is not None and np.ndim(value):
                    value = value[kept]
                self.columns[name].add(value, n_kept)

    def arrays(self) -> tuple[Ints, ...]:
        arrays = tuple(column.array() for column in self.columns.values())
        if not self.is_sorted:
            order = np.argsort(arrays[0], kind="stable")
            arrays = tuple(array[order] for array in arrays)
        return arrays


@dataclass
class MessageTable:
    """Messages of all rounds, in program order; extents per message."""

    round: Ints
    source: Ints
    dest: Ints
    incoming_left: Bools
    combining: Bools
    ordered: Bools
    read: Pieces
    write: Pieces
    combine: Pieces

    def select(self, mask: Bools) -> MessageTable:
        """Return the messages in `mask`."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return MessageTable(**_take_all(vars(self), rows))


@dataclass
class LocalTable:
    """Copies and reductions of all rounds, in program order; `read` is left, then right."""

    round: Ints
    rank: Ints
    op: Ints
    read: Pieces
    write: Pieces

    def select(self, mask: Bools) -> LocalTable:
        """Return the steps in `mask`."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return LocalTable(**_take_all(vars(self), rows))


def _take_all(columns: dict[str, Any], rows: Ints) -> dict[str, Any]:
    return {
        name: column.take(rows) if isinstance(column, Pieces) else column[rows]
        for name, column in columns.items()
    }


@dataclass
class Collected:
    """Steps of rounds as columns that grow."""

    only: int | None
    message: dict[str, _Column] = field(
        default_factory=lambda: {
            "round": _Column(np.int32),
            "source": _Column(np.int32),
            "dest": _Column(np.int32),
            "incoming_left": _Column(bool),
            "combining": _Column(bool),
            "ordered": _Column(bool),
        }
    )
    local: dict[str, _Column] = field(
        default_factory=lambda: {
            "round": _Column(np.int32),
            "rank": _Column(np.int32),
            "op": _Column(np.int8),
        }
    )
    runs: dict[str, _Runs] = field(
        default_factory=lambda: {
            name: _Runs() for name in ("read", "write", "combine", "local_read", "local_write")
        }
    )
    n_messages: int = 0
    n_locals: int = 0

    def add(self, number: int, step: Message | Copy | Reduce) -> None:
        """Add a step of round `number`."""
        if isinstance(step, Message):
            self._add_message(number, step)
        else:
            self._add_local(number, step)

    def _add_message(self, number: int, step: Message) -> None:
        n = max(np.size(step.source), np.size(step.dest))
        if np.size(step.source) == 0 or np.size(step.dest) == 0:
            return
        source, dest = (np.broadcast_to(end, (n,)) for end in (step.source, step.dest))
        kept = None if self.only is None else (source == self.only) | (dest == self.only)
        n_kept = n if kept is None else int(np.count_nonzero(kept))
        if n_kept == 0:
            return
        row = {
            "round": number,
            "source": source if kept is None else source[kept],
            "dest": dest if kept is None else dest[kept],
            "incoming_left": _kept(step.incoming_left, kept),
            "combining": step.combine is not None,
            "ordered": step.ordered,
        }
        for name, value in row.items():
            self.message[name].add(value, n_kept)
        for name in ("read", "write", "combine"):
            where = getattr(step, name)
            if where is not None:
                self.runs[name].add(where, self.n_messages, n, kept)
        self.n_messages += n_kept

    def _add_local(self, number: int, step: Copy | Reduce) -> None:
        n = np.size(step.rank)
        rank = np.broadcast_to(step.rank, (n,))
        kept = None if self.only is None else rank == self.only
        n_kept = n if kept is None else int(np.count_nonzero(kept))
        if n_kept == 0:
            return
        self.local["round"].add(number, n_kept)
        self.local["rank"].add(rank if kept is None else rank[kept], n_kept)
        self.local["op"].add(Op.COPY if isinstance(step, Copy) else Op.REDUCE, n_kept)
        reads = (step.read,) if isinstance(step, Copy) else (step.left, step.right)
        runs = tuple(run for where in reads for run in _as_tuple(where))
        self.runs["local_read"].add(runs, self.n_locals, n, kept)
        self.runs["local_write"].add(step.write, self.n_locals, n, kept)
        self.n_locals += n_kept


def _kept(value: Any, kept: Bools | None) -> Any:
    return value[kept] if kept is not None and np.ndim(value) else value


def _as_tuple(where: Where) -> tuple[Chunks, ...]:
    return where if isinstance(where, tuple) else (where,)


def collect(rounds: Iterable[Round], only: int | None = None) -> Collected:
    """Collect the steps of all rounds into columns.

    Parameters
    ----------
    rounds : iterable of Round
        What an algorithm yields.
    only : int, optional
        Keep only what concerns this position, dropping the rest as it comes.
    """
    collected = Collected(only)
    for number, step_round in enumerate(rounds):
        for step in step_round.steps:
            collected.add(number, step)
    return collected


def lower(collected: Collected, spaces: list[Space]) -> tuple[MessageTable, LocalTable, Ints]:
    """Turn collected steps into tables of messages and local steps.

    Empty messages and steps are dropped, copies onto themselves, too.

    Parameters
    ----------
    collected : Collected
        What `collect` returned.
    spaces : list of Space
        What the spaces' numbers mean; scratch follows the collective's own.

    Returns
    -------
    messages : MessageTable
    locals : LocalTable
    scratch_sizes : ndarray of int64, shape (size,)
        Scratch each position needs so far.
    """
    message: dict[str, Any] = {n: column.array() for n, column in collected.message.items()}
    local: dict[str, Any] = {n: column.array() for n, column in collected.local.items()}
    allocator = _Allocator(spaces)
    position = {
        "read": message["source"],
        "write": message["dest"],
        "combine": message["dest"],
        "local_read": local["rank"],
        "local_write": local["rank"],
    }
    # Of a message between two others only one end's scratch is anybody's business.
    located = {
        name: allocator.locate(runs.arrays(), position[name])
        for name, runs in collected.runs.items()
    }
    scratch_sizes = allocator.place()
    pieces = {
        name: allocator.to_pieces(runs, len(position[name])) for name, runs in located.items()
    }
    messages = MessageTable(
        **message, read=pieces["read"], write=pieces["write"], combine=pieces["combine"]
    )
    steps = LocalTable(**local, read=pieces["local_read"], write=pieces["local_write"])
    messages = messages.select(messages.ordered | (messages.write.elements > 0))
    steps = steps.select((steps.write.elements > 0) & ~_onto_itself(steps))
    return messages, steps, scratch_sizes


def _onto_itself(steps: LocalTable) -> Bools:
    """Mark copies whose source and destination are one contiguous place."""
    single = (np.diff(steps.read.indptr) == 1) & (np.diff(steps.write.indptr) == 1)
    same = single & (steps.op == Op.COPY)
    rows = np.flatnonzero(same)
    read, write = steps.read.indptr[rows], steps.write.indptr[rows]
    same[rows] = (steps.read.buffer[read] == steps.write.buffer[write]) & (
        steps.read.offset[read] == steps.write.offset[write]
    )
    return np.asarray(same)


@dataclass
class _Located:
    """Runs as elements relative to their space."""

    owner: Ints
    space: Ints
    position: Ints
    offset: Ints
    count: Ints


class _Allocator:
    """Locates runs in spaces, then gives every scratch space the room it turned out to need."""

    def __init__(self, spaces: list[Space]) -> None:
        self.spaces = spaces
        self.size = len(spaces[0].buffer)
        self.needed = np.zeros((len(spaces), self.size), dtype=np.int64)
        self.base = np.stack([space.base for space in spaces])

    def locate(self, runs: tuple[Ints, ...], position_of: Ints) -> _Located:
        owner, space, first, n = self._unwrap(*_expand_repeats(runs))
        position = position_of[owner]
        offset, count = np.empty_like(first), np.empty_like(first)
        for number in np.flatnonzero(np.bincount(space)):
            mask = slice(None) if (space == number).all() else space == number
            offset[mask], count[mask] = self.spaces[number].layout.locate(
                position[mask], first[mask], n[mask]
            )
        kept = count > 0
        if not kept.all():
            owner, space, position = owner[kept], space[kept], position[kept]
            offset, count = offset[kept], count[kept]
        np.maximum.at(self.needed, (space, position), offset + count)
        return _Located(owner, space, position, offset, count)

    def _unwrap(self, owner: Ints, space: Ints, first: Ints, n: Ints) -> tuple[Ints, ...]:
        """Cut runs that wrap around the end of their space in two."""
        n_chunks = np.array([max(1, s.layout.n_chunks) for s in self.spaces])[space]
        first = first % n_chunks
        wraps = first + n > n_chunks
        if not wraps.any():
            return owner, space, first, n
        index = np.repeat(np.arange(len(owner)), 1 + wraps)
        is_tail = np.zeros(len(index), dtype=bool)
        is_tail[1:] = index[1:] == index[:-1]
        head = (n_chunks - first)[index]
        wrapped = wraps[index]
        n = np.where(is_tail, n[index] - head, np.where(wrapped, head, n[index]))
        first = np.where(is_tail, 0, first[index])
        return owner[index], space[index], first, n

    def place(self) -> Ints:
        """Lay scratch spaces one after another on every position; return the room they take."""
        top = np.zeros(self.size, dtype=np.int64)
        for number, space in enumerate(self.spaces):
            in_scratch = space.buffer == Buffer.SCRATCH
            self.base[number][in_scratch] = top[in_scratch]
            top += np.where(in_scratch, self.needed[number], 0)
        return top

    def to_pieces(self, runs: _Located, n_rows: int) -> Pieces:
        buffers = np.stack([space.buffer for space in self.spaces])
        return contiguous(
            running_total(np.bincount(runs.owner, minlength=n_rows)),
            buffers[runs.space, runs.position],
            runs.offset + self.base[runs.space, runs.position],
            runs.count,
        )


def _expand_repeats(runs: tuple[Ints, ...]) -> tuple[Ints, ...]:
    owner, space, first, n, stride, repeat = runs
    repeat = np.where(n > 0, repeat, 0)
    if (repeat == 1).all():
        return owner, space, first, n
    index = np.repeat(np.arange(len(owner)), repeat)
    turn = np.arange(len(index)) - running_total(repeat)[:-1][index]
    first = first[index] + turn * stride[index]
    return owner[index], space[index], first, n[index]
