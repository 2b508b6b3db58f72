"""Coarser views: a box per rank or per node, and arrows for the messages between them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.draw import style
from collplan.planner.draw.sheet import Box, Point, Sheet
from collplan.planner.plan.plan import Op, Plan


@dataclass(frozen=True, eq=False, slots=True)
class DrawnMessages:
    """Messages of a plan, in ascending order of the row of their send, or of their receive."""

    source: Ints
    dest: Ints
    n_bytes: Ints
    lane: Ints

    def __len__(self) -> int:
        return len(self.source)


def collect_messages(plan: Plan) -> DrawnMessages:
    """Return the messages of `plan`, by its sends; for one rank's program, also by its receives."""
    last = Op.SEND if plan.only_rank is None else Op.RECV
    row = np.flatnonzero(plan.op <= last)
    is_send = plan.op[row] == Op.SEND
    return DrawnMessages(
        source=np.where(is_send, plan.rank[row], plan.peer[row]).astype(np.int64),
        dest=np.where(is_send, plan.peer[row], plan.rank[row]).astype(np.int64),
        n_bytes=plan.elements[row] * plan.itemsize,
        lane=plan.lane[row].astype(np.int64),
    )


_MAX_LABELS: Final = 40
"""Greatest number of arrows whose labels do not hide each other."""


@dataclass(frozen=True, slots=True)
class Flow:
    """All messages from one place to another on one lane."""

    source: int
    dest: int
    lane: int
    n_messages: int
    n_bytes: int

    @property
    def size(self) -> str:
        """Return the totals of the flow as text."""
        n_messages = style.format_count(self.n_messages, "message")
        return f"{n_messages}, {style.format_bytes(self.n_bytes)}"


def count_flows(messages: DrawnMessages, place: Ints) -> tuple[list[Flow], list[Flow]]:
    """Sum messages by place of source, place of destination, and lane.

    Parameters
    ----------
    messages : DrawnMessages
        Messages to count.
    place : ndarray of int64, shape (n_ranks,)
        Place of each rank: the rank itself, or its node.

    Returns
    -------
    between, inside : list of Flow
        Flows between different places, and flows inside a place, both sorted by source,
        destination and lane.
    """
    keys = np.stack((place[messages.source], place[messages.dest], messages.lane))
    if not keys.size:
        return [], []
    unique, flow, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    totals = np.zeros(unique.shape[1], dtype=np.int64)
    np.add.at(totals, flow.ravel(), messages.n_bytes)
    flows = [Flow(*row) for row in np.vstack((unique, counts, totals)).T.tolist()]
    between = [flow for flow in flows if flow.source != flow.dest]
    return between, [flow for flow in flows if flow.source == flow.dest]


def describe_flows(flows: list[Flow]) -> str:
    """Return the messages and bytes per arrow as text, as a range if arrows differ."""
    if not flows:
        return "no messages between them"
    n_messages = sorted({flow.n_messages for flow in flows})
    n_bytes = [style.format_bytes(n) for n in sorted({flow.n_bytes for flow in flows})]
    count = style.format_count(n_messages[-1], "message")
    if len(n_messages) > 1:
        count = f"{n_messages[0]:,} to {count}"
    size = n_bytes[0] if n_bytes[0] == n_bytes[-1] else f"{n_bytes[0]} to {n_bytes[-1]}"
    return f"{count}, {size} an arrow"


def has_labels(flows: list[Flow]) -> bool:
    """Return whether arrows differ, and are few enough for readable labels."""
    return len(flows) <= _MAX_LABELS and len({flow.size for flow in flows}) > 1


def draw_flows(sheet: Sheet, flows: list[Flow], boxes: list[Box], noun: str) -> None:
    """Draw an arrow per flow between boxes; flows of the same pair are drawn side by side.

    `boxes[i]` represents place i and is named ``{noun}_{i}`` on the sheet.
    """
    is_labelled = has_labels(flows)
    n_of_pair = Counter((flow.source, flow.dest) for flow in flows)
    nth: dict[tuple[int, int], int] = {}
    for flow in flows:
        pair = flow.source, flow.dest
        nth[pair] = nth.get(pair, -1) + 1
        curve = _arc(boxes[flow.source], boxes[flow.dest], nth[pair])
        size = style.format_bytes(flow.n_bytes)
        label = f"{flow.n_messages:,} msg, {size}" if is_labelled else ""
        on_lane = f", lane {flow.lane}" if flow.lane >= 0 else ""
        sheet.arrow(
            f"{noun}_{flow.source}",
            f"{noun}_{flow.dest}",
            curve,
            label=label,
            # The label of the first of several arrows is on the inner side, away from the others.
            label_at=_beside(curve, label, inside=nth[pair] == 0 and n_of_pair[pair] > 1),
            fontcolor=style.FAINT_INK if flow.lane < 0 else style.lane_color(flow.lane),
            color=style.lane_color(flow.lane),
            penwidth=f"{style.line_width(flow.n_bytes):g}",
            tooltip=f"{noun} {flow.source} → {flow.dest}: {flow.size}{on_lane}",
        )


def _arc(tail: Box, head: Box, nth: int) -> list[Point]:
    """Return a curve that bends to its right, so that the opposite arrow is a separate curve."""
    dx, dy = head.x - tail.x, head.y - tail.y
    distance = math.hypot(dx, dy)
    # Further arrows of the same pair bend more.
    bend = (0.1 * min(distance, 400) + 20 * nth) / distance
    control = (tail.x + dx / 2 - dy * bend, tail.y + dy / 2 + dx * bend)
    start, end = tail.border_towards(control), head.border_towards(control)
    # The quadratic curve through one control point, as the cubic that graphviz draws.
    (x0, y0), (x1, y1), (x2, y2) = start, control, end
    first = (x0 + (x1 - x0) * 2 / 3, y0 + (y1 - y0) * 2 / 3)
    second = (x2 + (x1 - x2) * 2 / 3, y2 + (y1 - y2) * 2 / 3)
    return [start, first, second, end]


def _beside(curve: list[Point], label: str, inside: bool) -> Point:
    """Return the position of the label, beside the curve at a third of its length.

    In the middle of arrows that cross, labels would overlap.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = curve
    x = (8 * x0 + 12 * x1 + 6 * x2 + x3) / 27
    y = (8 * y0 + 12 * y1 + 6 * y2 + y3) / 27
    length = math.hypot(x3 - x0, y3 - y0) or 1.0
    across = (-(y3 - y0) / length, (x3 - x0) / length)
    reach = 7 + abs(across[0]) * style.text_width([label], style.FONT_SIZE - 1) / 2
    if inside:
        reach = -reach
    return x + across[0] * reach, y + across[1] * reach


_RANK_HEIGHT: Final = 19.0
_NODE_WIDTH: Final = 164.0
_NODE_HEIGHT: Final = 58.0
_MIN_RADIUS: Final = 75.0
_PADDING: Final = 18.0
_LABEL_GAP: Final = 150.0
"""Gap between nodes if arrows have labels, in points."""
_LABEL_ROOM: Final = 34.0
"""Space above and below the nodes if arrows have labels, in points."""


def draw_ranks(sheet: Sheet, plan: Plan, top: float, flows: list[Flow]) -> Box:
    """Draw a box per rank, in circles inside a circle of nodes, and return the area of the view."""
    members = [np.flatnonzero(plan.rank_node == node).tolist() for node in range(plan.n_nodes)]
    # If there are many ranks, their boxes have only numbers.
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
        corners = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        sheet.titled_frame(f"node_{node}", corners, f"node {node}", drop=12)
        for rank, (dx, dy) in zip(ranks, _directions(len(ranks)), strict=True):
            at = (x + radius * dx, y + 7 + radius * dy)
            boxes[rank] = Box(*at, rank_width, _RANK_HEIGHT)
            sheet.box(
                f"rank_{rank}",
                boxes[rank],
                [f"{word}{rank}"],
                inside=f"node_{node}",
                **style.PLAIN_LOOK,
                tooltip=f"rank {rank}: {style.format_count(int(tasks[rank]), 'task')}",
            )
    draw_flows(sheet, flows, boxes, "rank")
    return area


def _radius(n: int, room: float) -> float:
    """Return the radius of a circle on which `n` boxes have `room` each."""
    return 0.0 if n == 1 else max(_MIN_RADIUS, room / 2 / math.sin(math.pi / n))


def _directions(n: int) -> list[Point]:
    """Return `n` points of the unit circle, clockwise; an even number of points forms rows."""
    if n == 1:
        return [(0.0, 0.0)]
    start = -math.pi / 2 if n == 2 else -math.pi / n if n % 2 == 0 else 0.0
    angles = [start + 2 * math.pi * i / n for i in range(n)]
    return [(math.sin(angle), -math.cos(angle)) for angle in angles]


def _circle(
    n: int, width: float, height: float, top: float, gap: float = 30.0
) -> tuple[list[Point], Box]:
    """Return the centers of `n` rectangles on a circle below `top`, and their total area.

    The distance between neighbors is at least `gap`.
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


def draw_nodes(sheet: Sheet, plan: Plan, top: float, flows: list[Flow], inside: list[Flow]) -> Box:
    """Draw a box per node, in a circle, with the messages inside each node; return the area."""
    n = plan.n_nodes
    inside_of = {flow.source: flow for flow in inside}
    n_ranks = np.bincount(plan.rank_node, minlength=n)
    tasks = np.bincount(plan.node, minlength=n)
    gap, above = (_LABEL_GAP, _LABEL_ROOM) if has_labels(flows) else (30.0, 0.0)
    centres, area = _circle(n, _NODE_WIDTH, _NODE_HEIGHT, top + above, gap)
    boxes = [Box(x, y, _NODE_WIDTH, _NODE_HEIGHT) for x, y in centres]
    for node, box in enumerate(boxes):
        ranks, work = int(n_ranks[node]), int(tasks[node])
        lines = [
            f"node {node}",
            f"{style.format_count(ranks, 'rank')}, {style.format_count(work, 'task')}",
        ]
        if node in inside_of:
            lines.append(f"inside {inside_of[node].size}")
        sheet.box(f"node_{node}", box, lines, fillcolor=style.NODE_FILL, color=style.LOCAL_COLOR)
    draw_flows(sheet, flows, boxes, "node")
    # Arrows between the topmost or the lowest nodes extend beyond these nodes.
    return Box(area.x, area.y, area.width, area.height + 2 * above)
