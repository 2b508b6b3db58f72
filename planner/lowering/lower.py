"""Lowering of components to messages and local steps of elements, for all ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.address import (
    MAX_SCRATCH,
    Located,
    concatenated,
    locate,
    squeeze_scratch,
)
from collplan.planner.lowering.batches import Batch, batches
from collplan.planner.lowering.collect import IN_ORDER, Collected, Steps, narrow
from collplan.planner.lowering.stated import Shape, Stated
from collplan.planner.lowering.tables import LocalTable, MessageTable, Tables
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import NONE, Op
from collplan.specs import PlanSpec


def lower(
    parts: Sequence[Stated],
    spec: PlanSpec,
    n_scratch: int,
    only_ranks: Sequence[int] | None = None,
    *,
    is_packed: bool = True,
) -> Tables:
    """Turn components into tables of messages and local steps.

    The rounds of a component follow those of the preceding components. Empty messages, empty steps
    and copies of data onto themselves are omitted.

    Parameters
    ----------
    parts : sequence of Stated
        Components in program order. Their index is their phase.
    spec : PlanSpec
    n_scratch : int
        Number of scratch spaces that the components use.
    only_ranks : sequence of int, optional
        Keep only messages and steps of these ranks.
    is_packed : bool
        Whether scratch is packed. If not, tables serve for costs only.
    """
    lowering, commutative = _Lowering(n_scratch), spec.collective.may_reorder
    first_round, phases = 0, list[Phase]()
    only = None if only_ranks is None else np.array(only_ranks, dtype=np.int64)
    for phase, part in enumerate(parts):
        n_rounds: dict[Shape, int] = {}
        sends: dict[Shape, list[int]] = {}
        for batch in batches(part, only):
            collected = batch.collect(commutative)
            if batch.only != ():
                lowering.add(phase, first_round, batch, collected)
            n_rounds[batch.shape], sends[batch.shape] = collected.n_rounds, collected.sends
        stated = part.phase(first_round, sends)
        phases.append(stated if only_ranks is None else stated.of_ranks(only_ranks))
        first_round += max(n_rounds.values(), default=0)
    shared_sizes = np.zeros(spec.machine.nodes, dtype=np.int64)
    tables = lowering.tables(spec.machine.n_ranks, is_packed=is_packed)
    return Tables(*tables, shared_sizes, tuple(phases), first_round)


class _Table:
    """Columns and runs of messages or local steps, which grow by batches."""

    def __init__(self, nothing: Steps) -> None:
        self._nothing = nothing
        self._columns: dict[str, list[Any]] = {}
        self._runs: dict[str, list[Located]] = {name: [] for name in nothing.runs}
        self._n = 0

    def add(self, columns: dict[str, Any], located: Located, starts: list[int]) -> None:
        """Add rows and their runs. `starts` contains the first run of each kind."""
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)
        for parts, low, high in zip(self._runs.values(), starts[:-1], starts[1:], strict=True):
            parts.append(located.part(low, high, self._n))
        self._n += len(columns["phase"])

    def runs(self) -> list[Located]:
        """Return and remove all runs, as a table for each kind."""
        return [Located.stack(self._runs.pop(name)) for name in self._nothing.runs]

    def columns(self, runs: list[Located]) -> dict[str, Any]:
        """Return all columns, given the final runs that rows read and write."""
        columns = {name: concatenated(parts) for name, parts in self._columns.items()}
        if not columns:
            columns = self._nothing.arrays() | {"phase": np.zeros(0, dtype=np.int16)}
            if "op" in columns:
                columns |= dict.fromkeys(("peer", "tag"), np.zeros(0, dtype=np.int32))
        accesses = (each.pieces(self._n) for each in runs)
        return columns | dict(zip(self._nothing.runs, accesses, strict=True))


class _Lowering:
    """Tables that grow by batches."""

    def __init__(self, n_scratch: int) -> None:
        self.n_scratch = n_scratch
        self.messages, self.locals = map(_Table, Collected().tables)

    def add(self, phase: int, first_round: int, batch: Batch, collected: Collected) -> None:
        """Add the steps of a batch, sorted by group."""
        n_groups = len(batch.groups)
        homes, n_new = batch.homes(self.n_scratch)
        self.n_scratch += n_new
        if self.n_scratch >= MAX_SCRATCH:
            raise AlgorithmError(
                f"algorithms: the plan needs {self.n_scratch:,} scratch spaces; use algorithms "
                f"with fewer than {MAX_SCRATCH:,} together"
            )
        for table, steps in zip((self.messages, self.locals), collected.tables, strict=True):
            if not steps.n:
                continue
            rows = steps.arrays(n_groups)
            shift = np.repeat(np.arange(n_groups) * batch.size, steps.n)
            members = [rows[end] + shift for end in steps.ends]
            # Messages read at the source, and write and combine at the destination.
            at = [members[0 if name == "read" else -1] for name in steps.runs]
            runs, starts = _tiled_runs(steps, n_groups)
            located = locate(batch.layouts, homes, runs, np.concatenate(at))
            if steps is collected.messages:
                left, (source, dest) = rows["incoming_left"], members
                rows["incoming_left"] = np.where(left == IN_ORDER, source < dest, left > 0)
            for end, member in zip(steps.ends, members, strict=True):
                rows[end] = batch.ranks[member]
            rows["round"] = rows["round"] + np.int32(first_round)
            rows["phase"] = np.full(len(shift), phase, dtype=np.int16)
            if steps is collected.locals:
                rows |= _callers(batch, rows["op"], members[0])
            table.add(rows, located, starts)

    def tables(self, n_ranks: int, *, is_packed: bool) -> tuple[MessageTable, LocalTable, Ints]:
        """Return the final tables, with messages sorted by round, and the sizes of scratch."""
        runs = self.messages.runs()
        n_kinds = len(runs)
        runs += self.locals.runs()
        sizes = squeeze_scratch(runs, n_ranks) if is_packed else np.zeros(n_ranks, dtype=np.int64)
        messages = MessageTable(**self.messages.columns(runs[:n_kinds]))
        steps = LocalTable(**self.locals.columns(runs[n_kinds:]))
        if (np.diff(messages.round) < 0).any():
            messages = messages.take(np.argsort(messages.round, kind="stable"))
        messages = messages.select(messages.ordered | (messages.write.elements > 0))
        moves = (steps.write.elements > 0) & ~_onto_itself(steps)
        steps = steps.select(moves | (steps.op == Op.CALL))
        return messages, steps, sizes


def _callers(batch: Batch, op: Ints, member: Ints) -> dict[str, Ints]:
    """Return the roots of calls, and their ranks' numbers of groups; -1 for other steps."""
    is_call = op == Op.CALL
    if not is_call.any():
        return dict.fromkeys(("peer", "tag"), np.full(len(op), NONE, dtype=np.int32))
    root = batch.ranks[member // batch.size * batch.size + batch.root]
    is_rooted = is_call & batch.part.component.traits.is_rooted
    number = csr.occurrence(batch.part.component.groups.ranks)[batch.members[member]]
    named = {"peer": (is_rooted, root), "tag": (is_call, number)}
    return {
        name: np.where(which, values, NONE).astype(np.int32)
        for name, (which, values) in named.items()
    }


def _tiled_runs(steps: Steps, n_groups: int) -> tuple[list[Ints], list[int]]:
    """Return the runs of all groups' steps, sorted by kind of runs.

    Owners are numbered in the same order. The first owner of each kind is returned, too.
    """
    kinds = steps.runs.values()
    lengths = np.repeat([runs.n for runs in kinds], n_groups)
    parts = zip(*(runs.arrays() for runs in kinds), strict=True)
    columns = [np.concatenate(each) for each in parts]
    starts = np.arange(len(kinds) * n_groups + 1) * steps.n
    if n_groups > 1:
        first = csr.running_total([runs.n for runs in kinds])[:-1]
        rows = csr.ranges(np.repeat(first, n_groups), lengths)
        columns = [column[rows] for column in columns]
    dtype = narrow(starts[-1:]).dtype
    columns[0] = columns[0].astype(dtype) + np.repeat(starts[:-1].astype(dtype), lengths)
    return columns, starts[::n_groups].tolist()


def _onto_itself(steps: LocalTable) -> Bools:
    """Mark copies whose source and destination are the same."""
    lengths = np.diff(steps.read.indptr)
    alike = (lengths == np.diff(steps.write.indptr)) & (steps.op == Op.COPY)
    read, write = steps.read.masked(alike), steps.write.masked(alike)
    differs = np.zeros(len(read.buffer), dtype=bool)
    for one, other in zip(read.columns(), write.columns(), strict=True):
        differs |= one != other
    alike[read.owner[differs]] = False
    return np.asarray(alike)
