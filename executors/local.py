"""The oracle executor: all ranks in one process, in numpy, in any legal order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

import numpy as np

from collplan.planner.arrays import Array
from collplan.planner.collective.buffers import require_buffers
from collplan.planner.collective.operations import ReductionOperation, get_operation
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START, Extents, blocks_of
from collplan.planner.rewrite.fold import require_all_ranks
from collplan.planner.verify.agreed_calls import without_calls
from collplan.specs import numpy_dtype
from collplan.specs.syntax.calling import explains_calls

Buffers = Sequence[Array | None]


@explains_calls("run_local")
def run_local(
    plan: Plan,
    sendbufs: Buffers,
    recvbufs: Buffers,
    *,
    operation: ReductionOperation | None = None,
    order: random.Random | None = None,
) -> None:
    """Execute a plan on the given buffers.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    sendbufs, recvbufs : sequence of ndarray or None
        Every rank's buffers, at least as long as the plan says; None where
        they have no elements.
    operation : ReductionOperation, optional
        The spec's own if not given.
    order : random.Random, optional
        Take a random legal order, in which sends complete before they are
        received (eager); in the order tasks become ready if not given.

    Raises
    ------
    DeadlockError
        If tasks are left that can never start.
    PlanError
        If messages do not match, or a buffer is missing, no array, or too short.
    """
    require_all_ranks(plan, "executed by one process")
    require_buffers(plan, sendbufs, recvbufs)
    plan = without_calls(plan)
    _LocalRun(plan, sendbufs, recvbufs, operation).execute(order)


class _LocalRun:
    def __init__(
        self, plan: Plan, sendbufs: Buffers, recvbufs: Buffers, operation: ReductionOperation | None
    ) -> None:
        self.plan = plan
        self.dtype = numpy_dtype(plan.origin.datatype if plan.origin else "uint8")
        name = plan.origin.operation if plan.origin else None
        self.operation = operation or (get_operation(name) if name else None)
        shared = [np.zeros(n, self.dtype) for n in plan.shared_sizes]
        self.rank = plan.rank.tolist()
        self.patterns = plan.patterns.tolist()
        self.buffers = [
            (
                self._own(sendbufs[rank]),
                self._own(recvbufs[rank]),
                np.zeros(plan.buffer_sizes[rank, Buffer.SCRATCH], self.dtype),
                shared[plan.rank_node[rank]],
            )
            for rank in range(plan.n_ranks)
        ]
        sends, recvs = match_messages(plan)
        self.sender = dict(zip(recvs.tolist(), sends.tolist(), strict=True))
        self.receiver = dict(zip(sends.tolist(), recvs.tolist(), strict=True))
        self.in_flight: dict[int, Array] = {}
        self.after: list[list[tuple[int, bool]]] = [[] for _ in range(plan.n_tasks)]
        self.waiting = np.diff(plan.deps.indptr).tolist()
        deps = plan.deps
        columns = (column.tolist() for column in (deps.owner(), deps.task, deps.kind))
        for row, before, kind in zip(*columns, strict=True):
            self.after[before].append((row, bool(kind & ON_START)))

    def _own(self, buffer: Array | None) -> Array:
        return np.zeros(0, self.dtype) if buffer is None else buffer

    def execute(self, order: random.Random | None) -> None:
        """Run tasks as they become ready; a receive is ready twice: to post and to complete."""
        ready: deque[tuple[int, bool]] = deque(
            (row, True) for row, n in enumerate(self.waiting) if n == 0
        )
        posted: set[int] = set()
        left = self.plan.n_tasks
        op = self.plan.op.tolist()
        while ready:
            if order is not None:
                ready.rotate(order.randrange(len(ready)))
            row, starts = ready.popleft()
            if starts:
                ready.extend(self._release(row, on_start=True))
                if op[row] == Op.RECV and row not in self.sender:
                    continue
                if op[row] == Op.RECV:
                    posted.add(row)
                    if self.sender[row] not in self.in_flight:
                        continue
                elif op[row] == Op.SEND:
                    self.in_flight[row] = self._read(self.plan.reads, row)
                    if self.receiver[row] in posted:
                        ready.append((self.receiver[row], False))
                else:
                    self._compute(row, op[row])
            if op[row] == Op.RECV:
                self._write(row, self.in_flight.pop(self.sender[row]))
                posted.discard(row)
            left -= 1
            ready.extend(self._release(row, on_start=False))
        if left:
            stuck = next(row for row, n in enumerate(self.waiting) if n > 0)
            raise DeadlockError(f"{left} tasks can never run, among them {self.plan.task(stuck)}")

    def _release(self, row: int, *, on_start: bool) -> list[tuple[int, bool]]:
        released = []
        for after, waits_for_start in self.after[row]:
            if waits_for_start == on_start:
                self.waiting[after] -= 1
                if self.waiting[after] == 0:
                    released.append((after, True))
        return released

    def _compute(self, row: int, op: int) -> None:
        if op == Op.COPY:
            self._write(row, self._read(self.plan.reads, row))
        elif op == Op.REDUCE:
            assert self.operation is not None, "a plan that reduces has an operation"
            left, right = np.split(self._read(self.plan.reads, row), 2)
            out = np.empty_like(left)
            self.operation.apply(left, right, out)
            self._write(row, out)

    def _places(self, extents: Extents, row: int) -> list[Array]:
        """Return views of the contiguous blocks a task touches, in order."""
        rank_buffers = self.buffers[self.rank[row]]
        places = []
        for i in range(extents.indptr[row], extents.indptr[row + 1]):
            buffer = rank_buffers[extents.buffer[i]]
            block = int(extents.offset[i]), int(extents.count[i])
            for low, high in blocks_of(*block, self.patterns[extents.pattern[i]]):
                places.append(buffer[low:high])
        return places

    def _read(self, extents: Extents, row: int) -> Array:
        places = self._places(extents, row)
        return np.concatenate(places) if places else np.zeros(0, self.dtype)

    def _write(self, row: int, values: Array) -> None:
        done = 0
        for place in self._places(self.plan.writes, row):
            place[:] = values[done : done + len(place)]
            done += len(place)
