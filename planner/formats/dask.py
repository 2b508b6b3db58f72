"""Export of a plan as a dask graph, whose tasks compute the collective on arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np

from collplan.planner.arrays import Array
from collplan.planner.collective.buffers import require_buffers
from collplan.planner.collective.operations import (
    BUILTIN_OPERATIONS,
    ReductionOperation,
    get_operation,
)
from collplan.planner.errors import PlanError
from collplan.planner.memory import require_memory
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.planner.rewrite.fold import require_all_ranks
from collplan.planner.verify.agreed_calls import without_calls
from collplan.planner.verify.order import Execution
from collplan.specs import numpy_dtype
from collplan.specs.syntax.calling import explains_calls

Buffers = Sequence[Array | None]
Key = tuple[str, int]
"""Key of the graph: a word with the token of the graph, and a row of the plan or a rank."""

BYTES_PER_ROW: Final = 4000
"""Peak memory of the construction of a graph, in bytes per task."""


class TaskGraph(dict[Hashable, Any]):
    """A dask graph that is also a dask collection.

    ``dask.get`` and ``Client.get`` use it as a plain dict. `dask.compute` returns a list of the
    receive buffers of all ranks, and `dask.visualize` draws the graph.

    Parameters
    ----------
    tasks : dict
        Tasks of the graph by key.
    results : list of tuple
        Keys of the receive buffers after the collective, in the order of ranks.
    """

    __dask_optimize__ = None  # dask only removes tasks that no result needs

    def __init__(self, tasks: dict[Hashable, Any], results: list[Key]) -> None:
        super().__init__(tasks)
        self.results = results

    def __reduce__(self) -> tuple[Any, ...]:
        """Return constructor and arguments for copies, as those of a dict omit the results."""
        return TaskGraph, (dict(self), self.results)

    def __dask_graph__(self) -> dict[Hashable, Any]:
        """Return the graph."""
        return dict(self)

    def __dask_keys__(self) -> list[Key]:
        """Return the keys of the results, in the order of ranks."""
        return list(self.results)

    @staticmethod
    def __dask_scheduler__(graph: Any, keys: Any, **options: Any) -> Any:
        """Compute keys by threads, as dask does for numpy arrays."""
        from dask.threaded import get

        return get(graph, keys, **options)

    def __dask_postcompute__(self) -> tuple[Callable[..., list[Array]], tuple[()]]:
        """Return the function that turns computed results into a list."""
        return list, ()

    def __dask_postpersist__(self) -> tuple[Callable[..., TaskGraph], tuple[list[Key]]]:
        """Return the function that turns computed results into a collection."""
        return TaskGraph, (self.results,)


@explains_calls("to_dask")
def to_dask(
    plan: Plan,
    sendbufs: Buffers,
    recvbufs: Buffers,
    *,
    operation: ReductionOperation | None = None,
) -> TaskGraph:
    """Return a dask graph that computes the collective.

    A task of the graph returns the elements that the task of the plan moves or computes, and
    changes no buffer. Therefore the graph can be computed repeatedly, by any scheduler, in one or
    several processes. A task depends on the tasks whose elements it reads, and on all tasks for
    whose completion it waits in the plan.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    sendbufs, recvbufs : sequence of ndarray or None, shape (n_ranks,)
        Buffers of every rank, at least as long as the plan requires; None for buffers without
        elements. Receive buffers are inputs of bcast and of in-place collectives.
    operation : ReductionOperation, optional
        Reduction operation; by default that of the spec.

    Returns
    -------
    TaskGraph
        A dict from keys to tasks. The keys in its attribute ``results`` stand for the receive
        buffers after the collective, as new arrays. The other keys stand for the buffers before
        the collective, and for the tasks of the plan, such as ``("reduce-TOKEN", 12)`` for row
        12. Every graph has its own token, so that a cluster can compute several graphs at once.

    Raises
    ------
    PlanError
        If the plan does not have the tasks of all ranks, a buffer is too short, messages do
        not match, or a reduction has no operation.
    DeadlockError
        If the plan has tasks that can never start.
    MemoryLimitError
        If the graph takes more memory than is available.
    """
    require_all_ranks(plan, "computed by dask")
    require_buffers(plan, sendbufs, recvbufs)
    plan = without_calls(plan)
    require_memory(plan.n_tasks * BYTES_PER_ROW, "the dask graph", "make", "use fewer ranks")
    return _Tracing(plan, operation).graph(sendbufs, recvbufs)


class Part(NamedTuple):
    """Elements ``low:high`` of the value with a key; zeros if the key is None."""

    key: Key | None
    low: int
    high: int


class _BufferParts:
    """Contents of a buffer: parts of values, in the order of their offsets."""

    def __init__(self, size: int, key: Key | None) -> None:
        self.starts = [0, size]
        self.parts: list[Part | None] = [Part(key, 0, size), None]

    def _cut(self, at: int) -> int:
        """Split the part at an offset, and return the index of the part that begins there."""
        i = bisect_right(self.starts, at) - 1
        if self.starts[i] == at:
            # If empty parts have the same offset, this is the last of them, which is the end.
            return i
        part, done = self.parts[i], at - self.starts[i]
        assert part is not None, "places lie inside the buffer"
        self.starts.insert(i + 1, at)
        self.parts[i] = part._replace(high=part.low + done)
        self.parts.insert(i + 1, part._replace(low=part.low + done))
        return i + 1

    def read(self, low: int, high: int) -> list[Part]:
        """Return the parts of the offsets ``low:high``."""
        if low == high:
            return []
        first = self._cut(low)
        return [part for part in self.parts[first : self._cut(high)] if part is not None]

    def write(self, low: int, high: int, key: Key, start: int) -> None:
        """Store elements of a value, from its element `start` on, at the offsets ``low:high``."""
        if low == high:
            return
        first = self._cut(low)
        last = self._cut(high)
        self.starts[first:last] = [low]
        self.parts[first:last] = [Part(key, start, start + high - low)]


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """A task that joins parts of the values of other tasks.

    Parameters
    ----------
    parts : tuple of (int, int, int)
        Number of the argument (-1 for zeros), first element, and the one after the last.
    dtype : dtype
        Type of the elements.
    """

    parts: tuple[tuple[int, int, int], ...]
    dtype: np.dtype[Any]

    def __call__(self, *values: Any) -> Array:
        """Return the elements; additional arguments only state dependencies."""
        found = [
            np.zeros(high - low, self.dtype) if which < 0 else values[which][low:high]
            for which, low, high in self.parts
        ]
        return np.concatenate(found) if found else np.zeros(0, self.dtype)


@dataclass(frozen=True, slots=True)
class Combine:
    """A task that combines two operands, which are joined from the values of other tasks."""

    operands: JoinedParts
    operation: ReductionOperation | str

    def __call__(self, *values: Any) -> Array:
        """Return ``left op right``."""
        left, right = np.split(self.operands(*values), 2)
        out = np.empty_like(left)
        one = self.operation
        (get_operation(one) if isinstance(one, str) else one).apply(left, right, out)
        return out


def receive(sent: Array, *_before: Any) -> Array:
    """Return the elements that a send has sent."""
    return sent


def compute(*_before: Any) -> None:
    """Represent a computation, which moves no elements."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A task that returns a receive buffer after the collective, as a new array.

    Parameters
    ----------
    written : tuple of (int, int, JoinedParts)
        Begin and end of every part of the buffer that was written, and its elements.
    dtype : dtype
        Type of the elements.
    """

    written: tuple[tuple[int, int, JoinedParts], ...]
    dtype: np.dtype[Any]

    def __call__(self, before: Array | None, *values: Any) -> Array:
        """Return the buffer."""
        result = np.zeros(0, self.dtype) if before is None else np.array(before)
        for low, high, gather in self.written:
            result[low:high] = gather(*values)
        return result


class _Tracing:
    """Trace of values through the buffers of a plan, in an order in which its tasks can run."""

    def __init__(self, plan: Plan, operation: ReductionOperation | None) -> None:
        self.plan = plan
        self.dtype = numpy_dtype(plan.origin.datatype if plan.origin else "uint8")
        name = plan.origin.operation if plan.origin else None
        if operation is None and name is not None:
            operation = get_operation(name)
        self.operation = operation
        self.execution = Execution.of(plan)
        # Keys must be unique among all graphs on a cluster.
        self.token = uuid4().hex
        self.keys = [self._key(Op(op).name.lower(), i) for i, op in enumerate(plan.op.tolist())]
        shared = [_BufferParts(int(n), None) for n in plan.shared_sizes]
        self.memory = [
            (
                _BufferParts(int(sizes[Buffer.SEND]), self._key("sendbuf", rank)),
                _BufferParts(int(sizes[Buffer.RECV]), self._key("recvbuf", rank)),
                _BufferParts(int(sizes[Buffer.SCRATCH]), None),
                shared[plan.rank_node[rank]],
            )
            for rank, sizes in enumerate(plan.buffer_sizes)
        ]

    def _key(self, word: str, number: int) -> Key:
        return f"{word}-{self.token}", number

    def graph(self, sendbufs: Buffers, recvbufs: Buffers) -> TaskGraph:
        """Return the graph for given buffers."""
        made: dict[Hashable, Any] = {}
        for rank in range(self.plan.n_ranks):
            made[self._key("sendbuf", rank)] = sendbufs[rank]
            made[self._key("recvbuf", rank)] = recvbufs[rank]
        n, is_recv = self.plan.n_tasks, (self.plan.op == Op.RECV).tolist()
        for event in self.execution.events().tolist():
            # A receive writes to memory when it completes, all other tasks when they start.
            row = event % n
            if (event >= n) == is_recv[row]:
                made[self.keys[row]] = self._task(row)
        results = [self._key("result", rank) for rank in range(self.plan.n_ranks)]
        return TaskGraph(made | {key: self._result(key[1]) for key in results}, results)

    def _task(self, row: int) -> tuple[Any, ...]:
        task = self.plan.task(row)
        memory = self.memory[task.rank]
        if task.op == Op.RECV:
            parts: list[Part] = []
            function: Callable[..., Any] = receive
            needed: dict[Key, int] = {self.keys[int(self.execution.sender[row])]: 0}
        else:
            parts = [
                part
                for extent in task.reads
                for low, high in extent.blocks()
                for part in memory[extent.buffer].read(low, high)
            ]
            needed = {}
            gather = self._gather(parts, needed)
            function = gather
            if task.op == Op.COMPUTE:
                function = compute
            elif task.op == Op.REDUCE:
                function = self._combine(row, gather)
        start = 0
        for extent in task.writes:
            for low, high in extent.blocks():
                memory[extent.buffer].write(low, high, self.keys[row], start)
                start += high - low
        return function, *dict.fromkeys((*needed, *self._waits(row)))

    def _combine(self, row: int, operands: JoinedParts) -> Combine:
        if self.operation is None:
            raise PlanError(f"{self.plan.task(row)} reduces, but there is no operation; give one")
        # MPI's operations are sent to workers by name. Others are sent as objects, because they
        # may not be registered there.
        name = self.operation.name
        return Combine(operands, name if name in BUILTIN_OPERATIONS else self.operation)

    def _waits(self, row: int) -> Iterable[Key]:
        """Yield the tasks for whose completion a task waits."""
        deps = self.plan.deps
        own = slice(deps.indptr[row], deps.indptr[row + 1])
        for before, kind in zip(deps.task[own].tolist(), deps.kind[own].tolist(), strict=True):
            if not kind & ON_START:
                yield self.keys[before]

    def _gather(self, parts: Iterable[Part], needed: dict[Key, int]) -> JoinedParts:
        """Return the task that joins parts, and add the values that it needs to `needed`."""
        places: list[tuple[int, int, int]] = []
        for key, low, high in parts:
            place = -1 if key is None else needed.setdefault(key, len(needed))
            if places and places[-1][0] == place >= 0 and places[-1][2] == low:
                places[-1] = (place, places[-1][1], high)
            else:
                places.append((place, low, high))
        return JoinedParts(tuple(places), self.dtype)

    def _result(self, rank: int) -> tuple[Any, ...]:
        memory, own = self.memory[rank][Buffer.RECV], self._key("recvbuf", rank)
        needed: dict[Key, int] = {}
        written = []
        for low, part in zip(memory.starts, memory.parts, strict=True):
            if part is None or part.low == part.high or part[:2] == (own, low):
                continue
            written.append((low, low + part.high - part.low, self._gather([part], needed)))
        # The result depends on all tasks of the rank, also on those that write no result.
        last = [self.keys[row] for row in self._last_tasks(rank)]
        return Finish(tuple(written), self.dtype), own, *dict.fromkeys((*needed, *last))

    def _last_tasks(self, rank: int) -> list[int]:
        """Return the tasks of a rank for whose completion no task of the plan waits."""
        plan = self.plan
        is_last = plan.rank == rank
        is_last[plan.deps.task[plan.deps.kind & ON_START == 0]] = False
        return np.flatnonzero(is_last).tolist()
