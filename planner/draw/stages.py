"""How a task's box shows when it runs, and on which core if not its rank's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.draw.style import CORE_COLORS, FAINT_INK, OP_COLORS, RANK_FILL
from collplan.planner.plan.plan import Stage, Task

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

STAGE_STYLES: Final[Mapping[Stage, dict[str, str]]] = {
    Stage.START: {"penwidth": "2.4"},
    Stage.BACKGROUND: {},
    Stage.WAIT: {"penwidth": "2.4", "style": "rounded,filled,dashed"},
}
"""The border of a box by its task's stage."""
_STAGE_WORDS: Final = {Stage.START: "inside start", Stage.WAIT: "inside wait"}


@dataclass(frozen=True, slots=True)
class Looks:
    """What boxes of a plan show of its stages and communication cores.

    Parameters
    ----------
    core_colors : dict
        Colour of every communication core, by its number in its node.
    stages : tuple of Stage
        The stages that differ from the background and occur.
    """

    core_colors: Mapping[int, str]
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, plan: Plan) -> Looks:
        """Return the looks of a plan's tasks."""
        cores = np.unique(plan.core[plan.core != plan.rank_core[plan.rank]]).tolist()
        colors = {core: CORE_COLORS[i % len(CORE_COLORS)] for i, core in enumerate(cores)}
        stages = (Stage(stage) for stage in np.unique(plan.stage).tolist())
        return cls(colors, tuple(stage for stage in stages if stage is not Stage.BACKGROUND))

    def lines(self, plan: Plan, task: Task) -> Iterator[str]:
        """Say in which stage a task runs, and on which core, if that is not as usual."""
        if task.stage is not Stage.BACKGROUND:
            yield _STAGE_WORDS[task.stage]
        if task.core != plan.rank_core[task.rank]:
            yield f"on core {task.core}"

    def attributes(self, plan: Plan, task: Task) -> dict[str, str]:
        """Return the attributes of a task's box."""
        border, fill = OP_COLORS[task.op]
        look = {"color": border, "fillcolor": fill} | STAGE_STYLES[task.stage]
        if task.core != plan.rank_core[task.rank]:
            look |= {"color": self.core_colors[task.core], "penwidth": "1.6"}
        return look

    def legend(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Generate what the marks mean, and the attributes of a box that has them."""
        for stage in self.stages:
            look = {"color": FAINT_INK, "fillcolor": RANK_FILL} | STAGE_STYLES[stage]
            yield _STAGE_WORDS[stage], look
        for core, color in self.core_colors.items():
            look = {"color": color, "fillcolor": RANK_FILL, "penwidth": "1.6"}
            yield f"on communication core {core}", look
