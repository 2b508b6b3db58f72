"""Plans read from text, as `collplan.planner.formats.text` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import csr
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.assembly import usual_priority
from collplan.planner.plan.origin import KnownSpec
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import COLUMNS, NO_PATTERN, NONE, Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import INTENT, ON_START, Dependencies, Extents
from collplan.specs import PlanSpec
from collplan.specs.syntax.calling import explains_calls

_SIZES: Final = re.compile(r"\d+ tasks, .*, (\d+) bytes per element")
_NODE: Final = re.compile(r"node (\d+): ranks ([\d ]*?)(?:, shared\[(\d+)\])?")
_RANK: Final = re.compile(r"rank (\d+) \(node (\d+), core (\d+)(?:, lane (\d+))?(.*)\)")
_PHASE: Final = re.compile(r"  phase (\d+)(?: (.*))?")
_TASK: Final = re.compile(r"  #(\d+)\s+round (\d+)\s{2,}(\S.*)")
_ACTION: Final = re.compile(
    r"(?P<send>send to (\d+) tag (\d+))|(?P<recv>recv from (\d+) tag (\d+))"
    r"|(?P<compute>compute (\d+) ns)|(?P<copy>copy)|(?P<reduce>reduce)"
)
_EXTENT: Final = re.compile(
    r"(send|recv|scratch|shared)\[(\d+):(\d+)\](?:x(\d+)@(-?\d+))?(?:x(\d+)@(-?\d+))?"
)
_WAIT: Final = re.compile(r"(start of )?#(\d+)( \(intent\))?")

Extent = tuple[int, int, int, tuple[int, ...]]
"""Buffer, offset, number of elements, and pattern."""


@dataclass(slots=True)
class _TaskLine:
    """Contents of the line of a task."""

    columns: dict[str, int]
    reads: list[Extent] = field(default_factory=list)
    writes: list[Extent] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)


class _TextReader:
    """Tasks, ranks and nodes that have been read so far."""

    def __init__(self, headline: str, spec: PlanSpec | None) -> None:
        self._spec = spec
        self.itemsize = 0
        self.shared: dict[int, int] = {}
        self.ranks: dict[int, tuple[int, int, int, list[int]]] = {}
        self.phases: dict[int, Phase] = {}
        if spec is not None and (found := re.match(rf"(\S+) {spec.collective.kind}\b", headline)):
            # The first line names the only phase of a flat plan.
            self.phases[0] = Phase(spec.collective.kind, found[1])
        self.rows: dict[int, _TaskLine] = {}
        self._rank = self._phase = 0

    def read(self, line: str) -> None:
        """Read a line after the first one; raise `PlanFormatError` if it is none of a plan."""
        if found := _SIZES.fullmatch(line):
            self.itemsize = int(found[1])
        elif found := _NODE.fullmatch(line):
            self.shared[int(found[1])] = int(found[3] or 0)
        elif found := _RANK.fullmatch(line):
            sizes = dict(re.findall(r"(send|recv|scratch)\[(\d+)\]", found[5]))
            numbers = [int(sizes.get(name, 0)) for name in ("send", "recv", "scratch")]
            lane = NONE if found[4] is None else int(found[4])
            self._rank, self._phase = int(found[1]), 0
            self.ranks[self._rank] = int(found[2]), int(found[3]), lane, numbers
        elif found := _PHASE.fullmatch(line):
            self._phase = int(found[1])
            self.phases[self._phase] = Phase.parse(found[2] or "")
        elif found := _TASK.fullmatch(line):
            row = int(found[1])
            if row in self.rows:
                raise PlanFormatError(f"task #{row} comes twice")
            self.rows[row] = self._task(int(found[2]), re.split(r"\s{2,}", found[3].rstrip()))
        elif line.strip():
            raise PlanFormatError(f"{line.strip()!r} is no line of a plan of all ranks")

    def _task(self, round_: int, cells: Sequence[str]) -> _TaskLine:
        """Read the cells of a task after its round."""
        action = _ACTION.fullmatch(cells[0])
        if action is None or action.lastgroup is None:
            raise PlanFormatError(f"{cells[0]!r} is no operation whose text can be read")
        numbers = [int(one) for one in re.findall(r"\d+", cells[0])]
        columns = dict.fromkeys(COLUMNS, 0) | dict.fromkeys(("peer", "tag", "lane", "stream"), NONE)
        columns |= {"op": Op[action.lastgroup.upper()], "rank": self._rank, "round": round_}
        columns |= {"phase": self._phase, "core": self.ranks[self._rank][1]}
        columns |= {"stage": Stage.BACKGROUND, "priority": NONE}
        if columns["op"] in (Op.SEND, Op.RECV):
            columns |= dict(zip(("peer", "tag"), numbers, strict=True))
        elif numbers:
            columns["duration_ns"] = numbers[0]
        row = _TaskLine(columns)
        for cell in cells[1:]:
            self._note(row, cell)
        return row

    def _note(self, row: _TaskLine, cell: str) -> None:
        """Read a cell with extents, with the value of a column, or with dependencies."""
        name, _, value = cell.partition(" ")
        if name == "after":
            row.waits = [_wait_of(one) for one in value.split(", ")]
        elif name == "stage":
            row.columns["stage"] = Stage[value.upper()]
        elif name in ("lane", "stream", "core", "priority"):
            row.columns[name] = int(value)
        else:
            reads, arrow, writes = cell.rpartition("-> ")
            is_written = not arrow and row.columns["op"] == Op.RECV
            row.reads = list(_extents_of("" if is_written else reads or ("" if arrow else writes)))
            row.writes = list(_extents_of(writes if arrow or is_written else ""))

    def _crosses(self, columns: dict[str, int]) -> bool:
        """Return whether a task is a message between nodes."""
        rank, peer = self.ranks[columns["rank"]], self.ranks.get(columns["peer"])
        return peer is not None and peer[0] != rank[0]

    def plan(self) -> Plan:
        """Return the plan of all lines."""
        rows = [self.rows[row] for row in sorted(self.rows)]
        for one in rows:
            if one.columns["priority"] == NONE:
                one.columns["priority"] = int(usual_priority(self._crosses(one.columns)))
        for numbers, what in ((self.rows, "tasks"), (self.ranks, "ranks"), (self.shared, "nodes")):
            if sorted(numbers) != list(range(len(numbers))):
                raise PlanFormatError(f"{what} must have the numbers 0 to {len(numbers) - 1}")
        patterns = [tuple(NO_PATTERN[0].tolist())]
        for extent in (extent for row in rows for extent in (*row.reads, *row.writes)):
            if extent[3] not in patterns:
                patterns.append(extent[3])
        node, core, lane, sizes = zip(
            *(self.ranks[rank] for rank in sorted(self.ranks)), strict=True
        )
        waits = np.array([one for row in rows for one in row.waits], np.int64).reshape(-1, 2)
        most = max(self.phases, default=0)
        columns: dict[str, Any] = {
            name: np.array([row.columns[name] for row in rows], np.int64) for name in COLUMNS
        }
        return Plan(
            **columns,
            reads=_columns_of([row.reads for row in rows], patterns),
            writes=_columns_of([row.writes for row in rows], patterns),
            deps=Dependencies(_indptr([row.waits for row in rows]), waits[:, 0], waits[:, 1]),
            patterns=np.array(patterns, np.int64),
            buffer_sizes=np.array(sizes, np.int64),
            shared_sizes=np.array([self.shared[one] for one in sorted(self.shared)], np.int64),
            rank_node=np.array(node),
            rank_core=np.array(core),
            rank_lane=np.array(lane),
            itemsize=self.itemsize,
            origin=None if self._spec is None else KnownSpec(self._spec),
            phases=tuple(self.phases.get(number, Phase()) for number in range(most + 1)),
        )


@explains_calls("from_text")
def from_text(text: str, spec: PlanSpec | None = None) -> Plan:
    """Return the plan of a text that `collplan.planner.formats.text.to_text` has written.

    The text of a plan of all ranks has everything but the trees of its phases, the copies of
    buffers in shared memory, and the spec. Call `collplan.verify` before you use the plan of a text
    that was edited: references to other tasks and ranks, and extents, are checked there.

    Parameters
    ----------
    text : str
    spec : PlanSpec, optional
        The spec of the plan, which a proof needs.

    Returns
    -------
    Plan

    Raises
    ------
    PlanFormatError
        If the text is not that of a plan of all ranks, or has calls of MPI's own collectives. The
        message has the number of the line.

    Examples
    --------
    >>> import collplan
    >>> plan = collplan.compile({
    ...     "machine": {"ranks_per_node": 2},
    ...     "collective": {"kind": "bcast", "count": 4},
    ... })
    >>> collplan.from_text(collplan.to_text(plan)).n_tasks == plan.n_tasks
    True
    """
    headline, *lines = text.splitlines() or [""]
    reader = _TextReader(headline, spec)
    for number, line in enumerate(lines, 2):
        try:
            reader.read(line)
        except (PlanFormatError, KeyError, ValueError) as error:
            reason = f"{error}" if isinstance(error, PlanFormatError) else f"{line.strip()!r}"
            raise PlanFormatError(f"line {number}: {reason}") from None
    if not reader.ranks:
        raise PlanFormatError("the text has no ranks; give what to_text returns")
    return reader.plan()


def _wait_of(text: str) -> tuple[int, int]:
    found = _WAIT.fullmatch(text)
    if found is None:
        raise PlanFormatError(f"{text!r} names no task of this plan")
    return int(found[2]), ON_START * bool(found[1]) | INTENT * bool(found[3])


def _extents_of(text: str) -> Iterator[Extent]:
    for one in filter(None, (part.strip() for part in text.split(" + "))):
        found = _EXTENT.fullmatch(one)
        if found is None:
            raise PlanFormatError(f"{one!r} is no extent such as recv[0:4]")
        first, end = int(found[2]), int(found[3])
        inner = (int(found[5]), int(found[4])) if found[4] else (0, 1)
        outer = (int(found[7]), int(found[6])) if found[6] else (0, 1)
        yield Buffer[found[1].upper()], first, end - first, (*inner, *outer)


def _indptr(rows: Sequence[Sequence[object]]) -> Any:
    return csr.running_total([len(row) for row in rows])


def _columns_of(rows: Sequence[Sequence[Extent]], patterns: Sequence[tuple[int, ...]]) -> Extents:
    flat = [(one[0], one[1], one[2], patterns.index(one[3])) for row in rows for one in row]
    buffer, offset, count, pattern = np.array(flat, np.int64).reshape(-1, 4).T
    return Extents(_indptr(rows), buffer, offset, count, pattern)
