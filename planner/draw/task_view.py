"""The finest view: a box a task, and an arrow a message or dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collplan.planner.draw.messages import pair_ends
from collplan.planner.draw.sheet import Box, Point, Sheet
from collplan.planner.draw.stages import Looks
from collplan.planner.draw.style import (
    DEPENDENCY_COLOR,
    FAINT_INK,
    NODE_FILL,
    NODE_LINE,
    RANK_FILL,
    RANK_LINE,
    format_bytes,
    lane_color,
    line_width,
    text_width,
)
from collplan.planner.draw.task_grid import PADDING, Ends, Grid, lay_out
from collplan.planner.plan.plan import INTENT, ON_START

if TYPE_CHECKING:
    from collplan.planner.draw.style import Times
    from collplan.planner.plan.plan import Plan


def draw_tasks(sheet: Sheet, plan: Plan, top: float, times: Times | None) -> Box:
    """Draw every task of `plan` below `top`; return the area all of it takes."""
    ends = pair_ends(plan)
    looks = Looks.of(plan)
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
    return Box(grid.right / 2, (top + grid.bottom) / 2, grid.right, grid.bottom - top)


def _draw_nodes(sheet: Sheet, plan: Plan, grid: Grid, top: float, *, shows_cores: bool) -> None:
    """Frame every rank, and around them the ranks of a node."""
    half = grid.column_width / 2
    ranks = list(grid.column_x)
    last_of_nodes = [
        i
        for i, rank in enumerate(ranks)
        if i + 1 == len(ranks) or plan.rank_node[ranks[i + 1]] != plan.rank_node[rank]
    ]
    start = 0
    for end in last_of_nodes:
        node = int(plan.rank_node[ranks[end]])
        left = grid.column_x[ranks[start]] - half - PADDING
        right = grid.column_x[ranks[end]] + half + PADDING
        frame = f"node_{node}"
        sheet.frame(
            frame,
            (left, top, right, grid.bottom),
            label=f"node {node}",
            label_at=((left + right) / 2, top + 11),
            fontsize="11",
            fillcolor=NODE_FILL,
            color=NODE_LINE,
        )
        for rank in ranks[start : end + 1]:
            x = grid.column_x[rank]
            sheet.frame(
                f"rank_{rank}",
                (x - half - 6, top + 22, x + half + 6, grid.bottom - 6),
                inside=frame,
                label=f"rank {rank}" + f", core {plan.rank_core[rank]}" * shows_cores,
                label_at=(x, top + 32),
                fillcolor=RANK_FILL,
                color=RANK_LINE,
            )
        start = end + 1


def _draw_rounds(sheet: Sheet, grid: Grid) -> None:
    for i, (name, y) in enumerate(zip(grid.rounds, grid.round_y, strict=True)):
        sheet.frame(
            f"round_{i}",
            (0, y, grid.right, y),
            label=name,
            label_at=(PADDING / 2 + text_width([name]) / 2, y + 12),
            fontcolor=FAINT_INK,
            style="dashed",
            color="#9aa5b1",
            penwidth="0.5",
        )


def _draw_dependencies(sheet: Sheet, plan: Plan, grid: Grid) -> None:
    place = _places(grid)
    for task in grid.tasks:
        begin = int(plan.deps.indptr[task.row])
        head = grid.boxes[task.row]
        for i, before in enumerate(task.after, start=begin):
            kind = int(plan.deps.kind[i])
            tail = grid.boxes[before]
            if tail.x != head.x:
                curve = _fall(
                    (tail.x - tail.width / 4, tail.bottom), (head.x - head.width / 4, head.top)
                )
            else:
                curve = _bow(tail, head, abs(place[task.row] - place[before]) - 1)
            moment = "starts" if kind & ON_START else "is complete"
            sheet.arrow(
                f"t{before}",
                f"t{task.row}",
                curve,
                size=0.4,
                style="dashed" if kind & INTENT else "solid",
                color=DEPENDENCY_COLOR,
                penwidth="0.8",
                tooltip=f"#{task.row} waits until #{before} {moment}",
            )


def _places(grid: Grid) -> list[int]:
    """Return how many boxes lie above each task in its column."""
    n_above = dict.fromkeys(grid.column_x, 0)
    places = [0] * len(grid.tasks)
    for task in sorted(grid.tasks, key=lambda task: grid.line[task.row]):
        places[task.row] = n_above[task.rank]
        n_above[task.rank] += 1
    return places


def _bow(tail: Box, head: Box, n_between: int) -> list[Point]:
    """Return a curve within a column, past the boxes between on the left."""
    if n_between == 0 and tail.bottom < head.top:
        x = tail.x - tail.width / 4
        return [(x, tail.bottom), (x, tail.bottom), (x, head.top), (x, head.top)]
    reach = tail.left - min(6.0 + 3.0 * n_between, 14.0)
    return [(tail.left, tail.y), (reach, tail.y), (reach, head.y), (head.left, head.y)]


def _fall(start: Point, end: Point) -> list[Point]:
    """Return a curve that leaves downwards and arrives from above."""
    middle = (start[1] + end[1]) / 2
    return [start, (start[0], middle), (end[0], middle), end]


def _draw_messages(sheet: Sheet, plan: Plan, ends: Ends, grid: Grid) -> None:
    for i, (send, recv) in enumerate(ends):
        n_bytes, lane = int(plan.elements[send]) * plan.itemsize, int(plan.lane[send])
        sheet.arrow(
            f"t{send}",
            f"t{recv}",
            _route(grid, send, recv, i),
            color=lane_color(lane),
            penwidth=f"{line_width(n_bytes):g}",
            tooltip=(
                f"rank {grid.tasks[send].rank} → {grid.tasks[recv].rank}: {format_bytes(n_bytes)}"
                + (f" on lane {lane}" if lane >= 0 else "")
            ),
        )


def _route(grid: Grid, send: int, recv: int, number: int) -> list[Point]:
    """Return a curve from below the send to above its receive that crosses no box."""
    tail, head = grid.boxes[send], grid.boxes[recv]
    start, end = (tail.x, tail.bottom), (head.x, head.top)
    first, last = grid.line[send], grid.line[recv]
    if last <= first:
        drop = grid.box_height
        return [start, (start[0], start[1] + drop), (end[0], end[1] - drop), end]
    if last == first + 1:
        return _fall(start, end)
    # Through the gutter below the send, down beside the receiver's column, and in from above.
    side = 1 if tail.x > head.x else -1
    x = head.x + side * (head.width / 2 + grid.column_gap / 2 + (number % 5 - 2) * 2.5)
    upper = (x, grid.line_y[first + 1] - grid.box_height / 2)
    lower = (x, grid.line_y[last - 1] + grid.box_height / 2)
    straight = [upper, lower, lower]
    return [*_fall(start, upper), *straight, *_fall(lower, end)[1:]]
