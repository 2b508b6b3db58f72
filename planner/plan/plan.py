"""The plan: a collective as columns of tasks, row i = task i.

A plan is read-only numpy columns. Row order is build order and, rank by rank,
program order; dependencies and extents hang on the rows in CSR form. Objects
(`Task`, a networkx graph) exist only at the edge, for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.phases import Phase
from collplan.specs.request import PlanSpec

NONE: Final = -1
"""Marks a column's "does not apply": no peer, no lane, no tag."""


class Op(IntEnum):
    """Operation of a task."""

    SEND = 0
    RECV = 1
    COPY = 2
    REDUCE = 3
    COMPUTE = 4


class Buffer(IntEnum):
    """Memory of an extent: the caller's, the rank's own, or the node's."""

    SEND = 0
    RECV = 1
    SCRATCH = 2
    SHARED = 3


class Stage(IntEnum):
    """Time when a task may run: inside `start`, any time, or inside `wait`."""

    START = 0
    BACKGROUND = 1
    WAIT = 2


ON_START: Final = 1
"""Dependency flag: wait for the predecessor's start, not its completion."""
INTENT: Final = 2
"""Dependency flag: scheduling intent stated by an algorithm or pass, not a derived hazard."""

NO_PATTERN: Final = np.array([[0, 1, 0, 1]], dtype=np.int64)
"""The pattern table of a plan whose extents are all contiguous."""

COLUMNS: Final[dict[str, npt.DTypeLike]] = {
    "op": np.int8,
    "rank": np.int32,
    "peer": np.int32,
    "tag": np.int32,
    "node": np.int32,
    "lane": np.int16,
    "core": np.int32,
    "phase": np.int16,
    "round": np.int32,
    "stream": np.int32,
    "priority": np.int32,
    "stage": np.int8,
    "duration_ns": np.int64,
}
"""The columns of a plan that have one entry per task, with their types."""


@dataclass(frozen=True, eq=False, slots=True)
class Ragged:
    """Entries of tasks in CSR: task i owns rows ``indptr[i]:indptr[i+1]``, in order."""

    TYPES: ClassVar[dict[str, npt.DTypeLike]]

    indptr: Ints

    def __len__(self) -> int:
        return len(getattr(self, tuple(self.TYPES)[1]))

    def owner(self) -> Ints:
        """Return the task each entry belongs to."""
        return csr.row_numbers(self.indptr)


@dataclass(frozen=True, eq=False, slots=True)
class Extents(Ragged):
    """Intervals of buffers that tasks read or write, in CSR.

    Task i owns rows ``indptr[i]:indptr[i+1]``, in order: its elements are the
    concatenation of those rows. An extent is `count` contiguous elements from
    `offset`, repeated as its row of the plan's pattern table says
    (``stride, repeat, stride, repeat``, inner pair first, in elements), so a
    strided message is one task. Pattern 0 is always "once".

    A REDUCE reads its left operand's extents, then its right operand's, each
    as many elements as it writes.
    """

    TYPES: ClassVar[dict[str, npt.DTypeLike]] = {
        "indptr": np.int32,
        "buffer": np.int8,
        "offset": np.int64,
        "count": np.int64,
        "pattern": np.int32,
    }

    buffer: Ints
    offset: Ints
    count: Ints
    pattern: Ints

    def elements(self, patterns: Ints) -> npt.NDArray[np.int64]:
        """Return the elements of every extent, repeats included."""
        repeats = patterns[:, 1] * patterns[:, 3]
        return np.asarray(self.count * repeats[self.pattern], dtype=np.int64)

    def take(self, rows: Ints) -> Extents:
        """Return the extents of some tasks, in the given order."""
        indptr, entries = csr.take_rows(self.indptr, rows)
        columns = (self.buffer, self.offset, self.count, self.pattern)
        return Extents(indptr, *(column[entries] for column in columns))


@dataclass(frozen=True, eq=False, slots=True)
class Dependencies(Ragged):
    """Dependencies in CSR form: entries ``indptr[i]:indptr[i+1]`` belong to task i.

    `task` is the predecessor's row; `kind` is 0 for a derived hazard on its
    completion, or flags `ON_START` and `INTENT`.
    """

    TYPES: ClassVar[dict[str, npt.DTypeLike]] = {
        "indptr": np.int32,
        "task": np.int32,
        "kind": np.int8,
    }

    task: Ints
    kind: Ints


@dataclass(frozen=True, eq=False, slots=True)
class CrossRankWaits(Ragged):
    """Tasks of other ranks of the node that one rank's program waits for, in CSR.

    Rows ``indptr[i]:indptr[i+1]`` belong to task i of the program; all wait
    for completion. A plan of all ranks has these edges among its `deps`.

    Parameters
    ----------
    indptr : ndarray of int32, shape (n_tasks + 1,)
    rank : ndarray of int32, shape (n_edges,)
        The rank whose task it is.
    task : ndarray of int32, shape (n_edges,)
        Its row in that rank's own program.
    flag : ndarray of int32, shape (n_edges,)
        Its number among that rank's awaited tasks.
    awaited : ndarray of int32, shape (n_awaited,)
        Rows of this program that others of the node wait for, ascending;
        place k is their flag k.
    """

    TYPES: ClassVar[dict[str, npt.DTypeLike]] = {
        "indptr": np.int32,
        "rank": np.int32,
        "task": np.int32,
        "flag": np.int32,
        "awaited": np.int32,
    }

    rank: Ints
    task: Ints
    flag: Ints
    awaited: Ints

    @classmethod
    def none(cls, n_tasks: int) -> CrossRankWaits:
        """Return the waits of a program that waits for no other rank."""
        nothing = np.zeros(0, dtype=np.int32)
        indptr = np.broadcast_to(np.int32(0), (n_tasks + 1,))
        return cls(indptr, nothing, nothing, nothing, nothing)


@dataclass(frozen=True, slots=True)
class Extent:
    """One extent, for people."""

    buffer: Buffer
    offset: int
    count: int
    pattern: tuple[int, int, int, int] = (0, 1, 0, 1)

    def __str__(self) -> str:
        stride0, repeat0, stride1, repeat1 = self.pattern
        text = f"{self.buffer.name.lower()}[{self.offset}:{self.offset + self.count}]"
        if repeat0 > 1:
            text += f"x{repeat0}@{stride0}"
        if repeat1 > 1:
            text += f"x{repeat1}@{stride1}"
        return text


@dataclass(frozen=True, slots=True)
class Task:
    """One task, for people: a view of row `row`."""

    row: int
    op: Op
    rank: int
    peer: int
    tag: int
    node: int
    lane: int
    core: int
    phase: int
    round: int
    stream: int
    priority: int
    stage: Stage
    duration_ns: int
    reads: tuple[Extent, ...]
    writes: tuple[Extent, ...]
    after: tuple[int, ...]

    def __str__(self) -> str:
        """Read like ``#3 rank 0: send to 1 tag 0 recv[0:4] after #1``."""
        words = [f"#{self.row} rank {self.rank}:", self.op.name.lower()]
        if self.op is Op.SEND:
            words.append(f"to {self.peer} tag {self.tag}")
        elif self.op is Op.RECV:
            words.append(f"from {self.peer} tag {self.tag}")
        elif self.op is Op.COMPUTE:
            words.append(f"{self.duration_ns} ns")
        words.append(" + ".join(map(str, self.reads)))
        if self.writes:
            words.append("-> " + " + ".join(map(str, self.writes)))
        if self.after:
            words.append("after " + " ".join(f"#{row}" for row in self.after))
        return " ".join(word for word in words if word)


@dataclass(frozen=True, eq=False)
class Plan:
    """An explicit task graph of one collective for all ranks.

    Parameters
    ----------
    op, rank, peer, tag, node, lane, core, phase, round, stream, priority, stage, duration_ns
        One entry per task, shape ``(n_tasks,)``; types in `COLUMNS`. `peer`,
        `tag`, `stream` and `lane` are -1 where they don't apply; `lane` is
        the network lane of a message between nodes (the destination rank's).
        Messages of one rank, peer and direction that share a `stream` ≥ 0
        start in row order, and dependencies say so.
    reads, writes : Extents
        What each task reads and writes, in elements.
    deps : Dependencies
        What each task waits for.
    patterns : ndarray of int64, shape (n_patterns, 4)
        Repeats of extents; row 0 is ``(0, 1, 0, 1)``.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements of each rank's send, recv and scratch buffer.
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Elements of each node's shared buffer.
    rank_node, rank_lane, rank_core : ndarray, shape (n_ranks,)
        Where every rank lives: node, the lane it receives on, its core in the node.
    itemsize : int
        Bytes per element.
    spec : PlanSpec or None
        What the plan was compiled from; None for an imported schedule.
    only_rank : int or None
        Set where the plan holds one rank's program only.
    phases : tuple of Phase
        The component collectives that tasks belong to.
    foreign : CrossRankWaits, optional
        Of one rank's program: tasks of others it waits for, and its own that others wait for.
    mirrors : ndarray of int64, shape (n_ranks, 2), optional
        Where in its node's shared buffer each rank stages its send and its recv
        buffer, element by element; -1 where it doesn't. Nothing else uses that room.
    folding : Folding, optional
        Set where the plan is folded (see `collplan.planner.plan.fold`): it has the tasks of one
        node's ranks only, and this moves them to the other nodes.
    apart : ndarray of int32, shape (n_tasks,)
        Of a folded plan: how many nodes on the receiver of a message is from its sender, as a
        block of the folding's motion. 0 for messages inside the node and other tasks.
    """

    op: Ints
    rank: Ints
    peer: Ints
    tag: Ints
    node: Ints
    lane: Ints
    core: Ints
    phase: Ints
    round: Ints
    stream: Ints
    priority: Ints
    stage: Ints
    duration_ns: Ints
    reads: Extents
    writes: Extents
    deps: Dependencies
    patterns: Ints
    buffer_sizes: Ints
    shared_sizes: Ints
    rank_node: Ints
    rank_lane: Ints
    rank_core: Ints
    itemsize: int
    spec: PlanSpec | None = None
    only_rank: int | None = None
    phases: tuple[Phase, ...] = (Phase(),)
    foreign: CrossRankWaits = None  # type: ignore[assignment]
    mirrors: Ints = None  # type: ignore[assignment]
    folding: Folding | None = None
    apart: Ints = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        # Most plans share nothing, and a changed plan may have other tasks.
        if self.foreign is None or (not len(self.foreign) and not len(self.foreign.awaited)):
            object.__setattr__(self, "foreign", CrossRankWaits.none(self.n_tasks))
        if self.apart is None or self.folding is None:
            object.__setattr__(self, "apart", np.broadcast_to(np.int32(0), (self.n_tasks,)))
        object.__setattr__(self, "apart", _freeze(self.apart, np.int32))
        if self.mirrors is None:
            object.__setattr__(self, "mirrors", np.full((len(self.rank_node), 2), NONE))
        for name, dtype in COLUMNS.items():
            object.__setattr__(self, name, _freeze(getattr(self, name), dtype))
        for name, dtype in TABLES.items():
            object.__setattr__(self, name, _freeze(getattr(self, name), dtype, constant=False))
        for name in CSR_PARTS:
            object.__setattr__(self, name, _freeze_csr(getattr(self, name)))
        self._check_lengths()

    @property
    def n_tasks(self) -> int:
        """Return the number of tasks."""
        return len(self.op)

    @property
    def n_ranks(self) -> int:
        """Return the number of ranks, idle ones included."""
        return len(self.rank_node)

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.shared_sizes)

    @cached_property
    def elements(self) -> npt.NDArray[np.int64]:
        """Elements each task moves or produces, shape ``(n_tasks,)``."""
        totals = np.zeros(self.n_tasks, dtype=np.int64)
        # A task that writes (RECV, COPY, REDUCE) is measured by what it writes.
        for extents in (self.reads, self.writes):
            own = csr.row_sums(extents.indptr, extents.elements(self.patterns))
            has = np.diff(extents.indptr) > 0
            totals[has] = own[has]
        totals.flags.writeable = False
        return totals

    @cached_property
    def crosses(self) -> npt.NDArray[np.bool_]:
        """Messages whose two ends are on different nodes, shape ``(n_tasks,)``."""
        apart = self.rank_node[self.rank] != self.rank_node[np.maximum(self.peer, 0)]
        return np.asarray((self.op <= Op.RECV) & (apart | (self.apart > 0)))

    @cached_property
    def far_peer(self) -> Ints:
        """Return peers as ranks of all nodes, seen from node 0 of a folded plan."""
        if self.folding is None:
            return self.peer
        motion, is_recv = self.folding.motion, self.op == Op.RECV
        block = np.where(is_recv, motion.block_to(self.apart, 0), self.apart)
        return np.where(self.peer == NONE, NONE, motion.move(self.peer, block))

    @property
    def n_copies(self) -> int:
        """Return how many times the plan is repeated: 1, or the nodes of a folded plan."""
        return 1 if self.folding is None else self.folding.motion.n_blocks

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory the plan occupies."""
        arrays = [getattr(self, name) for name in (*COLUMNS, *TABLES, "apart")]
        for name in CSR_PARTS:
            part = getattr(self, name)
            arrays += [getattr(part, column) for column in part.TYPES]
        return sum(array.itemsize if array.strides == (0,) else array.nbytes for array in arrays)

    def _check_lengths(self) -> None:
        """Raise `PlanFormatError` where columns have other lengths than they must; O(1)."""
        for name in (*COLUMNS, "apart"):
            if len(getattr(self, name)) != self.n_tasks:
                length = len(getattr(self, name))
                raise PlanFormatError(f"column {name} has {length} rows, op has {self.n_tasks}")
        for name in CSR_PARTS:
            part = getattr(self, name)
            indptr = part.indptr
            if len(indptr) != self.n_tasks + 1 or indptr[0] != 0 or indptr[-1] != len(part):
                raise PlanFormatError(
                    f"{name}.indptr must have n_tasks + 1 = {self.n_tasks + 1} entries from 0 to "
                    f"{len(part)}, not {len(indptr)} from {indptr[:1]} to {indptr[-1:]}"
                )
        if len(self.patterns) == 0 or not np.array_equal(self.patterns[:1], NO_PATTERN):
            raise PlanFormatError("patterns must begin with the row (0, 1, 0, 1)")

    def task(self, row: int) -> Task:
        """Return task `row` as an object; of a folded plan, as it is on node 0 of all nodes.

        Raises
        ------
        IndexError
            If the plan has no such row.
        """
        if not 0 <= row < self.n_tasks:
            raise IndexError(f"task {row}: the plan has rows 0 to {self.n_tasks - 1}")
        values = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        values["peer"] = int(self.far_peer[row])
        values["op"] = Op(values["op"])
        values["stage"] = Stage(values["stage"])
        after = self.deps.task[self.deps.indptr[row] : self.deps.indptr[row + 1]]
        return Task(
            row=row,
            reads=self._extents(self.reads, row),
            writes=self._extents(self.writes, row),
            after=tuple(int(before) for before in after),
            **values,  # type: ignore[arg-type]
        )

    def tasks(self) -> Iterator[Task]:
        """Iterate over all tasks as objects, in row order."""
        return (self.task(row) for row in range(self.n_tasks))

    def _extents(self, extents: Extents, row: int) -> tuple[Extent, ...]:
        return tuple(
            Extent(
                Buffer(int(extents.buffer[i])),
                int(extents.offset[i]),
                int(extents.count[i]),
                tuple(int(x) for x in self.patterns[extents.pattern[i]]),  # type: ignore[arg-type]
            )
            for i in range(extents.indptr[row], extents.indptr[row + 1])
        )

    def replace(self, **changes: Any) -> Plan:
        """Return a plan with some columns exchanged; the plan itself stays as it is."""
        return replace(self, **changes)


TABLES: Final[dict[str, npt.DTypeLike]] = {
    "patterns": np.int64,
    "buffer_sizes": np.int64,
    "shared_sizes": np.int64,
    "rank_node": np.int32,
    "rank_lane": np.int16,
    "rank_core": np.int32,
    "mirrors": np.int64,
}
"""The columns of a plan that do not go by tasks, with their types."""

CSR_PARTS: Final[dict[str, Any]] = {
    "reads": Extents,
    "writes": Extents,
    "deps": Dependencies,
    "foreign": CrossRankWaits,
}
"""The ragged parts of a plan, rows of which belong to tasks."""


def _freeze(column: npt.ArrayLike, dtype: npt.DTypeLike, constant: bool = True) -> Ints:
    """Return a read-only array; a column whose rows are all equal is stored once."""
    array = np.asarray(column)
    if array.dtype != dtype:
        limits = np.iinfo(np.dtype(dtype))
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise PlanFormatError(f"values up to {array.max()} do not fit {np.dtype(dtype).name}")
        array = array.astype(dtype)
    if constant and len(array) > 1 and array.strides != (0,) and (array == array[0]).all():
        array = np.broadcast_to(array[:1].copy(), array.shape)
    view = array.view()
    view.flags.writeable = False
    return view


def _freeze_csr(part: Any) -> Any:
    return type(part)(
        **{
            name: _freeze(getattr(part, name), dtype, constant=name in ("pattern", "kind"))
            for name, dtype in part.TYPES.items()
        }
    )
