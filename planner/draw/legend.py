"""What stands above and below a picture: its title, and what the colours mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from collplan.planner.draw.sheet import Box, Sheet
from collplan.planner.draw.stages import Looks
from collplan.planner.draw.style import (
    DEPENDENCY_COLOR,
    FAINT_INK,
    FONT_SIZE,
    OP_COLORS,
    lane_color,
    text_width,
)
from collplan.planner.plan.plan import INTENT, Op

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

TITLE_HEIGHT: Final = 46.0
_ROW_HEIGHT: Final = 22.0
_MIN_WIDTH: Final = 560.0


def draw_title(sheet: Sheet, title: str, subtitle: str) -> None:
    """Write the title, and below it what is shown, at the top of the sheet."""
    sheet.text("title", (0, 10), title, size=15)
    sheet.text("subtitle", (0, 30), subtitle, size=10, fontcolor=FAINT_INK)


def draw_legend(
    sheet: Sheet, plan: Plan, lanes: Sequence[int], area: Box, *, shows_tasks: bool
) -> None:
    """Explain below `area` the kinds, `lanes` (-1: in a node) and dependencies in it."""
    entries = list(_entries(plan, lanes, shows_tasks))
    x, y = 0.0, area.bottom + 24
    for i, entry in enumerate(entries):
        width = 40 + text_width([entry.text], FONT_SIZE)
        if x and x + width > max(area.right, _MIN_WIDTH):
            x, y = 0.0, y + _ROW_HEIGHT
        name = f"legend_{i}"
        indent = 30 if entry.color else 6
        if entry.fill:
            look = {"color": entry.color, "fillcolor": entry.fill, **entry.look}
            sheet.box(name, Box(x + 12, y, 24, 12), [" "], **look)
        elif entry.color:
            sheet.arrow(
                f"{name}_text",
                f"{name}_text",
                [(x, y), (x + 8, y), (x + 16, y), (x + 24, y)],
                size=0.5,
                color=entry.color,
                style=entry.style,
                penwidth=f"{entry.width:g}",
            )
        sheet.text(f"{name}_text", (x + indent, y), entry.text)
        x += width


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the legend: a swatch where there is a fill, an arrow where only a colour."""

    text: str
    color: str = ""
    fill: str = ""
    style: str = "solid"
    width: float = 2.2
    look: Mapping[str, str] = field(default_factory=dict)


def _entries(plan: Plan, lanes: Sequence[int], shows_tasks: bool) -> Iterator[_Entry]:
    if shows_tasks:
        yield from (_Entry(op.name.lower(), *OP_COLORS[op]) for op in Op if (plan.op == op).any())
        for text, look in Looks.of(plan).legend():
            yield _Entry(text, look["color"], look["fillcolor"], look=look)
    for lane in lanes:
        yield _Entry("message in a node" if lane < 0 else f"on lane {lane}", lane_color(lane))
    if shows_tasks:
        is_intent = (plan.deps.kind & INTENT) > 0
        if not is_intent.all():
            yield _Entry("dependency", DEPENDENCY_COLOR, width=0.8)
        if is_intent.any():
            yield _Entry("intent", DEPENDENCY_COLOR, style="dashed", width=0.8)
    if lanes:
        yield _Entry("wider: more bytes")
