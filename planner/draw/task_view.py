"""The finest view: a box per task, and an arrow per message or dependency.

Ranks are columns inside nodes, and rounds are bands of lines. For example, the tasks of a
round of a ring of three ranks are on these lines::

             rank 0      rank 1      rank 2
    round 0  send 1      send 2      send 0      arrows leave sends downwards
             recv 2      recv 0      recv 1      receives are one line below
             reduce      reduce      reduce      tasks that wait for receives are below these
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from collplan.planner.arrays import csr
from collplan.planner.draw import style
from collplan.planner.draw.sheet import Box, Point, Sheet
from collplan.planner.errors import MatchError
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import Op, Plan, Task
from collplan.planner.plan.ragged import INTENT, ON_START

Ends = list[tuple[int, int]]
"""Rows of the send and the receive of every message."""

PADDING: Final = 12.0
_LINE_HEIGHT: Final = 10.5
_NODE_GAP: Final = 22.0
_HEADER: Final = 44.0
_ROUND_GAP: Final = 16.0
_MAX_SIGNS: Final = 24
_MAX_WIDE_RANKS: Final = 16
"""Greatest number of ranks with wide columns, in which boxes show the data of tasks."""


@dataclass(frozen=True, slots=True)
class TaskGrid:
    """Layout of the view, with a column per rank and a line per step of a round."""

    tasks: list[Task]
    labels: list[list[str]]
    boxes: list[Box]
    line: list[int]
    """Line of the grid for each task."""
    line_y: list[float]
    column_x: dict[int, float]
    """Horizontal position of each drawn rank, from left to right."""
    column_width: float
    column_gap: float
    rounds: list[tuple[str, float]]
    """Names of the bands of lines in order, and the vertical positions at which they begin."""
    right: float
    bottom: float


def lay_out(
    plan: Plan, ends: Ends, top: float, times: style.Times | None, looks: style.Looks
) -> TaskGrid:
    """Return the layout of the tasks of `plan` below `top`, given the rows of its messages."""
    tasks = list(plan.tasks())
    # The columns of a node are adjacent for any order of ranks.
    by_node = np.argsort(plan.rank_node, kind="stable").tolist()
    ranks = by_node if plan.only_rank is None else [plan.only_rank]
    is_wide = len(ranks) <= _MAX_WIDE_RANKS
    labels = [_label(task, is_wide, times) for task in tasks]
    if is_wide:
        for task, lines in zip(tasks, labels, strict=True):
            lines += looks.lines(plan, task)
    names, band = _bands(plan)
    line, first_lines = _lines(plan, ends, band, len(names))

    widest = max((_label_width(lines) for lines in labels), default=0.0)
    width = max(64.0 if is_wide else 44.0, 10 + widest)
    height = 6 + _LINE_HEIGHT * max(map(len, labels), default=1)
    column_gap = 30.0 if is_wide else 22.0
    x = 2 * PADDING + style.text_width(names, style.FONT_SIZE)
    column_x: dict[int, float] = {}
    for before, rank in zip([ranks[0], *ranks], ranks, strict=False):
        if rank != ranks[0]:
            x += width + column_gap
            x += _NODE_GAP * (plan.rank_node[rank] != plan.rank_node[before])
        column_x[rank] = x + width / 2

    line_y, rounds, y = [], [], top + _HEADER
    begins = dict(zip(first_lines, names, strict=True))
    for i, gap in enumerate(_gaps(plan, ends, line)):
        if i in begins:
            rounds.append((begins[i], y))
            y += _ROUND_GAP / 2
        line_y.append(y + height / 2)
        y += height + gap
        if i + 1 in begins:
            y += _ROUND_GAP / 2 - 4
    boxes = [Box(column_x[task.rank], line_y[line[task.row]], width, height) for task in tasks]
    right, bottom = x + width + 2 * PADDING, y + PADDING
    return TaskGrid(
        tasks, labels, boxes, line, line_y, column_x, width, column_gap, rounds, right, bottom
    )


def _bands(plan: Plan) -> tuple[list[str], list[int]]:
    """Return the names of the rounds in order, and the index of the round of each task."""
    if not plan.n_tasks:
        return [], []
    keys, band = np.unique(np.stack((plan.phase, plan.round)), axis=1, return_inverse=True)
    names = plan.phases if len(plan.phases) > 1 else (Phase("round"),)
    return [f"{names[phase]} {rnd}" for phase, rnd in keys.T.tolist()], band.ravel().tolist()


def _lines(plan: Plan, ends: Ends, band: list[int], n_bands: int) -> tuple[list[int], list[int]]:
    """Return the line of every task and the first line of every band.

    A line has at most one task per rank. Within a round, tasks are below those they wait for.
    """
    n = plan.n_tasks
    after = plan.deps.owner().tolist()
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
        # Receives come after all other ready tasks, because they have to wait for their messages.
        ready = [(is_recv[row], row) for row in rows if n_waiting[row] == 0]
        heapq.heapify(ready)
        pending = iter(rows)
        end = start
        for _ in rows:
            # A plan with a deadlock is also drawn: the first remaining row breaks the cycle.
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
    """Return the space below every line, which grows with the number of messages that cross."""
    n_lines = max(line, default=-1) + 1
    crossing = np.zeros((n_lines, plan.n_ranks + 1), dtype=np.int64)
    for send, recv in ends:
        low, high = sorted((int(plan.rank[send]), int(plan.rank[recv])))
        for gutter in {line[send], line[recv] - 1}:
            crossing[gutter, low] += 1
            crossing[gutter, high] -= 1
    most = np.cumsum(crossing, axis=1).max(axis=1)
    return [12.0 if n == 0 else min(20.0 + 4.0 * n, 64.0) for n in most.tolist()]


def _label(task: Task, is_wide: bool, times: style.Times | None) -> list[str]:
    """Return operation, extent, and times of a task; the extent is the read one for sends."""
    action = task.op.name.lower()
    if task.op is Op.SEND:
        action += f" → {task.peer}"
    elif task.op is Op.RECV:
        action += f" ← {task.peer}"
    elif task.op is Op.CALL:
        action += f" (group {task.tag})"
    lines = [action]
    extents = task.reads if task.op is Op.SEND else task.writes
    if task.op is Op.COMPUTE:
        lines.append(style.format_time(task.duration_ns))
    elif extents and is_wide:
        more = f" +{len(extents) - 1}" if len(extents) > 1 else ""
        lines.append(style.shorten(str(extents[0]), _MAX_SIGNS) + more)
    if times is not None:
        start, end = times.start_ns[task.row], times.end_ns[task.row]
        lines.append(f"{style.format_time(start)} – {style.format_time(end)}")
    return lines


def _label_width(lines: list[str]) -> float:
    return max(
        style.text_width(lines[:1], style.FONT_SIZE + 0.5),
        style.text_width(lines[1:], style.FONT_SIZE - 1),
    )


def draw_tasks(sheet: Sheet, plan: Plan, top: float, times: style.Times | None) -> Box:
    """Draw every task of `plan` below `top`, and return the area of the view."""
    ends = pair_ends(plan)
    looks = style.Looks.of(plan)
    grid = lay_out(plan, ends, top, times, looks)
    _draw_nodes(sheet, plan, grid, top, shows_cores=bool(looks.core_colors))
    _draw_rounds(sheet, grid)
    for task in grid.tasks:
        label = grid.labels[task.row]
        unsaid = (line for line in looks.lines(plan, task) if line not in label)
        sheet.box(
            f"t{task.row}",
            grid.boxes[task.row],
            label,
            inside=f"rank_{task.rank}",
            tooltip=", ".join((str(task), *unsaid)),
            **looks.attributes(plan, task),
        )
    _draw_dependencies(sheet, plan, grid)
    _draw_messages(sheet, plan, ends, grid)
    _draw_calls(sheet, plan, grid)
    return Box.below(top, grid.right, grid.bottom)


def _draw_nodes(sheet: Sheet, plan: Plan, grid: TaskGrid, top: float, *, shows_cores: bool) -> None:
    """Draw a frame around every rank, and a frame around the ranks of every node."""
    half = grid.column_width / 2
    for node, members in groupby(grid.column_x.items(), lambda column: plan.rank_node[column[0]]):
        columns = list(members)
        left, right = columns[0][1] - half - PADDING, columns[-1][1] + half + PADDING
        frame = f"node_{node}"
        sheet.titled_frame(frame, (left, top, right, grid.bottom), f"node {node}", drop=11)
        for rank, x in columns:
            sheet.frame(
                f"rank_{rank}",
                (x - half - 6, top + 22, x + half + 6, grid.bottom - 6),
                f"rank {rank}" + f", core {plan.rank_core[rank]}" * shows_cores,
                (x, top + 32),
                inside=frame,
                fillcolor=style.RANK_FILL,
                color=style.RANK_LINE,
            )


def _draw_rounds(sheet: Sheet, grid: TaskGrid) -> None:
    for i, (name, y) in enumerate(grid.rounds):
        sheet.frame(
            f"round_{i}",
            (0, y, grid.right, y),
            name,
            (PADDING / 2 + style.text_width([name]) / 2, y + 12),
            fontcolor=style.FAINT_INK,
            style="dashed",
            color="#9aa5b1",
            penwidth="0.5",
        )


def _draw_dependencies(sheet: Sheet, plan: Plan, grid: TaskGrid) -> None:
    # `place` is the number of boxes above each task in its column.
    order = np.argsort(grid.line, kind="stable")
    place = csr.occurrence(plan.rank[order])[csr.inverse(order)].tolist()
    deps = plan.deps
    dependencies = zip(deps.owner().tolist(), deps.task.tolist(), deps.kind.tolist(), strict=True)
    for row, before, kind in dependencies:
        tail, head = grid.boxes[before], grid.boxes[row]
        if tail.x != head.x:
            start = tail.x - tail.width / 4, tail.bottom
            curve = _fall(start, (head.x - head.width / 4, head.top))
        else:
            curve = _bow(tail, head, abs(place[row] - place[before]) - 1)
        moment = "starts" if kind & ON_START else "is complete"
        sheet.arrow(
            f"t{before}",
            f"t{row}",
            curve,
            size=0.4,
            style="dashed" if kind & INTENT else "solid",
            color=style.DEPENDENCY_COLOR,
            penwidth="0.8",
            tooltip=f"#{row} waits until #{before} {moment}",
        )


def _bow(tail: Box, head: Box, n_between: int) -> list[Point]:
    """Return a curve within a column, which passes the boxes in between on their left."""
    if n_between == 0 and tail.bottom < head.top:
        x = tail.x - tail.width / 4
        return [(x, tail.bottom), (x, tail.bottom), (x, head.top), (x, head.top)]
    reach = tail.left - min(6.0 + 3.0 * n_between, 14.0)
    return [(tail.left, tail.y), (reach, tail.y), (reach, head.y), (head.left, head.y)]


def _fall(start: Point, end: Point) -> list[Point]:
    """Return a curve that leaves the start downwards and reaches the end from above."""
    middle = (start[1] + end[1]) / 2
    return [start, (start[0], middle), (end[0], middle), end]


def _draw_messages(sheet: Sheet, plan: Plan, ends: Ends, grid: TaskGrid) -> None:
    for i, (send, recv) in enumerate(ends):
        n_bytes, lane = int(plan.elements[send]) * plan.itemsize, int(plan.lane[send])
        source, dest = grid.tasks[send].rank, grid.tasks[recv].rank
        on_lane = f" on lane {lane}" if lane >= 0 else ""
        sheet.arrow(
            f"t{send}",
            f"t{recv}",
            _route(grid, send, recv, i),
            color=style.lane_color(lane),
            penwidth=f"{style.line_width(n_bytes):g}",
            tooltip=f"rank {source} → {dest}: {style.format_bytes(n_bytes)}{on_lane}",
        )


def _draw_calls(sheet: Sheet, plan: Plan, grid: TaskGrid) -> None:
    """Draw lines between adjacent members of every group that calls MPI together."""
    rows = np.flatnonzero(plan.op == Op.CALL)
    at = {(int(plan.phase[row]), int(plan.tag[row]), int(plan.rank[row])): row for row in rows}
    for number, phase in enumerate(plan.phases):
        for call, tags in zip(phase.calls, phase.call_tags, strict=True):
            keys = zip(tags, call.members, strict=True)
            there = [at.get((number, *key)) for key in keys]
            boxes = sorted((grid.boxes[row].x, row) for row in there if row is not None)
            for (_, one), (_, other) in pairwise(boxes):
                tail, head = grid.boxes[one], grid.boxes[other]
                sheet.line(
                    f"t{one}",
                    f"t{other}",
                    (tail.right, tail.y),
                    (head.left, head.y),
                    color=style.CALL_COLOR,
                    tooltip=f"{phase}: {len(call.members)} ranks, {call.members[0]} first",
                )


def _route(grid: TaskGrid, send: int, recv: int, number: int) -> list[Point]:
    """Return a curve from the bottom of a send to the top of its receive that crosses no box."""
    tail, head = grid.boxes[send], grid.boxes[recv]
    start, end = (tail.x, tail.bottom), (head.x, head.top)
    first, last = grid.line[send], grid.line[recv]
    if last <= first:
        drop = head.height
        return [start, (start[0], start[1] + drop), (end[0], end[1] - drop), end]
    if last == first + 1:
        return _fall(start, end)
    # The curve passes below the line of the send, beside the column of the receiver, and above the
    # line of the receive.
    side = 1 if tail.x > head.x else -1
    x = head.x + side * (head.width / 2 + grid.column_gap / 2 + (number % 5 - 2) * 2.5)
    upper = (x, grid.line_y[first + 1] - head.height / 2)
    lower = (x, grid.line_y[last - 1] + head.height / 2)
    return [*_fall(start, upper), upper, lower, lower, *_fall(lower, end)[1:]]


def pair_ends(plan: Plan) -> Ends:
    """Return the rows of the send and the receive of every message, by ascending send.

    The result is empty if sends and receives do not match, so that a wrong plan can be drawn to
    find the mistake. It is also empty for the program of one rank, which has only one end of each
    message.
    """
    if plan.only_rank is not None:
        return []
    try:
        sends, recvs = match_messages(plan)
    except MatchError:
        return []
    return list(zip(sends.tolist(), recvs.tolist(), strict=True))
