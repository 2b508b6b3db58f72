"""Messages counted by who talks to whom, and arrows for the sums."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from collplan.planner.draw.messages import Messages
from collplan.planner.draw.sheet import Box, Point, Sheet
from collplan.planner.draw.style import (
    FAINT_INK,
    FONT_SIZE,
    format_bytes,
    format_count,
    lane_color,
    line_width,
    text_width,
)

_MAX_LABELS: Final = 40
"""Above so many arrows their labels would hide each other."""


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
        """Return the flow's totals for people."""
        return f"{format_count(self.n_messages, 'message')}, {format_bytes(self.n_bytes)}"


def count_flows(
    messages: Messages, place: npt.NDArray[np.int64], keep_inside: bool = False
) -> list[Flow]:
    """Sum messages by place of source, place of destination, and lane.

    Parameters
    ----------
    messages : Messages
        What to count.
    place : ndarray, shape (n_ranks,)
        Where each rank counts: the rank itself, or its node.
    keep_inside : bool
        Whether messages that stay in one place count too.

    Returns
    -------
    list of Flow
        By source, destination and lane.
    """
    keys = np.stack((place[messages.source], place[messages.dest], messages.lane))
    weights = messages.n_bytes
    if not keep_inside:
        is_between = keys[0] != keys[1]
        keys, weights = keys[:, is_between], weights[is_between]
    if not keys.size:
        return []
    unique, flow, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    totals = np.zeros(unique.shape[1], dtype=np.int64)
    np.add.at(totals, flow.ravel(), weights)
    return [
        Flow(source, dest, lane, n_messages=n, n_bytes=total)
        for (source, dest, lane), n, total in zip(
            unique.T.tolist(), counts.tolist(), totals.tolist(), strict=True
        )
    ]


def describe_flows(flows: list[Flow]) -> str:
    """Return what an arrow carries: the same for all, or from the least to the most."""
    if not flows:
        return "no messages between them"
    n_messages = sorted({flow.n_messages for flow in flows})
    n_bytes = [format_bytes(n) for n in sorted({flow.n_bytes for flow in flows})]
    count = format_count(n_messages[-1], "message")
    if len(n_messages) > 1:
        count = f"{n_messages[0]:,} to {count}"
    size = n_bytes[0] if n_bytes[0] == n_bytes[-1] else f"{n_bytes[0]} to {n_bytes[-1]}"
    return f"{count}, {size} an arrow"


def has_labels(flows: list[Flow]) -> bool:
    """Return whether arrows differ, and are few enough for labels to be seen."""
    return len(flows) <= _MAX_LABELS and len({flow.size for flow in flows}) > 1


def draw_flows(sheet: Sheet, flows: list[Flow], boxes: list[Box], noun: str) -> None:
    """Draw an arrow a flow between boxes; flows of one pair lie beside each other.

    `boxes[i]` stands for place i and is named ``{noun}_{i}`` on the sheet.
    """
    is_labelled = has_labels(flows)
    n_of_pair = Counter((flow.source, flow.dest) for flow in flows)
    nth: dict[tuple[int, int], int] = {}
    for flow in flows:
        pair = flow.source, flow.dest
        nth[pair] = nth.get(pair, -1) + 1
        curve = _arc(boxes[flow.source], boxes[flow.dest], nth[pair])
        label = _short(flow) if is_labelled else ""
        on_lane = f", lane {flow.lane}" if flow.lane >= 0 else ""
        sheet.arrow(
            f"{noun}_{flow.source}",
            f"{noun}_{flow.dest}",
            curve,
            label=label,
            # The first of several arrows has its label inside, clear of the others.
            label_at=_beside(curve, label, inside=nth[pair] == 0 and n_of_pair[pair] > 1),
            fontcolor=FAINT_INK if flow.lane < 0 else lane_color(flow.lane),
            color=lane_color(flow.lane),
            penwidth=f"{line_width(flow.n_bytes):g}",
            tooltip=f"{noun} {flow.source} → {flow.dest}: {flow.size}{on_lane}",
        )


def _short(flow: Flow) -> str:
    return f"{flow.n_messages:,} msg, {format_bytes(flow.n_bytes)}"


def _arc(tail: Box, head: Box, nth: int) -> list[Point]:
    """Return a curve that bends to its right: the way back is another curve."""
    dx, dy = head.x - tail.x, head.y - tail.y
    distance = math.hypot(dx, dy)
    # Beside each other the further ones bend more.
    bend = (0.1 * min(distance, 400) + 20 * nth) / distance
    control = (tail.x + dx / 2 - dy * bend, tail.y + dy / 2 + dx * bend)
    start, end = tail.border_towards(control), head.border_towards(control)
    # The quadratic curve through one control point, as the cubic that graphviz draws.
    (x0, y0), (x1, y1), (x2, y2) = start, control, end
    first = (x0 + (x1 - x0) * 2 / 3, y0 + (y1 - y0) * 2 / 3)
    second = (x2 + (x1 - x2) * 2 / 3, y2 + (y1 - y2) * 2 / 3)
    return [start, first, second, end]


def _beside(curve: list[Point], label: str, inside: bool) -> Point:
    """Return where the label lies: a third along, beside the curve, clear of the line.

    In the middle the labels of arrows that cross would lie on each other.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = curve
    x = (8 * x0 + 12 * x1 + 6 * x2 + x3) / 27
    y = (8 * y0 + 12 * y1 + 6 * y2 + y3) / 27
    length = math.hypot(x3 - x0, y3 - y0) or 1.0
    across = (-(y3 - y0) / length, (x3 - x0) / length)
    reach = 7 + abs(across[0]) * text_width([label], FONT_SIZE - 1) / 2
    if inside:
        reach = -reach
    return x + across[0] * reach, y + across[1] * reach
