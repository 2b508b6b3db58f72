"""Plans written by hand, task by task, and refusals, for programs that run as ranks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from collplan.executors.mpi.errors import BindError
from collplan.planner.collective.operations import ReductionOperation, get_operation
from collplan.planner.plan.plan import COLUMNS, NO_PATTERN, Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import Dependencies, Extents
from collplan.specs.errors import CollplanError

Interval = tuple[int, ...]
"""(buffer, offset, count) or (buffer, offset, count, pattern row)."""


class PlanWriter:
    """Collect tasks; rows are in the order of the calls."""

    def __init__(
        self,
        buffer_sizes: Sequence[Sequence[int]],
        itemsize: int = 4,
        patterns: Sequence[Sequence[int]] = (),
    ) -> None:
        self.buffer_sizes = np.array(buffer_sizes)
        self.itemsize = itemsize
        self.patterns = np.array([*NO_PATTERN.tolist(), *patterns])
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self.reads: list[list[Interval]] = []
        self.writes: list[list[Interval]] = []
        self.deps: list[list[tuple[int, int]]] = []

    def add(
        self,
        op: Op,
        rank: int,
        reads: Iterable[Interval] = (),
        writes: Iterable[Interval] = (),
        after: Iterable[int | tuple[int, int]] = (),
        **columns: int,
    ) -> int:
        defaults = {"peer": -1, "tag": -1, "lane": -1, "stream": -1, "stage": Stage.BACKGROUND}
        values = {**defaults, **columns, "op": op, "rank": rank}
        for name, column in self.columns.items():
            column.append(int(values.get(name, 0)))
        self.reads.append(list(reads))
        self.writes.append(list(writes))
        self.deps.append([(d, 0) if isinstance(d, int) else d for d in after])
        return len(self.deps) - 1

    def send(self, rank: int, peer: int, *reads: Interval, tag: int = 0, **more: object) -> int:
        return self.add(Op.SEND, rank, reads=reads, peer=peer, tag=tag, **more)  # type: ignore[arg-type]

    def recv(self, rank: int, peer: int, *writes: Interval, tag: int = 0, **more: object) -> int:
        return self.add(Op.RECV, rank, writes=writes, peer=peer, tag=tag, **more)  # type: ignore[arg-type]

    def plan(self) -> Plan:
        p = len(self.buffer_sizes)
        deps = [d for task in self.deps for d in task]
        return Plan(
            **{name: np.array(column, dtype=np.int64) for name, column in self.columns.items()},
            reads=_extents(self.reads),
            writes=_extents(self.writes),
            deps=Dependencies(
                indptr=_indptr(self.deps),
                task=np.array([task for task, _ in deps], dtype=np.int64),
                kind=np.array([kind for _, kind in deps], dtype=np.int64),
            ),
            patterns=self.patterns,
            buffer_sizes=self.buffer_sizes,
            shared_sizes=np.zeros(1, dtype=np.int64),
            rank_node=np.zeros(p, dtype=np.int64),
            rank_lane=np.zeros(p, dtype=np.int64),
            rank_core=np.arange(p),
            itemsize=self.itemsize,
        )


def _indptr(rows: Sequence[Sequence[object]]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))


def _extents(rows: Sequence[Sequence[Interval]]) -> Extents:
    flat = np.array([(*i, 0)[:4] for row in rows for i in row], dtype=np.int64).reshape(-1, 4)
    return Extents(_indptr(rows), flat[:, 0], flat[:, 1], flat[:, 2], flat[:, 3])


def ring_allreduce_max(p: int, count: int) -> Plan:
    """Everyone's values travel once around the ring; each rank reduces what passes by.

    Rank r: recv <- send; then p-1 times: send what came last to r+1, receive
    from r-1 into scratch, reduce into recv.
    """
    writer = PlanWriter([[count, count, 2 * count]] * p)
    for rank in range(p):
        right, left = (rank + 1) % p, (rank - 1) % p
        mine = (Buffer.RECV, 0, count)
        last = writer.add(Op.COPY, rank, [(Buffer.SEND, 0, count)], [mine])
        travelling: Interval = (Buffer.SEND, 0, count)
        arrived: list[int] = []
        freed: dict[int, list[int]] = {0: [], 1: []}
        for step in range(p - 1):
            slot: Interval = (Buffer.SCRATCH, (step % 2) * count, count)
            sent = writer.send(rank, right, travelling, after=arrived)
            if travelling[0] == Buffer.SCRATCH:
                freed[(step - 1) % 2].append(sent)
            came = writer.recv(rank, left, slot, after=freed[step % 2])
            last = writer.add(Op.REDUCE, rank, [mine, slot], [mine], after=[came, last])
            freed[step % 2] = [last]
            travelling, arrived = slot, [came]
    return writer.plan()


def cells_of(interval: Interval, patterns: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return (buffer, element) of every element of an interval, in order."""
    buffer, offset, count, pattern = interval
    stride0, repeat0, stride1, repeat1 = patterns[pattern]
    return [
        (buffer, offset + i * stride1 + j * stride0 + k)
        for i in range(repeat1)
        for j in range(repeat0)
        for k in range(count)
    ]


def refuses(error: type[CollplanError], words: str, call: Callable[[], object]) -> None:
    """Fail unless `call` raises `error` with one line that says `words`."""
    try:
        call()
    except error as caught:
        text = str(caught)
        assert words in text, text
        assert "\n" not in text, text
    else:
        raise AssertionError(f"no {error.__name__} about {words!r}")


class RangError(Exception):
    """The exception of a signal."""


def ring(number: int, frame: object) -> None:
    """Handle a signal by an exception."""
    raise RangError


def interrupt(bound: Any, after_s: float) -> None:
    """Fail unless a signal interrupts a call and a wait of a plan, which still runs then."""
    signal.signal(signal.SIGALRM, ring)
    for call in (bound, bound.wait):
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            call()
        except RangError:
            continue
        raise AssertionError("the wait ended")
    refuses(BindError, "still running: it cannot be started", bound)


class InPython:
    """A predefined operation that the engine does not know, so that Python reduces by it."""

    def __init__(self, name: str) -> None:
        self.name = f"{name} in Python"
        self.apply = get_operation(name).apply


def reduction(by: str, name: str) -> ReductionOperation | InPython:
    """Return a predefined operation, "compiled" or in "python"."""
    return InPython(name) if by == "python" else get_operation(name)
