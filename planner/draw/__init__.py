"""Pictures of plans, by graphviz."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from collplan.planner.draw import rendering, style
from collplan.planner.draw.picture import View, picture
from collplan.planner.draw.rendering import DrawError
from collplan.planner.formats.output_files import replacing
from collplan.planner.plan.plan import Plan

__all__ = ["DrawError", "View", "draw", "picture"]

_DOT_SUFFIXES: Final = (".dot", ".gv")
_PICTURE_SUFFIXES: Final = (".svg", ".png", ".pdf")


def draw(
    plan: Plan, path: str | Path, by: View | str = "auto", timeline: style.Times | None = None
) -> Path:
    """Draw `plan` into a file.

    Parameters
    ----------
    plan : Plan
        Any plan, of all ranks or of one.
    path : str or Path
        Its suffix decides: ``.svg`` (with every task's full text as a
        tooltip), ``.png``, ``.pdf``, or ``.dot`` and ``.gv`` for the source.
    by : {"auto", "task", "rank", "node", "phase"}
        What a box stands for; "auto" takes the finest view that stays
        readable. A view of more elements than can be drawn gives way to a
        coarser one, and the title says so.
    timeline : object with ``start_ns`` and ``end_ns``, optional
        When every task runs, such as a simulation returns; boxes of tasks say so.

    Returns
    -------
    Path
        The file; the same plan gives the same bytes with the same graphviz.

    Raises
    ------
    DrawError
        If the suffix or the view is unknown, the file can't be written, or
        there is nothing to render with.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _DOT_SUFFIXES + _PICTURE_SUFFIXES:
        valid = ", ".join(_PICTURE_SUFFIXES + _DOT_SUFFIXES)
        raise DrawError(
            f"{path}: {path.suffix or 'no suffix'!r} is not a picture; end it in {valid}"
        )
    source = picture(plan, by, timeline)
    content = source.encode() if suffix in _DOT_SUFFIXES else rendering.render(source, suffix[1:])
    with replacing(path, DrawError) as file:
        file.write(content)
    return path
