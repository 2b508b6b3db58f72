"""Plans taken apart into rows, so that tests can change them and put them together again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from collplan.planner.plan.plan import COLUMNS, Buffer, Op, Plan
from collplan.planner.plan.ragged import Dependencies, Extents

TYPES = {**COLUMNS, "apart": np.int32}
"""Columns of rows, with their types."""
Piece = tuple[int, int, int, int]
"""Buffer, offset, count, and the row of the pattern table."""


class NotApplicableError(Exception):
    """The plan has nothing that could be corrupted so."""


@dataclass(eq=False)
class Row:
    """One task; `waits` refers to rows themselves, so that rows can come and go."""

    columns: dict[str, int]
    reads: list[Piece]
    writes: list[Piece]
    waits: list[tuple[Row, int]] = field(default_factory=list)

    @property
    def op(self) -> int:
        return self.columns["op"]

    @property
    def rank(self) -> int:
        return self.columns["rank"]

    def twin(self) -> Row:
        return Row(dict(self.columns), list(self.reads), list(self.writes), list(self.waits))


class Draft:
    """A plan taken apart."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.patterns = plan.patterns.tolist()
        columns = {name: getattr(plan, name).tolist() for name in TYPES}
        self.rows = [
            Row(
                {name: column[i] for name, column in columns.items()},
                _pieces(plan.reads, i),
                _pieces(plan.writes, i),
            )
            for i in range(plan.n_tasks)
        ]
        for i, row in enumerate(self.rows):
            mine = slice(plan.deps.indptr[i], plan.deps.indptr[i + 1])
            edges = zip(plan.deps.task[mine].tolist(), plan.deps.kind[mine].tolist(), strict=True)
            row.waits = [(self.rows[before], kind) for before, kind in edges]

    def to_plan(self) -> Plan:
        """Put the plan together again."""
        number = {id(row): i for i, row in enumerate(self.rows)}
        edges = [(number[id(before)], kind) for row in self.rows for before, kind in row.waits]
        deps = np.array(edges, dtype=np.int64).reshape(-1, 2)
        return self.plan.replace(
            **{
                name: np.array([row.columns[name] for row in self.rows], dtype=dtype)
                for name, dtype in TYPES.items()
            },
            reads=_extents([row.reads for row in self.rows]),
            writes=_extents([row.writes for row in self.rows]),
            deps=Dependencies(_indptr([row.waits for row in self.rows]), deps[:, 0], deps[:, 1]),
            patterns=np.array(self.patterns),
        )

    def contents(self) -> list[object]:
        """Return all rows as values, to see whether two drafts are the same."""
        number = {id(row): i for i, row in enumerate(self.rows)}
        return [
            (dict(row.columns), list(row.reads), list(row.writes),
             [(number[id(before)], kind) for before, kind in row.waits])
            for row in self.rows
        ]  # fmt: skip

    def having(self, *ops: Op) -> list[Row]:
        return [row for row in self.rows if row.op in ops]

    def remove(self, row: Row) -> None:
        """Take a row out; those that waited for it wait for what it waited for."""
        self.rows.remove(row)
        for other in self.rows:
            if any(before is row for before, _ in other.waits):
                kept = [edge for edge in other.waits if edge[0] is not row]
                other.waits = kept + [edge for edge in row.waits if edge not in kept]

    def insert_after(self, row: Row, new: Row) -> None:
        self.rows.insert(self.rows.index(row) + 1, new)

    def size(self, row: Row, buffer: int) -> int:
        if buffer == Buffer.SHARED:
            return int(self.plan.shared_sizes[self.plan.rank_node[row.rank]])
        return int(self.plan.buffer_sizes[row.rank, buffer])

    def partner(self, row: Row) -> Row:
        """Return the other end of a message."""
        key = (row.rank, row.columns["peer"], row.columns["tag"])
        for other in self.having(Op.SEND, Op.RECV):
            columns = other.columns
            if other.op != row.op and (columns["peer"], other.rank, columns["tag"]) == key:
                return other
        raise NotApplicableError


def _pieces(extents: Extents, row: int) -> list[Piece]:
    mine = slice(extents.indptr[row], extents.indptr[row + 1])
    columns = (extents.buffer, extents.offset, extents.count, extents.pattern)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))


def _indptr(lists: Iterable[list[object]]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(entries) for entries in lists], dtype=np.int64)))


def _extents(rows: list[list[Piece]]) -> Extents:
    flat = np.array([piece for row in rows for piece in row], dtype=np.int64).reshape(-1, 4)
    return Extents(_indptr(rows), *flat.T)


def pick(rng: random.Random, candidates: list[Row]) -> Row:
    if not candidates:
        raise NotApplicableError
    return rng.choice(candidates)


def pick_pair(rng: random.Random, candidates: list[Row]) -> tuple[Row, Row]:
    if len(candidates) < 2:
        raise NotApplicableError
    one, other = rng.sample(candidates, 2)
    return one, other
