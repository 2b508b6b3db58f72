"""Coarser views: a box a rank or a node, and on the arrows what they send each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.draw.messages import Messages
from collplan.planner.draw.sheet import Box, Point, Sheet
from collplan.planner.draw.style import (
    LOCAL_COLOR,
    NODE_FILL,
    NODE_LINE,
    RANK_FILL,
    format_count,
)
from collplan.planner.draw.traffic import Flow, count_flows, draw_flows, has_labels

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

_RANK_HEIGHT: Final = 19.0
_NODE_WIDTH: Final = 164.0
_NODE_HEIGHT: Final = 58.0
_MIN_RADIUS: Final = 75.0
_PADDING: Final = 18.0
_LABEL_GAP: Final = 150.0
"""Between nodes, where arrows have labels."""
_LABEL_ROOM: Final = 34.0
"""Above and below the nodes, for arrows with labels."""


def rank_flows(plan: Plan, messages: Messages) -> list[Flow]:
    """Return what ranks send each other."""
    return count_flows(messages, np.arange(plan.n_ranks))


def node_flows(plan: Plan, messages: Messages) -> list[Flow]:
    """Return what nodes send each other, lane by lane."""
    return count_flows(messages, plan.rank_node.astype(np.int64))


def draw_ranks(sheet: Sheet, plan: Plan, flows: list[Flow], top: float) -> Box:
    """Draw a box a rank, in circles inside a circle of nodes; return what all of it takes."""
    members = [np.flatnonzero(plan.rank_node == node).tolist() for node in range(plan.n_nodes)]
    # Where there are many, a rank is a bare number.
    word, rank_width = ("rank ", 44.0) if plan.n_ranks <= 16 else ("", 26.0)
    room = rank_width + (60 if has_labels(flows) else 16)
    radius = max(_radius(len(ranks), room) for ranks in members)
    width = 2 * radius + rank_width + 2 * _PADDING
    height = 2 * radius + _RANK_HEIGHT + 2 * _PADDING + 14
    centres, area = _circle(plan.n_nodes, width, height, top)
    tasks = np.bincount(plan.rank, minlength=plan.n_ranks)
    boxes = [Box(0, 0, 0, 0)] * plan.n_ranks
    for node, ranks in enumerate(members):
        x, y = centres[node]
        sheet.frame(
            f"node_{node}",
            (x - width / 2, y - height / 2, x + width / 2, y + height / 2),
            label=f"node {node}",
            label_at=(x, y - height / 2 + 12),
            fontsize="11",
            fillcolor=NODE_FILL,
            color=NODE_LINE,
        )
        for rank, (dx, dy) in zip(ranks, _directions(len(ranks)), strict=True):
            at = (x + radius * dx, y + 7 + radius * dy)
            boxes[rank] = Box(*at, rank_width, _RANK_HEIGHT)
            sheet.box(
                f"rank_{rank}",
                boxes[rank],
                [f"{word}{rank}"],
                inside=f"node_{node}",
                fillcolor=RANK_FILL,
                color=LOCAL_COLOR,
                tooltip=f"rank {rank}: {format_count(int(tasks[rank]), 'task')}",
            )
    draw_flows(sheet, flows, boxes, "rank")
    return area


def _radius(n: int, room: float) -> float:
    """Return the radius of a circle on which `n` boxes have `room` each."""
    return 0.0 if n == 1 else max(_MIN_RADIUS, room / 2 / math.sin(math.pi / n))


def _directions(n: int) -> list[Point]:
    """Return `n` points of the unit circle, clockwise; an even number lies flat, in rows."""
    if n == 1:
        return [(0.0, 0.0)]
    start = -math.pi / 2 if n == 2 else -math.pi / n if n % 2 == 0 else 0.0
    angles = [start + 2 * math.pi * i / n for i in range(n)]
    return [(math.sin(angle), -math.cos(angle)) for angle in angles]


def _circle(
    n: int, width: float, height: float, top: float, gap: float = 30.0
) -> tuple[list[Point], Box]:
    """Return the centres of `n` rectangles on a circle below `top`, and the area they take.

    Neighbours are at least `gap` apart.
    """
    if n > 2:
        radius = _radius(n, math.hypot(width, height) + gap)
    else:
        radius = (n - 1) * (width + max(80.0, gap)) / 2
    directions = _directions(n)
    left, right, above, below = (
        bound(point[axis] for point in directions) * radius
        for axis in (0, 1)
        for bound in (min, max)
    )
    centres = [
        (x * radius - left + width / 2, y * radius - above + height / 2 + top)
        for x, y in directions
    ]
    size = right - left + width, below - above + height
    return centres, Box(size[0] / 2, top + size[1] / 2, *size)


def draw_nodes(sheet: Sheet, plan: Plan, messages: Messages, flows: list[Flow], top: float) -> Box:
    """Draw a box a node, in a circle, with what it sends inside itself."""
    n = plan.n_nodes
    place = plan.rank_node.astype(np.int64)
    inside = {
        flow.source: flow
        for flow in count_flows(messages, place, keep_inside=True)
        if flow.source == flow.dest
    }
    n_ranks = np.bincount(plan.rank_node, minlength=n)
    tasks = np.bincount(plan.node, minlength=n)
    gap, above = (_LABEL_GAP, _LABEL_ROOM) if has_labels(flows) else (30.0, 0.0)
    centres, area = _circle(n, _NODE_WIDTH, _NODE_HEIGHT, top + above, gap)
    boxes = [Box(x, y, _NODE_WIDTH, _NODE_HEIGHT) for x, y in centres]
    for node, box in enumerate(boxes):
        ranks, work = int(n_ranks[node]), int(tasks[node])
        lines = [f"node {node}", f"{format_count(ranks, 'rank')}, {format_count(work, 'task')}"]
        if node in inside:
            lines.append(f"inside {inside[node].size}")
        sheet.box(f"node_{node}", box, lines, fillcolor=NODE_FILL, color=LOCAL_COLOR)
    draw_flows(sheet, flows, boxes, "node")
    # Arrows between the topmost and the lowest nodes bulge beyond them.
    return Box(area.x, area.y, area.width, area.height + 2 * above)
