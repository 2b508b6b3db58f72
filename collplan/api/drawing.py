"""Pictures of plans, as programs call them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from collplan.api.compiling import plan_of
from collplan.api.sources import Source
from collplan.planner.draw import View
from collplan.planner.draw import draw as draw_plan
from collplan.specs.syntax.calling import explains_calls

if TYPE_CHECKING:
    from collplan.planner.draw.style import Times


@explains_calls("draw")
def draw(
    source: Source, path: str | Path, by: View | str = "auto", timeline: Times | None = None
) -> Path:
    """Draw a plan into a file.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str or Path
        A plan of all ranks or of one rank, or a spec or a program of which to make one, or the
        path of any file with one of them.
    path : str or Path
        File to write, in the format of its suffix: ``.svg`` (with the full text of
        every task as a tooltip), ``.png``, ``.pdf``, or ``.dot`` and ``.gv`` for the
        source.
    by : {"auto", "task", "rank", "node", "phase"}
        Unit that a box represents. "auto" takes the finest view that is readable. If
        a view has more elements than can be drawn, a coarser one is drawn instead,
        and the caption states this.
    timeline : object with ``start_ns`` and ``end_ns``, optional
        Start and end of every task in ns, such as `simulate` returns them, which are
        shown in the boxes of tasks.

    Returns
    -------
    Path
        The file. The same plan and version of graphviz give the same bytes.

    Raises
    ------
    CollplanError
        If the source is not valid.
    DrawError
        If the suffix or the view is unknown, the timeline is that of another plan,
        the file cannot be written, or graphviz is missing or fails.
    """
    return draw_plan(plan_of(source), path, by, timeline)
