"""Where every task lies: ranks are columns in their nodes, rounds are bands of lines.

A round of a ring of three, with the lines its tasks take::

             rank 0      rank 1      rank 2
    round 0  send 1      send 2      send 0      sends leave downwards,
             recv 2      recv 0      recv 1      receives are a line below,
             reduce      reduce      reduce      what waits for them below that
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.draw.sheet import Box
from collplan.planner.draw.style import FONT_SIZE, format_time, shorten, text_width
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import Op, Task

if TYPE_CHECKING:
    from collplan.planner.draw.stages import Looks
    from collplan.planner.draw.style import Times
    from collplan.planner.plan.plan import Plan

Ends = list[tuple[int, int]]
"""Rows of the send and the receive of messages."""

PADDING: Final = 12.0
_LINE_HEIGHT: Final = 10.5
_NODE_GAP: Final = 22.0
_HEADER: Final = 44.0
_ROUND_GAP: Final = 16.0
_MAX_SIGNS: Final = 24
_MAX_WIDE_RANKS: Final = 16
"""More ranks get narrow columns: what a task reads and writes is a tooltip then."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where everything lies: a column a rank, a line a step of a round."""

    tasks: list[Task]
    labels: list[list[str]]
    boxes: list[Box]
    line: list[int]
    """Line of the grid each task lies in."""
    line_y: list[float]
    column_x: dict[int, float]
    """Ranks drawn, from left to right, and where."""
    column_width: float
    column_gap: float
    box_height: float
    rounds: list[str]
    """Names of the bands of lines, in order."""
    round_y: list[float]
    """Where every band begins."""
    right: float
    bottom: float


def lay_out(plan: Plan, ends: Ends, top: float, times: Times | None, looks: Looks) -> Grid:
    """Find a place below `top` for every task of `plan`; `ends` are its messages' rows."""
    tasks = list(plan.tasks())
    # However ranks are dealt to nodes, a node's columns stand together.
    by_node = np.argsort(plan.rank_node, kind="stable").tolist()
    ranks = by_node if plan.only_rank is None else [plan.only_rank]
    is_wide = len(ranks) <= _MAX_WIDE_RANKS
    labels = [_label(task, is_wide, times) for task in tasks]
    if is_wide:
        for task, lines in zip(tasks, labels, strict=True):
            lines += looks.lines(plan, task)
    rounds, band = _bands(plan)
    line, first_lines = _lines(plan, ends, band, len(rounds))

    widest = max((_label_width(lines) for lines in labels), default=0.0)
    width = max(64.0 if is_wide else 44.0, 10 + widest)
    height = 6 + _LINE_HEIGHT * max(map(len, labels), default=1)
    column_gap = 30.0 if is_wide else 22.0
    x = 2 * PADDING + text_width(rounds, FONT_SIZE)
    column_x: dict[int, float] = {}
    for before, rank in zip([ranks[0], *ranks], ranks, strict=False):
        if rank != ranks[0]:
            x += width + column_gap
            x += _NODE_GAP * (plan.rank_node[rank] != plan.rank_node[before])
        column_x[rank] = x + width / 2

    gaps = _gaps(plan, ends, line)
    line_y, round_y, y = [], [], top + _HEADER
    begins = set(first_lines)
    for i, gap in enumerate(gaps):
        if i in begins:
            round_y.append(y)
            y += _ROUND_GAP / 2
        line_y.append(y + height / 2)
        y += height + gap
        if i + 1 in begins:
            y += _ROUND_GAP / 2 - 4
    boxes = [Box(column_x[task.rank], line_y[line[task.row]], width, height) for task in tasks]
    return Grid(
        tasks=tasks,
        labels=labels,
        boxes=boxes,
        line=line,
        line_y=line_y,
        column_x=column_x,
        column_width=width,
        column_gap=column_gap,
        box_height=height,
        rounds=rounds,
        round_y=round_y,
        right=x + width + 2 * PADDING,
        bottom=y + PADDING,
    )


def _bands(plan: Plan) -> tuple[list[str], list[int]]:
    """Return the rounds' names in order, and which of them each task belongs to."""
    if not plan.n_tasks:
        return [], []
    keys, band = np.unique(np.stack((plan.phase, plan.round)), axis=1, return_inverse=True)
    names = plan.phases if len(plan.phases) > 1 else (Phase("round"),)
    return [f"{names[phase]} {rnd}" for phase, rnd in keys.T.tolist()], band.ravel().tolist()


def _lines(plan: Plan, ends: Ends, band: list[int], n_bands: int) -> tuple[list[int], list[int]]:
    """Schedule each round in unit steps: one task of a rank a line, after what it waits for.

    Returns the line of every task and the first line of every band.
    """
    n = plan.n_tasks
    after = np.repeat(np.arange(n), np.diff(plan.deps.indptr)).tolist()
    edges = [*zip(plan.deps.task.tolist(), after, strict=True), *ends]
    successors: list[list[int]] = [[] for _ in range(n)]
    n_waiting = [0] * n
    for before, row in edges:
        if band[before] == band[row]:
            successors[before].append(row)
            n_waiting[row] += 1
    members: list[list[int]] = [[] for _ in range(n_bands)]
    for row, number in enumerate(band):
        members[number].append(row)

    is_recv = (plan.op == Op.RECV).tolist()
    line, first_lines, start = [-1] * n, [], 0
    for rows in members:
        first_lines.append(start)
        earliest = dict.fromkeys(rows, start)
        free: dict[int, int] = {}
        # A receive waits for its message anyway: what else is ready goes before it.
        ready = [(is_recv[row], row) for row in rows if n_waiting[row] == 0]
        heapq.heapify(ready)
        pending = iter(rows)
        end = start
        for _ in rows:
            # A plan that deadlocks is drawn too: the first row left breaks the cycle.
            row = heapq.heappop(ready)[1] if ready else next(r for r in pending if line[r] < 0)
            rank = int(plan.rank[row])
            line[row] = max(earliest[row], free.get(rank, start))
            free[rank] = line[row] + 1
            end = max(end, line[row] + 1)
            for successor in successors[row]:
                earliest[successor] = max(earliest[successor], line[row] + 1)
                n_waiting[successor] -= 1
                if n_waiting[successor] == 0 and line[successor] < 0:
                    heapq.heappush(ready, (is_recv[successor], successor))
        start = end
    return line, first_lines


def _gaps(plan: Plan, ends: Ends, line: list[int]) -> list[float]:
    """Return the space below every line: more where more messages cross each other."""
    n_lines = max(line, default=-1) + 1
    crossing = np.zeros((n_lines, plan.n_ranks + 1), dtype=np.int64)
    for send, recv in ends:
        low, high = sorted((int(plan.rank[send]), int(plan.rank[recv])))
        for gutter in {line[send], line[recv] - 1}:
            crossing[gutter, low] += 1
            crossing[gutter, high] -= 1
    most = np.cumsum(crossing, axis=1).max(axis=1)
    return [12.0 if n == 0 else min(20.0 + 4.0 * n, 64.0) for n in most.tolist()]


def _label(task: Task, is_wide: bool, times: Times | None) -> list[str]:
    """Return what the task does, and where: a send what it reads, others what they write."""
    action = task.op.name.lower()
    if task.op is Op.SEND:
        action += f" → {task.peer}"
    elif task.op is Op.RECV:
        action += f" ← {task.peer}"
    lines = [action]
    extents = task.reads if task.op is Op.SEND else task.writes
    if task.op is Op.COMPUTE:
        lines.append(format_time(task.duration_ns))
    elif extents and is_wide:
        more = f" +{len(extents) - 1}" if len(extents) > 1 else ""
        lines.append(shorten(str(extents[0]), _MAX_SIGNS) + more)
    if times is not None:
        start, end = times.start_ns[task.row], times.end_ns[task.row]
        lines.append(f"{format_time(start)} – {format_time(end)}")
    return lines


def _label_width(lines: list[str]) -> float:
    return max(text_width(lines[:1], FONT_SIZE + 0.5), text_width(lines[1:], FONT_SIZE - 1))
