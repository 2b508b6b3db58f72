"""Rendering of dot source by graphviz, without programs or libraries of the system.

The renderer is the system's `dot` if there is one, or else the port of graphviz in the wheel of
graphviz-pure, which is one program that needs no libraries and contains its fonts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Final

from collplan.specs.errors import CollplanError

WHEEL: Final = "graphviz-pure"
"""Package that contains a renderer, and name of its program."""
_LINES_IN_BOX: Final = re.compile(
    rb'(?:d|points)="(?P<outline>[^"]*)"/>\n(?:<text [^>]*text-anchor="start"[^\n]*\n)+'
)
_START: Final = re.compile(rb'text-anchor="start" x="[^"]*"')


class DrawError(CollplanError):
    """A picture that cannot be drawn, because of its file, its view, or the renderer."""


def find_renderer() -> Path | None:
    """Return the program that draws: `dot`, or that of `WHEEL`; None if neither is installed."""
    if (dot := shutil.which("dot")) is not None:
        return Path(dot)
    try:
        files = metadata.files(WHEEL) or ()
    except metadata.PackageNotFoundError:
        return None
    # The program may lie in another environment, whose packages this one uses.
    programs = (Path(str(file.locate())) for file in files if file.name == WHEEL)
    return next(filter(Path.exists, programs), None)


def render(source: str, picture_format: str) -> bytes:
    """Return the picture of dot source.

    Parameters
    ----------
    source : str
        Dot text. Its attribute ``layout`` selects the engine; the default is ``dot``.
    picture_format : str
        Format of the picture: "svg", "png" or "pdf".

    Raises
    ------
    DrawError
        If there is no renderer, or if it fails.
    """
    renderer = find_renderer()
    if renderer is None:
        raise DrawError(
            f"{picture_format}: neither graphviz's dot nor {WHEEL} is here; install one "
            f"('apt install graphviz' or 'pip install {WHEEL}'), or draw into a .dot file"
        )
    if picture_format == "png":
        return _run(renderer, source, picture_format)
    svg = _LINES_IN_BOX.sub(_centered, _run(renderer, source, "svg"))
    return svg if picture_format == "svg" else _pdf(svg)


def _centered(box: re.Match[bytes]) -> bytes:
    """Return a box whose lines are centered in the viewer's font, not in that of the renderer."""
    xs = [float(pair.split(b",")[0]) for pair in re.split(rb"[\sMCLZ]+", box["outline"]) if pair]
    middle = b'text-anchor="middle" x="%.2f"' % ((min(xs) + max(xs)) / 2)
    return _START.sub(middle, box[0])


def _run(renderer: Path, source: str, picture_format: str) -> bytes:
    command = [str(renderer), f"-T{picture_format}"]
    try:
        done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    except OSError as error:
        raise _failure(picture_format, renderer.name, str(error)) from error
    if done.returncode != 0 or not done.stdout:
        raise _failure(picture_format, renderer.name, done.stderr.decode(errors="replace"))
    return done.stdout


def _pdf(svg: bytes) -> bytes:
    """Return a page with an SVG picture, in bytes that do not depend on the date."""
    from reportlab.graphics import renderPDF
    from reportlab.pdfgen.canvas import Canvas
    from svglib.svglib import svg2rlg

    drawing = svg2rlg(BytesIO(svg))
    if drawing is None or not drawing.width:
        raise _failure("pdf", "svglib", "the SVG of the picture cannot be read")
    page = BytesIO()
    canvas = Canvas(page, pagesize=(drawing.width, drawing.height), invariant=1)
    renderPDF.draw(drawing, canvas, 0, 0)
    canvas.save()
    return page.getvalue()


def _failure(picture_format: str, renderer: str, said: str) -> DrawError:
    reason = " ".join((said.strip().splitlines() or ["no output"])[-1].split())
    return DrawError(
        f"{picture_format}: {renderer} failed ({reason}); draw into a .dot file instead"
    )
