"""The plan of a collective: columns of tasks, in which row i is task i.

A plan consists of read-only numpy columns. Rows have the order in which they were built, which for
each rank is program order. Dependencies and extents belong to rows in CSR form. Objects such as
`Task` or a networkx graph are only made for display and for users.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.origin import KnownSpec, Origin
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.ragged import (
    CrossRankWaits,
    Dependencies,
    Extents,
    Int8s,
    Int16s,
    Int32s,
    Int64s,
    Stored,
    blocks_of,
)
from collplan.planner.plan.views import view
from collplan.specs.errors import no_attribute

if TYPE_CHECKING:
    from collplan.specs.machines.machine import Machine
    from collplan.specs.programs.program import ProgramSpec
    from collplan.specs.request import PlanSpec

_FUNCTIONS: Final = ("verify", "draw", "simulate", "save_plan", "bind", "run_local", "compare")
"""Functions of `collplan` that take a plan, for hints."""
NONE: Final = -1
"""Value of columns that do not apply to a task: no peer, no lane, no tag."""


class Op(IntEnum):
    """Operation of a task."""

    SEND = 0
    RECV = 1
    COPY = 2
    REDUCE = 3
    COMPUTE = 4
    CALL = 5
    """A collective of the MPI library, which all ranks of a group call."""


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


NO_PATTERN: Final = np.array([[0, 1, 0, 1]], dtype=np.int64)
"""The pattern table of a plan whose extents are all contiguous."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One extent as an object, for display."""

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

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the first element of every contiguous block, and the one past the last."""
        return blocks_of(self.offset, self.count, self.pattern)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a plan as an object: a copy of row `row`, for display."""

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
        """Return a text such as ``#3 rank 0: send to 1 tag 0 recv[0:4] after #1``."""
        words = [f"#{self.row} rank {self.rank}:", self.op.name.lower()]
        if self.op is Op.SEND:
            words.append(f"to {self.peer} tag {self.tag}")
        elif self.op is Op.RECV:
            words.append(f"from {self.peer} tag {self.tag}")
        elif self.op is Op.CALL:
            words.append(f"in the rank's group {self.tag}")
            if self.peer != NONE:
                words.append(f"root {self.peer}")
        elif self.op is Op.COMPUTE:
            words.append(f"{self.duration_ns} ns")
        words.append(" + ".join(map(str, self.reads)))
        if self.writes:
            words.append("-> " + " + ".join(map(str, self.writes)))
        if self.after:
            words.append("after " + " ".join(f"#{row}" for row in self.after))
        return " ".join(word for word in words if word)


@dataclass(frozen=True, eq=False)
class Columns(Stored):
    """The columns of a plan that have one entry per task."""

    op: Int8s
    rank: Int32s
    peer: Int32s
    tag: Int32s
    lane: Int16s
    core: Int32s
    phase: Int16s
    round: Int32s
    stream: Int32s
    priority: Int32s
    stage: Int8s
    duration_ns: Int64s


@dataclass(frozen=True, eq=False)
class Plan(Columns):
    """An explicit task graph of one collective for all ranks.

    The plan takes over the arrays that it is made of, and makes them read-only.

    Parameters
    ----------
    op, rank, peer, tag, lane, core, phase, round, stream, priority, stage, duration_ns
        One entry per task, shape ``(n_tasks,)``; types in `COLUMNS`. `peer`,
        `tag`, `stream` and `lane` are -1 where they do not apply. `lane` is the network lane of
        a message between nodes, which is the lane of the destination rank. A call has its root,
        if any, as `peer`, and as `tag` the number that its rank has for the group. Its phase
        contains the ranks that take part (see `Phase.call_tags`). Of the tasks of a rank that are
        ready, the one with the least `priority` starts first, and of equal ones the first row.
        Messages with the same rank, peer, direction and `stream` ≥ 0 start in row order, which
        dependencies enforce.
    reads, writes : Extents
        Memory that each task reads and writes, in elements.
    deps : Dependencies
        Tasks that each task waits for.
    patterns : ndarray of int64, shape (n_patterns, 4)
        Repeats of extents; row 0 is ``(0, 1, 0, 1)``.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements of each rank's send, recv and scratch buffer.
    shared_sizes : ndarray of int64, shape (n_nodes,)
        Elements of each node's shared buffer.
    rank_node, rank_lane, rank_core : ndarray, shape (n_ranks,)
        Node of every rank, the lane on which it receives, and its core in the node.
    itemsize : int
        Bytes per element.
    origin : Origin or None
        The spec that the plan was compiled from, see `spec`; None for an imported schedule.
    only_rank : int or None
        Set if the plan contains the program of one rank only.
    phases : tuple of Phase
        The component collectives that tasks belong to.
    foreign : CrossRankWaits, optional
        In the program of one rank: the tasks of other ranks that it waits for, and its own tasks
        that other ranks wait for.
    mirrors : ndarray of int64, shape (n_ranks, 2), optional
        Offset in the node's shared buffer at which each rank keeps a copy of its send and its
        recv buffer; -1 for none. This space has no other use.
    folding : Folding, optional
        Set if the plan is folded (see `collplan.planner.rewrite.fold`). The plan then has the tasks
        of the ranks of one node, and `folding` maps them to the other nodes.
    apart : ndarray of int32, shape (n_tasks,)
        In a folded plan: the distance in nodes from the sender of a message to its receiver, as a
        block of the folding's motion. 0 for messages inside the node and for other tasks.
    """

    reads: Extents
    writes: Extents
    deps: Dependencies
    patterns: Int64s
    buffer_sizes: Int64s
    shared_sizes: Int64s
    rank_node: Int32s
    rank_lane: Int16s
    rank_core: Int32s
    itemsize: int
    origin: Origin | None = None
    only_rank: int | None = None
    phases: tuple[Phase, ...] = (Phase(),)
    foreign: CrossRankWaits = None  # type: ignore[assignment]
    mirrors: Int64s = None  # type: ignore[assignment]
    folding: Folding | None = None
    apart: Int32s = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        stored = vars(self)
        # Most plans share no memory, and a changed plan may have other tasks.
        if self.foreign is None or (not len(self.foreign) and not len(self.foreign.awaited)):
            stored["foreign"] = CrossRankWaits.none(self.n_tasks)
        if self.apart is None or self.folding is None:
            stored["apart"] = csr.repeated(np.zeros(1, dtype=np.int32), self.n_tasks)
        if self.mirrors is None:
            stored["mirrors"] = np.full((len(self.rank_node), 2), NONE)
        for name, dtype in self.TYPES.items():
            stored[name] = _freeze(stored[name], dtype, constant=name not in TABLES)
        for name in CSR_PARTS:
            part = stored[name]
            columns = (
                _freeze(getattr(part, column), dtype, constant=column in ("pattern", "kind"))
                for column, dtype in part.TYPES.items()
            )
            stored[name] = type(part)(*columns)
        self._check_lengths()

    def __repr__(self) -> str:
        """Return a summary of the size of the plan."""
        of_rank = "" if self.only_rank is None else f" of rank {self.only_rank}"
        of_node = "" if self.folding is None else " of one node, folded"
        n_ranks, n_nodes = (n * self.n_copies for n in (self.n_ranks, self.n_nodes))
        kept = f"{self.n_tasks:,} tasks{of_rank}{of_node}"
        return f"<Plan: {kept}; ranks {n_ranks:,}, nodes {n_nodes:,}>"

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
    def node(self) -> Ints:
        """Node of every task's rank, shape ``(n_tasks,)``."""
        nodes: Ints = self.rank_node[self.rank]
        nodes.flags.writeable = False
        return nodes

    @cached_property
    def spec(self) -> PlanSpec | None:
        """The spec that the plan was compiled from; None for a program or an imported schedule.

        Raises
        ------
        PlanFileError, PlanFormatError
            If the plan was read from a file, and what the file says is no spec, or not that of the
            plan's columns.
        """
        return None if self.origin is None else self.origin.spec_of(self)

    @cached_property
    def program(self) -> ProgramSpec | None:
        """The program that the plan was compiled from; None for all other plans."""
        return None if self.origin is None else self.origin.program_of(self)

    @cached_property
    def machine(self) -> Machine | None:
        """The machine of the spec or program; None for an imported schedule."""
        return None if self.origin is None else self.origin.machine_of(self)

    @cached_property
    def sizes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Elements each task reads, and those it writes, both of shape ``(n_tasks,)``."""
        sides = ((side.indptr, side.elements(self.patterns)) for side in (self.reads, self.writes))
        read, written = (csr.row_sums(*side) for side in sides)
        return read, written

    @cached_property
    def elements(self) -> npt.NDArray[np.int64]:
        """Elements each task moves or produces, shape ``(n_tasks,)``."""
        read, written = self.sizes
        # The elements of a task that writes (RECV, COPY, REDUCE) are those that it writes.
        totals = np.where(csr.lengths_of(self.writes.indptr) > 0, written, read)
        totals.flags.writeable = False
        return totals

    @cached_property
    def crosses(self) -> npt.NDArray[np.bool_]:
        """Messages whose two ends are on different nodes, shape ``(n_tasks,)``."""
        apart = self.rank_node[self.rank] != self.rank_node[np.maximum(self.peer, 0)]
        return np.asarray((self.op <= Op.RECV) & (apart | (self.apart > 0)))

    @cached_property
    def far_peer(self) -> Ints:
        """Return peers as ranks of all nodes, relative to node 0 of a folded plan."""
        if self.folding is None:
            return self.peer
        motion, is_recv = self.folding.motion, self.op == Op.RECV
        block = np.where(is_recv, motion.block_to(self.apart, 0), self.apart)
        return np.where(self.peer == NONE, NONE, motion.move(self.peer, block))

    @property
    def n_copies(self) -> int:
        """Return the number of copies of the plan: 1, or the number of nodes if it is folded."""
        return 1 if self.folding is None else self.folding.motion.n_blocks

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory the plan occupies."""
        parts = [self, *(getattr(self, name) for name in CSR_PARTS)]
        arrays = [getattr(part, name) for part in parts for name in part.TYPES]
        return sum(array.itemsize if array.strides == (0,) else array.nbytes for array in arrays)

    def _check_lengths(self) -> None:
        """Raise `PlanFormatError` where columns have wrong lengths; O(1)."""
        n = self.n_tasks
        for name in (*COLUMNS, "apart"):
            length = len(getattr(self, name))
            if length != n:
                raise PlanFormatError(f"column {name} has {length} rows, op has {n}")
        for name in CSR_PARTS:
            part = getattr(self, name)
            indptr = part.indptr
            if len(indptr) != n + 1 or indptr[0] != 0 or indptr[-1] != len(part):
                raise PlanFormatError(
                    f"{name}.indptr must have n_tasks + 1 = {n + 1} entries from 0 to "
                    f"{len(part)}, not {len(indptr)} from {indptr[:1]} to {indptr[-1:]}"
                )
            for column in part.TYPES:
                length = len(getattr(part, column))
                # In waits for other ranks, `awaited` has a length of its own.
                if column not in ("indptr", "awaited") and length != len(part):
                    raise PlanFormatError(
                        f"{name}.{column} has {length} entries, the other columns {len(part)}"
                    )
        if self.patterns[:1].tolist() != NO_PATTERN.tolist():
            raise PlanFormatError("patterns must begin with the row (0, 1, 0, 1)")

    def task(self, row: int) -> Task:
        """Return task `row` as an object. In a folded plan, it is the task of node 0.

        Raises
        ------
        IndexError
            If the plan has no such row.
        """
        row = operator.index(row)
        if not 0 <= row < self.n_tasks:
            raise IndexError(f"task {row}: the plan has rows 0 to {self.n_tasks - 1}")
        values = {name: int(getattr(self, name)[row]) for name in (*COLUMNS, "node")}
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

    def round_of(self, row: int) -> str:
        """Return words for the round of a task, as ``in round 2 of bcast/chain``."""
        phase = int(self.phase[row])
        name = self.phases[phase].name if 0 <= phase < len(self.phases) else ""
        return f"in round {self.round[row] + 1}{f' of {name}' if name else ''}"

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

    def _repr_svg_(self) -> str | None:
        """Return the graph for notebooks. In large plans, a box represents several tasks."""
        drawn: str | None = view("plan_svg", self)
        return drawn

    if not TYPE_CHECKING:  # or type checkers would accept any attribute

        def __getattr__(self, name):
            """Raise an error that names what is meant."""
            raise no_attribute(self, name, functions=_FUNCTIONS)

    def timeline(self, network: Any = None) -> Any:
        """Return the simulated timeline of the plan; see `collplan.simulate`."""
        return _front_door().simulate(self, network)

    def to_dask(self, sendbufs: Sequence[Any], recvbufs: Sequence[Any], **options: Any) -> Any:
        """Return a dask graph that computes the collective; see `collplan.to_dask`."""
        return _front_door().to_dask(self, sendbufs, recvbufs, **options)

    def replace(self, **changes: Any) -> Plan:
        """Return a plan with some columns or the spec replaced. The plan itself does not change.

        Arrays are copied, unlike those of a new `Plan`.
        """
        changes = {
            name: value.copy() if isinstance(value, np.ndarray) and value.flags.writeable else value
            for name, value in changes.items()
        }
        if "spec" in changes:
            spec = changes.pop("spec")
            changes["origin"] = None if spec is None else KnownSpec(spec)
        return replace(self, **changes)


COLUMNS: Final = Columns.TYPES
"""The columns of a plan that have one entry per task, with their types."""
TABLES: Final = {
    name: dtype for name, dtype in Plan.TYPES.items() if name not in (*COLUMNS, "apart")
}
"""The columns of a plan that have no entry per task, with their types."""

CSR_PARTS: Final[dict[str, Any]] = {
    "reads": Extents,
    "writes": Extents,
    "deps": Dependencies,
    "foreign": CrossRankWaits,
}
"""The ragged parts of a plan, rows of which belong to tasks."""


def _front_door() -> Any:
    """Return the package `collplan`, whose functions are methods of plans, too."""
    return import_module(__name__.partition(".")[0])


def _freeze(column: npt.ArrayLike, dtype: np.dtype[Any], constant: bool = True) -> Ints:
    """Return a read-only array. Columns of equal values store one entry."""
    array = np.asarray(column)
    if array.dtype != dtype:
        limits = np.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise PlanFormatError(f"values up to {array.max()} do not fit {dtype.name}")
        array = array.astype(dtype)
    is_repeated = array.ndim == 1 and len(array) > 1 and array.strides == (0,)
    may_be_constant = constant and array.ndim == 1 and len(array) > 1 and not is_repeated
    # The ends of most columns show that they are not constant.
    if may_be_constant and array[0] == array[-1] and (array == array[0]).all():
        is_repeated = True
    if is_repeated:
        array = csr.repeated(array[:1].copy(), len(array))
    elif _is_view_of_changeable(array):
        array = array.copy()
    array.flags.writeable = False
    return array


def _is_view_of_changeable(array: Ints) -> bool:
    """Return whether an array has its entries in memory that others may change."""
    while array.base is not None:
        if not isinstance(array.base, np.ndarray) or array.base.flags.writeable:
            return True
        array = array.base
    return False
