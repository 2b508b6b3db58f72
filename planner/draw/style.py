"""Style of pictures: colors, widths, borders, and texts for sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from collplan.planner.plan.plan import Op, Plan, Stage, Task

FONT: Final = "Helvetica"
FONT_SIZE: Final = 9.0
INK: Final = "#1f2933"
FAINT_INK: Final = "#616e7c"

# Colors of Okabe and Ito, which can be distinguished with any type of color vision. The fill is a
# tint of the border, for dark text.
OP_LOOKS: Final[Mapping[Op, dict[str, str]]] = {
    Op.SEND: {"color": "#0072b2", "fillcolor": "#cfe5f3"},
    Op.RECV: {"color": "#b57a00", "fillcolor": "#fbe6bd"},
    Op.COPY: {"color": "#5f6b7a", "fillcolor": "#e6e9ee"},
    Op.REDUCE: {"color": "#009e73", "fillcolor": "#c9ecdf"},
    Op.COMPUTE: {"color": "#b3578c", "fillcolor": "#f3d9e7"},
    Op.CALL: {"color": "#332288", "fillcolor": "#dcd8ef"},
}
"""Border and fill of the box of a task, by operation."""

LANE_COLORS: Final = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colors of messages between nodes, by lane; they repeat if there are more lanes."""
CORE_COLORS: Final = ("#d55e00", "#332288", "#117733", "#882255", "#44aa99", "#aa4499")
"""Borders of tasks on communication cores, by core; they repeat if there are more cores."""
CALL_COLOR: Final = OP_LOOKS[Op.CALL]["color"]
"""Color of lines between the members of a group that call MPI together."""
LOCAL_COLOR: Final = "#7b8794"
"""Color of messages inside a node."""
DEPENDENCY_COLOR: Final = "#a9b4c0"
NODE_FILL: Final = "#f1f4f8"
NODE_LINE: Final = "#c5cfdb"
RANK_FILL: Final = "#ffffff"
RANK_LINE: Final = "#e1e7ee"
PLAIN_LOOK: Final = {"fillcolor": RANK_FILL, "color": LOCAL_COLOR}
"""Style of the boxes of ranks and rounds."""


def lane_color(lane: int) -> str:
    """Return the color of messages on `lane`; -1 is inside a node."""
    return LOCAL_COLOR if lane < 0 else LANE_COLORS[lane % len(LANE_COLORS)]


def line_width(n_bytes: int) -> float:
    """Return the line width of a message in points, from 0.8 to 6 on a logarithmic scale.

    >>> line_width(0), line_width(4096), line_width(2**40)
    (0.8, 3.2, 6.0)
    """
    return round(min(0.8 + 0.2 * math.log2(1 + n_bytes), 6.0), 1)


def format_bytes(n_bytes: int) -> str:
    """Return a size as text with a binary unit.

    >>> format_bytes(12), format_bytes(65536), format_bytes(1500000)
    ('12 B', '64 KiB', '1.4 MiB')
    """
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size == int(size) or size >= 100 else f"{size:.1f} {unit}"


def format_count(n: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> format_count(1, "message"), format_count(5242880, "task")
    ('1 message', '5,242,880 tasks')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


class Times(Protocol):
    """Start and end of every task, as a simulation returns them."""

    @property
    def start_ns(self) -> npt.NDArray[np.floating[Any]]:
        """Start of every task, shape ``(n_tasks,)``, in ns."""

    @property
    def end_ns(self) -> npt.NDArray[np.floating[Any]]:
        """End of every task, shape ``(n_tasks,)``, in ns."""


def format_time(time_ns: float) -> str:
    """Return a time as text with a unit.

    >>> format_time(0), format_time(950), format_time(12345), format_time(2.5e9)
    ('0 ns', '950 ns', '12.3 µs', '2.5 s')
    """
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if time_ns >= scale:
            return f"{time_ns / scale:.3g} {unit}"
    return f"{time_ns:.0f} ns"


def text_width(lines: Iterable[str], size: float = FONT_SIZE) -> float:
    """Return an upper estimate of the width of the widest line in points, as fonts differ."""
    return max((len(line) for line in lines), default=0) * size * 0.6


def shorten(text: str, length: int) -> str:
    """Return `text`, shortened to at most `length` characters.

    >>> shorten("recv[115200:230400]", 12)
    'recv[115200…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


STAGE_STYLES: Final[Mapping[Stage, dict[str, str]]] = {
    Stage.START: {"penwidth": "2.4"},
    Stage.BACKGROUND: {},
    Stage.WAIT: {"penwidth": "2.4", "style": "rounded,filled,dashed"},
}
"""Border of a box, by the stage of its task."""
_STAGE_WORDS: Final = {Stage.START: "inside start", Stage.WAIT: "inside wait"}


@dataclass(frozen=True, slots=True)
class Looks:
    """Marks on the boxes of a plan for its stages and communication cores.

    Parameters
    ----------
    core_colors : dict
        Color of every communication core, by its number within its node.
    stages : tuple of Stage
        Stages of the plan's tasks other than the background.
    """

    core_colors: Mapping[int, str]
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, plan: Plan) -> Looks:
        """Return the marks for the tasks of a plan."""
        cores = np.unique(plan.core[plan.core != plan.rank_core[plan.rank]]).tolist()
        colors = {core: CORE_COLORS[i % len(CORE_COLORS)] for i, core in enumerate(cores)}
        stages = (Stage(stage) for stage in np.unique(plan.stage).tolist())
        return cls(colors, tuple(stage for stage in stages if stage is not Stage.BACKGROUND))

    def lines(self, plan: Plan, task: Task) -> Iterator[str]:
        """Generate the stage of a task unless it is the background, and its core if unusual."""
        if task.stage is not Stage.BACKGROUND:
            yield _STAGE_WORDS[task.stage]
        if task.core != plan.rank_core[task.rank]:
            yield f"on core {task.core}"

    def attributes(self, plan: Plan, task: Task) -> dict[str, str]:
        """Return the attributes of a task's box."""
        look = OP_LOOKS[task.op] | STAGE_STYLES[task.stage]
        if task.core != plan.rank_core[task.rank]:
            look |= {"color": self.core_colors[task.core], "penwidth": "1.6"}
        return look

    def legend(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Generate the meaning of each mark, and the attributes of a box with this mark."""
        for stage in self.stages:
            look = {"color": FAINT_INK, "fillcolor": RANK_FILL} | STAGE_STYLES[stage]
            yield _STAGE_WORDS[stage], look
        for core, color in self.core_colors.items():
            look = {"color": color, "fillcolor": RANK_FILL, "penwidth": "1.6"}
            yield f"on communication core {core}", look
