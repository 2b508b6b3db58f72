"""Which view a plan gets, and the whole picture as dot source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from collplan.planner.draw.errors import DrawError
from collplan.planner.draw.legend import TITLE_HEIGHT, draw_legend, draw_title
from collplan.planner.draw.messages import Messages, collect_messages
from collplan.planner.draw.phase_view import draw_phases
from collplan.planner.draw.place_views import draw_nodes, draw_ranks, node_flows, rank_flows
from collplan.planner.draw.sheet import Box, Sheet
from collplan.planner.draw.style import Times, format_bytes, format_count, format_time
from collplan.planner.draw.task_view import draw_tasks
from collplan.planner.draw.traffic import Flow, describe_flows
from collplan.planner.formats.text import headline

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

View = Literal["auto", "task", "rank", "node", "phase"]

MAX_READABLE_TASKS: Final = 400
"""What "auto" draws task by task."""
MAX_READABLE_COLUMNS: Final = 40
MAX_READABLE_BOXES: Final = 64
MAX_READABLE_ARROWS: Final = 320
MAX_TASKS: Final = 4000
"""What is drawn task by task where that is asked for."""
MAX_BOXES: Final = 1024
MAX_ARROWS: Final = 6000


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A view that fits: what it shows in words, and how to draw it below a height."""

    caption: str
    draw: Callable[[Sheet, float], Box]
    lanes: tuple[int, ...] = ()
    """Lanes of the messages it shows; -1 is inside a node."""
    shows_tasks: bool = False


def picture(plan: Plan, by: str = "auto", timeline: Times | None = None) -> str:
    """Return the picture of `plan` as dot source.

    Parameters
    ----------
    plan : Plan
        Any plan, of all ranks or of one.
    by : {"auto", "task", "rank", "node", "phase"}
        What a box stands for.
    timeline : object with ``start_ns`` and ``end_ns``, optional
        When every task runs; boxes of tasks say so.

    Raises
    ------
    DrawError
        If there is no such view, or if the timeline is of another plan.
    """
    if by not in get_args(View):
        raise DrawError(f"by={by!r} is no view; use one of {', '.join(get_args(View))}")
    if timeline is not None and len(timeline.end_ns) != plan.n_tasks:
        raise DrawError(
            f"timeline of {len(timeline.end_ns)} tasks, the plan has {plan.n_tasks}; "
            f"simulate this plan"
        )
    messages = collect_messages(plan)
    sketch = _choose(plan, messages, by, timeline)
    sheet = Sheet()
    draw_title(sheet, headline(plan), sketch.caption)
    area = sketch.draw(sheet, TITLE_HEIGHT)
    draw_legend(sheet, plan, sketch.lanes, area, shows_tasks=sketch.shows_tasks)
    return sheet.source()


def _choose(plan: Plan, messages: Messages, by: str, timeline: Times | None) -> _Sketch:
    """Return the view asked for, or the finest one after it that fits."""
    views: dict[str, Callable[[Plan, Messages, bool], _Sketch | None]] = {
        "task": partial(_task_sketch, timeline),
        "rank": _rank_sketch,
        "node": _node_sketch,
        "phase": _phase_sketch,
    }
    names = list(views)
    wanted = "task" if by == "auto" else by
    for name in names[names.index(wanted) :]:
        sketch = views[name](plan, messages, by == name)
        if sketch is not None:
            break
    assert sketch is not None, "the phase view fits any plan"
    totals = f"{format_count(plan.n_tasks, 'task')}, {format_count(len(messages), 'message')}"
    totals += f", {format_bytes(int(messages.n_bytes.sum()))}"
    if timeline is not None and plan.n_tasks:
        totals += f", {format_time(float(timeline.end_ns.max()))}"
    if name != wanted:
        reason = "" if by == "auto" else f"too many to draw by {by}, "
        totals += f": {reason}collapsed by {name}"
    return replace(sketch, caption=f"{totals}; {sketch.caption}")


def _task_sketch(
    timeline: Times | None, plan: Plan, messages: Messages, is_forced: bool
) -> _Sketch | None:
    n_columns = plan.n_ranks if plan.only_rank is None else 1
    if plan.n_tasks > (MAX_TASKS if is_forced else MAX_READABLE_TASKS):
        return None
    if n_columns > (MAX_BOXES if is_forced else MAX_READABLE_COLUMNS):
        return None
    return _Sketch(
        "a box a task",
        lambda sheet, top: draw_tasks(sheet, plan, top, timeline),
        lanes=tuple(np.unique(messages.lane).tolist()),
        shows_tasks=True,
    )


def _rank_sketch(plan: Plan, messages: Messages, is_forced: bool) -> _Sketch | None:
    if not _fits(plan.n_ranks, 0, is_forced):
        return None
    flows = rank_flows(plan, messages)
    if not _fits(plan.n_ranks, len(flows), is_forced):
        return None
    return _flow_sketch(flows, lambda sheet, top: draw_ranks(sheet, plan, flows, top))


def _node_sketch(plan: Plan, messages: Messages, is_forced: bool) -> _Sketch | None:
    # One node would be one box: its rounds say more.
    if (plan.n_nodes == 1 and not is_forced) or not _fits(plan.n_nodes, 0, is_forced):
        return None
    flows = node_flows(plan, messages)
    if not _fits(plan.n_nodes, len(flows), is_forced):
        return None
    return _flow_sketch(flows, lambda sheet, top: draw_nodes(sheet, plan, messages, flows, top))


def _flow_sketch(flows: list[Flow], draw: Callable[[Sheet, float], Box]) -> _Sketch:
    lanes = tuple(sorted({flow.lane for flow in flows}))
    return _Sketch(describe_flows(flows), draw, lanes)


def _phase_sketch(plan: Plan, messages: Messages, is_forced: bool) -> _Sketch:
    return _Sketch("rounds and their totals", lambda sheet, top: draw_phases(sheet, plan, top))


def _fits(n_boxes: int, n_arrows: int, is_forced: bool) -> bool:
    if is_forced:
        return n_boxes <= MAX_BOXES and n_arrows <= MAX_ARROWS
    return n_boxes <= MAX_READABLE_BOXES and n_arrows <= MAX_READABLE_ARROWS
