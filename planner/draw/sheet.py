"""A sheet with boxes, frames and curves at given positions, as dot source.

Pictures are grids of ranks and rounds, so no layout engine is needed. All
coordinates are computed here, in points, with the y axis downwards. Graphviz only
renders: the source selects the engine ``nop2``, which keeps all positions and takes
time proportional to the size of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

import graphviz

from collplan.planner.draw import style

Point = tuple[float, float]

_POINTS_PER_INCH: Final = 72.0
_ARROW_POINTS: Final = 10.0
"""Length of graphviz's arrowhead at arrowsize 1, in points."""
TITLE_SIZE: Final = 11.0
"""Font size of the titles of frames, in points."""


@dataclass(frozen=True, slots=True)
class Box:
    """Position of a box: its center and its size, in points."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def below(cls, top: float, right: float, bottom: float) -> Box:
        """Return the area of a view, which begins at the left edge of the sheet."""
        return cls(right / 2, (top + bottom) / 2, right, bottom - top)

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2

    def border_towards(self, point: Point) -> Point:
        """Return the point at which the line from the center to `point` leaves the box."""
        dx, dy = point[0] - self.x, point[1] - self.y
        if dx == dy == 0:
            return self.x, self.bottom
        scale = min(
            self.width / 2 / abs(dx) if dx else math.inf,
            self.height / 2 / abs(dy) if dy else math.inf,
        )
        return self.x + dx * scale, self.y + dy * scale


@dataclass(slots=True)
class _Frame:
    attributes: dict[str, str]
    frames: list[str] = field(default_factory=list)
    boxes: list[tuple[str, dict[str, str]]] = field(default_factory=list)


class Sheet:
    """Collection of shapes to draw, from which `source` makes the dot text.

    Frames are clusters of graphviz, boxes are nodes, and arrows are edges, so that
    the structure of the picture can be read from the source.
    """

    def __init__(self) -> None:
        self._frames: dict[str, _Frame] = {"": _Frame({})}
        self._arrows: list[tuple[str, str, dict[str, str]]] = []

    def frame(
        self,
        name: str,
        corners: tuple[float, float, float, float],
        label: str,
        label_at: Point,
        *,
        inside: str = "",
        **attributes: str,
    ) -> None:
        """Draw a rectangle (left, top, right, bottom) that contains boxes and frames."""
        left, top, right, bottom = corners
        attributes["bb"] = f"{left:.1f},{-bottom:.1f},{right:.1f},{-top:.1f}"
        attributes |= {"label": graphviz.escape(label), "lp": _at(label_at)}
        self._frames[name] = _Frame(attributes)
        self._frames[inside].frames.append(name)

    def titled_frame(
        self, name: str, corners: tuple[float, float, float, float], title: str, drop: float
    ) -> None:
        """Draw the frame of a node or phase, with its title `drop` points below the top edge."""
        left, top, right, _ = corners
        self.frame(
            name,
            corners,
            title,
            ((left + right) / 2, top + drop),
            fontsize=f"{TITLE_SIZE:g}",
            fillcolor=style.NODE_FILL,
            color=style.NODE_LINE,
        )

    def box(
        self, name: str, box: Box, lines: Sequence[str], *, inside: str = "", **attributes: str
    ) -> None:
        """Draw a box whose first line is bold, and whose other lines are small."""
        small = f'<FONT POINT-SIZE="{style.FONT_SIZE - 1:g}" COLOR="{style.FAINT_INK}">'
        html = [f"<B>{escape(lines[0])}</B>"]
        html += [f"{small}{escape(line)}</FONT>" for line in lines[1:]]
        attributes["label"] = f"<{'<BR/>'.join(html)}>"
        self._put(name, box, inside, attributes)

    def text(
        self, name: str, at: Point, text: str, *, size: float = style.FONT_SIZE, **attributes: str
    ) -> None:
        """Write `text` to the right of a point."""
        width = style.text_width([text], size)
        attributes |= {"shape": "plaintext", "style": "", "fontsize": f"{size:g}", "margin": "0"}
        # \l aligns the text to the left of its area, for fonts of any width.
        attributes["label"] = graphviz.escape(text) + "\\l"
        self._put(name, Box(at[0] + width / 2, at[1], width, size * 1.4), "", attributes)

    def _put(self, name: str, box: Box, inside: str, attributes: dict[str, str]) -> None:
        attributes |= {
            "pos": _at((box.x, box.y)),
            "width": f"{box.width / _POINTS_PER_INCH:.4f}",
            "height": f"{box.height / _POINTS_PER_INCH:.4f}",
        }
        self._frames[inside].boxes.append((name, attributes))

    def arrow(
        self,
        tail: str,
        head: str,
        curve: Sequence[Point],
        *,
        label: str = "",
        label_at: Point = (0, 0),
        size: float = 0.6,
        **attributes: str,
    ) -> None:
        """Draw an arrow along Bézier control points, the last of which is its tip."""
        tip, before = curve[-1], next(point for point in reversed(curve) if point != curve[-1])
        distance = math.dist(tip, before)
        back = min(_ARROW_POINTS * size, distance * 0.9) / distance
        # The line ends at the base of the arrowhead. Its last control point is moved by the same
        # distance, so that the curve has no kink.
        dx, dy = (before[0] - tip[0]) * back, (before[1] - tip[1]) * back
        bent = [(curve[-2][0] + dx, curve[-2][1] + dy), (tip[0] + dx, tip[1] + dy)]
        points = " ".join(_at(point) for point in (*curve[:-2], *bent))
        attributes["pos"] = f"e,{_at(tip)} {points}"
        attributes["arrowsize"] = f"{size:g}"
        if label:
            attributes |= {"label": graphviz.escape(label), "lp": _at(label_at)}
        self._arrows.append((tail, head, attributes))

    def line(self, tail: str, head: str, start: Point, end: Point, **attributes: str) -> None:
        """Draw a straight line without an arrowhead."""
        points = " ".join(map(_at, (start, start, end, end)))
        self._arrows.append((tail, head, attributes | {"pos": points, "dir": "none"}))

    def source(self) -> str:
        """Return the dot text."""
        font, size = {"fontname": style.FONT, "fontcolor": style.INK}, style.FONT_SIZE
        common = {**font, "fontsize": f"{size:g}", "tooltip": " ", "style": "rounded,filled"}
        graph = graphviz.Digraph(
            "plan",
            graph_attr={**common, "layout": "nop2", "outputorder": "edgesfirst", "pad": "0.2"},
            node_attr={**common, "shape": "box", "fixedsize": "shape"},
            edge_attr={**font, "fontsize": f"{size - 1:g}", "tooltip": " "},
        )
        self._fill(graph, self._frames[""])
        for tail, head, attributes in self._arrows:
            graph.edge(tail, head, **attributes)
        return str(graph.source)

    def _fill(self, graph: graphviz.Digraph, frame: _Frame) -> None:
        for name in frame.frames:
            child = self._frames[name]
            with graph.subgraph(name=f"cluster_{name}") as cluster:
                cluster.attr(**child.attributes)
                self._fill(cluster, child)
        for name, attributes in frame.boxes:
            graph.node(name, **attributes)


def _at(point: Point) -> str:
    # Adding 0.0 turns -0.0 into 0.0, so that equal pictures have equal texts.
    return f"{round(point[0], 1) + 0.0:.1f},{round(-point[1], 1) + 0.0:.1f}"
