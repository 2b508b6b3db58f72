"""The complete picture as dot source: the view of a plan, its title and its legend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np

from collplan.planner.draw import style
from collplan.planner.draw.phase_view import draw_phases
from collplan.planner.draw.place_views import (
    DrawnMessages,
    collect_messages,
    count_flows,
    describe_flows,
    draw_nodes,
    draw_ranks,
)
from collplan.planner.draw.rendering import DrawError
from collplan.planner.draw.sheet import Box, Sheet
from collplan.planner.draw.task_view import draw_tasks
from collplan.planner.formats.text import headline
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import INTENT
from collplan.specs.errors import show_value

TITLE_HEIGHT: Final = 46.0
_ROW_HEIGHT: Final = 22.0
_MIN_WIDTH: Final = 560.0


def draw_legend(
    sheet: Sheet, plan: Plan, lanes: Sequence[int], area: Box, *, shows_tasks: bool
) -> None:
    """Draw a legend below `area`, with types of tasks, `lanes` (-1: in a node) and dependencies."""
    x, y = 0.0, area.bottom + 24
    for i, (text, look) in enumerate(_entries(plan, lanes, shows_tasks)):
        width = 40 + style.text_width([text], style.FONT_SIZE)
        if x and x + width > max(area.right, _MIN_WIDTH):
            x, y = 0.0, y + _ROW_HEIGHT
        name, label = f"legend_{i}", f"legend_{i}_text"
        if "fillcolor" in look:
            sheet.box(name, Box(x + 12, y, 24, 12), [" "], **look)
        elif look:
            sheet.arrow(label, label, [(x + d, y) for d in (0, 8, 16, 24)], size=0.5, **look)
        sheet.text(label, (x + (30 if look else 6), y), text)
        x += width


def _entries(
    plan: Plan, lanes: Sequence[int], shows_tasks: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Generate the texts, each with the look of its box or arrow, which is empty for none."""
    if shows_tasks:
        yield from ((op.name.lower(), style.OP_LOOKS[op]) for op in Op if (plan.op == op).any())
        yield from style.Looks.of(plan).legend()
    for lane in lanes:
        look = {"color": style.lane_color(lane), "style": "solid", "penwidth": "2.2"}
        yield "message in a node" if lane < 0 else _lane_name(plan, lane), look
    if shows_tasks:
        is_intent = (plan.deps.kind & INTENT) > 0
        look = {"color": style.DEPENDENCY_COLOR, "style": "solid", "penwidth": "0.8"}
        if not is_intent.all():
            yield "dependency", look
        if is_intent.any():
            yield "intent", look | {"style": "dashed"}
    if lanes:
        yield "wider: more bytes", {}


def _lane_name(plan: Plan, lane: int) -> str:
    """Return the text for a lane, with its relative rate if lanes have different rates."""
    rates = () if plan.machine is None else plan.machine.lane_rates
    if len(set(rates)) < 2:
        return f"on lane {lane}"
    return f"on lane {lane} ({rates[lane] / max(rates):.0%} of the fastest)"


View = Literal["auto", "task", "rank", "node", "phase"]
_VIEWS: Final = get_args(View)[1:]
"""Views of a plan, from the finest to the coarsest."""

MAX_READABLE_TASKS: Final = 400
"""Greatest number of tasks that "auto" draws with a box per task."""
MAX_READABLE_COLUMNS: Final = 40
MAX_READABLE_BOXES: Final = 16
"""Greatest number of ranks or nodes that "auto" draws; a picture of phases has room for any."""
MAX_READABLE_ARROWS: Final = 320
MAX_READABLE_POINTS: Final = 3000.0
"""Greatest width and height of what "auto" draws, which are 4,000 pixels of a picture."""
MAX_TASKS: Final = 4000
"""Greatest number of tasks that are drawn with a box per task on request."""
MAX_BOXES: Final = 1024
MAX_ARROWS: Final = 6000


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A view that can be drawn: its caption, and a function that draws it below a height."""

    caption: str
    draw: Callable[[Sheet, float], Box]
    lanes: tuple[int, ...] = ()
    """Lanes of the messages that the view shows; -1 is inside a node."""
    shows_tasks: bool = False


def picture(plan: Plan, by: str = "auto", timeline: style.Times | None = None) -> str:
    """Return the picture of `plan` as dot source.

    Parameters
    ----------
    plan : Plan
        Any plan, of all ranks or of one rank.
    by : {"auto", "task", "rank", "node", "phase"}
        Unit that a box represents.
    timeline : object with ``start_ns`` and ``end_ns``, optional
        Start and end of every task in ns, which are shown in the boxes of tasks.

    Raises
    ------
    DrawError
        If the view is unknown, or if the timeline has another number of tasks.
    """
    if by not in get_args(View):
        raise DrawError(
            f"by={show_value(by)} is not a view; use one of {', '.join(get_args(View))}"
        )
    if timeline is not None and not hasattr(timeline, "end_ns"):
        raise DrawError(
            f"timeline={show_value(timeline)} is no timeline; give what simulate returns"
        )
    if timeline is not None and len(timeline.end_ns) != plan.n_tasks:
        raise DrawError(
            f"timeline of {len(timeline.end_ns)} tasks, the plan has {plan.n_tasks}; "
            f"simulate this plan"
        )
    messages = collect_messages(plan)
    for sketch in _sketches(plan, messages, by, timeline):
        sheet = Sheet()
        sheet.text("title", (0, 10), headline(plan), size=15)
        sheet.text("subtitle", (0, 30), sketch.caption, size=10, fontcolor=style.FAINT_INK)
        area = sketch.draw(sheet, TITLE_HEIGHT)
        draw_legend(sheet, plan, sketch.lanes, area, shows_tasks=sketch.shows_tasks)
        if by != "auto" or max(area.right, area.bottom) <= MAX_READABLE_POINTS:
            break
    return sheet.source()  # the last view is the coarsest


def _sketches(
    plan: Plan, messages: DrawnMessages, by: str, timeline: style.Times | None
) -> Iterator[_Sketch]:
    """Generate the requested view and all coarser ones that can be drawn, from the finest."""
    wanted = "task" if by == "auto" else by
    counts = (plan.n_tasks, "task"), (len(messages), "message")
    totals = ", ".join(style.format_count(*count) for count in counts)
    totals += f", {style.format_bytes(int(messages.n_bytes.sum()))}"
    if timeline is not None and plan.n_tasks:
        totals += f", {style.format_time(float(timeline.end_ns.max()))}"
    reason = "" if by == "auto" else f"too many to draw by {by}, "
    for name in _VIEWS[_VIEWS.index(wanted) :]:
        sketch = _sketch(name, plan, messages, timeline, is_forced=by == name)
        if sketch is not None:
            coarser = "" if name == wanted else f": {reason}collapsed by {name}"
            yield replace(sketch, caption=f"{totals}{coarser}; {sketch.caption}")


def _sketch(
    view: str, plan: Plan, messages: DrawnMessages, timeline: style.Times | None, *, is_forced: bool
) -> _Sketch | None:
    """Return a view of the plan, or None if it has more elements than can be drawn."""
    if view == "phase":
        return _Sketch("rounds and their totals", lambda sheet, top: draw_phases(sheet, plan, top))
    if view == "task":
        n_columns = plan.n_ranks if plan.only_rank is None else 1
        if plan.n_tasks > (MAX_TASKS if is_forced else MAX_READABLE_TASKS):
            return None
        if n_columns > (MAX_BOXES if is_forced else MAX_READABLE_COLUMNS):
            return None
        return _Sketch(
            "one box per task",
            lambda sheet, top: draw_tasks(sheet, plan, top, timeline),
            lanes=tuple(np.unique(messages.lane).tolist()),
            shows_tasks=True,
        )
    if plan.folding is not None:
        return None  # The arrows to other nodes would lead back to the same node.
    by_rank = view == "rank"
    n_boxes = plan.n_ranks if by_rank else plan.n_nodes
    # A single node would be a single box, and the view of phases shows more.
    if n_boxes > (MAX_BOXES if is_forced else MAX_READABLE_BOXES) or (
        n_boxes == 1 and not by_rank and not is_forced
    ):
        return None
    flows, inside = count_flows(messages, np.arange(plan.n_ranks) if by_rank else plan.rank_node)
    if len(flows) > (MAX_ARROWS if is_forced else MAX_READABLE_ARROWS):
        return None
    draw = draw_ranks if by_rank else partial(draw_nodes, inside=inside)
    lanes = tuple(sorted({flow.lane for flow in flows}))
    return _Sketch(describe_flows(flows), lambda sheet, top: draw(sheet, plan, top, flows), lanes)
