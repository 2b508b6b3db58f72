"""The language in which algorithms are written: rounds of messages between positions.

An algorithm is a generator over `Round`. It sees a `Group` of ranks numbered
0 to size-1 and chunked spaces; it never sees elements, buffers or tasks::

    def ring(group):                     # allgather: chunk i starts at position i
        me = group.positions
        for t in range(group.size - 1):  # 0 -> 1 -> 2 -> 3 -> 0
            chunk = (me - t) % group.size
            yield Round(Message(me, (me + 1) % group.size,
                                at(group.output, chunk), at(group.output, chunk)))

In a round, all messages are read before any is written. Local steps follow in
the given order. If an exchange would overwrite what still has to be sent, the
builder receives the message into scratch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.chunks import (
    Packed,
    Repeated,
    Rotated,
    Scratch,
    Slots,
    Unlike,
)
from collplan.planner.algorithms.relative import Relative
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.errors import AlgorithmError
from collplan.planner.packing.schedule import GroupSchedule
from collplan.specs.errors import show_value

Index = int | npt.NDArray[np.integer[Any]]

MOST_PAIRS: Final = 1 << 18
"""Most pairs of positions that `Group.pairs` yields together, unless one distance has more."""

INPUT = 0
"""The input: the elements that each position contributes."""
OUTPUT = 1
"""The output: the result of each position. If a position has no result, it is free to use."""


_CHANGEABLE: Final = (np.ndarray, Relative)


def _own(value: Any) -> Any:
    """Return a copy of an array, as the algorithm may change it later; other values as they are."""
    if type(value) is int:
        return value
    return value.copy() if isinstance(value, _CHANGEABLE) else value


@dataclass(slots=True)
class Chunks:
    """Runs of chunks in a space, one run per message: see `at`."""

    space: Index
    first: Index
    n: Index
    stride: int
    repeat: Index


def at(space: Index, first: Index, n: Index = 1, *, stride: int = 0, repeat: Index = 1) -> Chunks:
    """Name `n` chunks from `first` in `space` for every message, wrapping around its end.

    With `repeat`, there are that many such runs, `stride` chunks apart, none of which may wrap.
    Every argument but `stride` may be an array with an entry per message.
    """
    return Chunks(_own(space), _own(first), _own(n), stride, _own(repeat))


Where = Chunks | tuple[Chunks, ...]
"""Chunks, or several runs one after another."""


@dataclass(slots=True)
class Message:
    """Messages from `source` to `dest`, which are positions or arrays of the same length.

    `read` is evaluated at the source, `write` and `combine` at the
    destination. With `combine`, ``combine op incoming`` is written, or
    ``incoming op combine`` if `incoming_left` is True; if it is None, the
    operands are in the order of the two positions. An `ordered` message has no
    data: it is sent after its source has received all messages of earlier
    rounds. Messages from one position that have the same number of a `queue` are
    sent one after another, so that they do not share a link; -1 is no queue.
    """

    source: Index
    dest: Index
    read: Where = ()
    write: Where = ()
    combine: Where | None = None
    incoming_left: bool | None = False
    ordered: bool = False
    queue: Index = -1

    def __post_init__(self) -> None:
        self.source = _own(self.source)
        self.dest = _own(self.dest)
        self.queue = _own(self.queue)


@dataclass(slots=True)
class Copy:
    """Copies at positions `rank`, after the messages of the round."""

    rank: Index
    read: Where
    write: Where

    def __post_init__(self) -> None:
        self.rank = _own(self.rank)


@dataclass(slots=True)
class Reduce:
    """Reductions ``left op right`` at positions `rank`, after the messages of the round."""

    rank: Index
    left: Where
    right: Where
    write: Where

    def __post_init__(self) -> None:
        self.rank = _own(self.rank)


@dataclass(slots=True)
class Call:
    """A call of the MPI library's own collective, by all positions `rank` of the group together.

    The root of a scatter writes nothing, as its own block stays in place.
    """

    rank: Index
    read: Where
    write: Where

    def __post_init__(self) -> None:
        self.rank = _own(self.rank)


Step = Message | Copy | Reduce | Call


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are sent together, then local steps in order."""

    steps: Iterable[Step]

    def __init__(self, *steps: Step) -> None:
        object.__setattr__(self, "steps", steps)

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Round:
        """Return a round whose steps are made one by one when they are lowered.

        Therefore p² messages may be one round, although they do not fit into memory together.
        """
        lazy = cls()
        object.__setattr__(lazy, "steps", steps)
        return lazy


@dataclass
class Group:
    """The view that an algorithm has of its group.

    Parameters
    ----------
    size : int
        Number of positions.
    root : int
        Position of the root; 0 if the collective has none.
    commutative : bool
        Whether operands may be exchanged.
    chunk_counts : ndarray of int64, shape (n_groups, n_chunks)
        Number of elements of every chunk of all groups that run at once, for
        layouts of scratch. Decisions use `counts`.
    options : mapping
        The options of the algorithm, with defaults.
    pair_counts : ndarray of int64, shape (n_groups, size, size), optional
        Number of elements of the block of every sender for every receiver, if
        these differ.
    edges : (ndarray, ndarray), optional
        Sources and destinations of the edges of a neighborhood collective. Its chunks are
        numbered by edge, at both ends.
    motion : Motion, optional
        Instead of all positions, show the algorithm those of one block as relative numbers.
    kept : ndarray of bool, shape (size,), optional
        Positions of which messages and steps are needed. An algorithm may leave out all others;
        see `needed` and `pairs`.
    by_counts : bool
        Whether the algorithm may decide by `counts`.
    schedule : GroupSchedule, optional
        Messages of the group that are packed into the links of a topology, for algorithms that are
        registered with ``is_packed=True``.
    """

    size: int
    root: int
    commutative: bool
    chunk_counts: Ints
    options: Mapping[str, Any] = field(default_factory=dict)
    pair_counts: Ints | None = None
    edges: tuple[Ints, Ints] | None = None
    motion: Motion | None = None
    kept: Bools | None = None
    by_counts: bool = True
    schedule: GroupSchedule | None = None
    scratch: list[Scratch] = field(default_factory=list)

    input: int = INPUT
    output: int = OUTPUT

    @property
    def positions(self) -> Any:
        """Return the positions 0 to size-1, as an array or as `Relative` numbers."""
        return np.arange(self.size) if self.motion is None else Relative.positions(self.motion)

    def needed(self, values: Any, one: Any, other: Any) -> Any:
        """Return the values whose positions `one` or `other` are kept.

        Return all values if it is not known which positions are kept.
        """
        if self.kept is None or not self.kept.any():
            return values
        return values[self.kept[one] | self.kept[other]]

    def pairs(self, distances: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield positions and distances, of which the position or the one so far after it is kept.

        They ascend by distance and then by position. As there may be p² of them, they are yielded
        in several parts.

        Parameters
        ----------
        distances : ndarray of int64
            Distances, ascending.
        """
        kept, size = self._kept_positions, self.size
        n_each = max(1, MOST_PAIRS // min(size, 2 * len(kept)))
        for begin in range(0, len(distances), n_each):
            far = distances[begin : begin + n_each]
            if len(kept) == size:
                yield np.tile(kept, len(far)), np.repeat(far, size)
                continue
            place = np.arange(len(far))[:, None] * size
            ends = np.concatenate((place + kept, place + (kept - far[:, None]) % size), axis=1)
            index, me = np.divmod(csr.sorted_unique(ends.ravel()), size)
            yield me, far[index]

    @cached_property
    def _kept_positions(self) -> Ints:
        """Return the positions that are kept, or all if these are not known."""
        if self.kept is None or not self.kept.any():
            return np.arange(self.size)
        return np.flatnonzero(self.kept)

    @property
    def n_chunks(self) -> int:
        """Return the number of chunks of the collective's layout."""
        return int(self.chunk_counts.shape[1])

    @property
    def counts(self) -> Ints:
        """Return the number of elements of every chunk, or of every pair of ranks.

        Raises
        ------
        AlgorithmError
            If the algorithm is not registered with ``by_counts=True``: its steps are then made
            once for groups and collectives of different counts.
        """
        if not self.by_counts:
            raise AlgorithmError(
                "algorithms: group.counts is read by an algorithm that is registered without "
                "by_counts=True; add it to the arguments of @algorithm"
            )
        return np.asarray((self.chunk_counts if self.pair_counts is None else self.pair_counts)[0])

    @property
    def others(self) -> Ints:
        """Return every position but the root, nearest after the root first."""
        return (self.root + np.arange(1, self.size)) % self.size

    def whole(self, space: Index) -> Chunks:
        """Name the whole vector in `space`."""
        return at(space, 0, self.n_chunks)

    def from_root(self, relative: Index) -> Index:
        """Return the positions that lie `relative` after the root."""
        return (self.root + relative) % self.size

    def down(self, relative: Index, to: Index, carried: Chunks | None = None) -> Message:
        """Return messages of the output between positions, given as distances after the root.

        They carry the whole vector unless `carried` names other chunks.
        """
        vector = self.whole(self.output) if carried is None else carried
        return Message(self.from_root(relative), self.from_root(to), vector, vector)

    def add_scratch(self, layout: Scratch) -> int:
        """Declare a scratch space and return it; only the part that is used is allocated."""
        self.scratch.append(layout)
        return OUTPUT + len(self.scratch)

    def rotated_scratch(self) -> int:
        """Declare scratch whose slot s at position r holds chunk r + s."""
        return self.add_scratch(Rotated(self.chunk_counts, self.size))

    def packed_scratch(self) -> int:
        """Declare scratch in which all chunks lie one after another."""
        return self.add_scratch(Packed(self.chunk_counts, self.size))

    def repeated_scratch(self, times: int) -> int:
        """Declare scratch for all chunks, `times` times over: index ``turn * n_chunks + chunk``."""
        times = _from_zero("times", times)
        return self.add_scratch(Repeated(self.chunk_counts, self.size, times))

    def unlike_scratch(self, counts: Ints) -> int:
        """Declare scratch with chunks one after another; `counts` has a row per position, or 1."""
        return self.add_scratch(Unlike(counts, self.size))

    def scratch_slots(self, n_slots: int) -> int:
        """Declare `n_slots` slots for any chunk: index ``slot * n_chunks + chunk``."""
        n_slots = _from_zero("n_slots", n_slots)
        return self.add_scratch(Slots(self.chunk_counts, self.size, n_slots))


def _from_zero(name: str, value: Any) -> int:
    """Return a whole number of at least 0; raise `AlgorithmError` for any other value."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < 0:
        raise AlgorithmError(f"{name} is {show_value(value)}; give a whole number of at least 0")
    return int(value)


Rounds = Iterator[Round]


def option_int(group: Group, name: str, low: int) -> int:
    """Return an integer option, at least `low`.

    Raises
    ------
    AlgorithmError
        If it is not.
    """
    return require_at_least(group.options[name], name, low)


def require_at_least(value: Any, name: str, low: int) -> int:
    """Return the value of an option if it is an integer of at least `low`.

    Raises
    ------
    AlgorithmError
        If it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise AlgorithmError(
            f"algorithms.{name}: {show_value(value)} is not an integer of at least {low}"
        )
    return value


def option_flag(group: Group, name: str) -> bool:
    """Return an option that is true or false.

    Raises
    ------
    AlgorithmError
        If it is neither.
    """
    value = group.options[name]
    if not isinstance(value, bool):
        raise AlgorithmError(f"algorithms.{name}: {show_value(value)} is neither true nor false")
    return value
