"""Rendering of dot source by graphviz's `dot`, or by the libraries in pygraphviz."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from typing import Final

import graphviz

from collplan.specs.errors import CollplanError


class DrawError(CollplanError):
    """A picture that cannot be drawn, because of its file, its view, or the renderer."""


_BUNDLED: Final = """
import sys
import pygraphviz

graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())
# An AGraph warns of slow layouts above 1,000 nodes unless it has one: the positions given.
graph.has_layout = True
sys.stdout.buffer.write(graph.draw(format=sys.argv[1]))
"""
"""Program that renders dot text from standard input with the graphviz in pygraphviz's wheel."""


def render(source: str, picture_format: str) -> bytes:
    """Return the picture of dot source.

    Parameters
    ----------
    source : str
        Dot text in which all positions are given.
    picture_format : str
        Format of the picture: "svg", "png" or "pdf".

    Raises
    ------
    DrawError
        If there is neither `dot` nor pygraphviz, or if graphviz fails.
    """
    if shutil.which("dot") is not None:
        content = _render_by_dot(source, picture_format)
    elif importlib.util.find_spec("pygraphviz") is not None:
        content = _render_bundled(source, picture_format)
    else:
        raise DrawError(
            f"{picture_format}: neither graphviz's dot nor pygraphviz is here; install one "
            f"('apt install graphviz' or 'pip install pygraphviz'), or draw into a .dot file"
        )
    # The creation date of a PDF is the only part that differs between runs.
    return re.sub(rb"/CreationDate \(D:\d{14}", b"/CreationDate (D:19800101000000", content)


def _render_by_dot(source: str, picture_format: str) -> bytes:
    try:
        return bytes(graphviz.Source(source, engine="dot").pipe(format=picture_format, quiet=True))
    except (graphviz.ExecutableNotFound, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise DrawError(_failure("dot", picture_format, said)) from error


def _render_bundled(source: str, picture_format: str) -> bytes:
    # It runs in a separate process, like dot: fontconfig writes to standard error, and a crash in
    # C must not end the calling process.
    command = [sys.executable, "-P", "-c", _BUNDLED, picture_format]
    result = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if result.returncode != 0 or not result.stdout:
        raise DrawError(_failure("pygraphviz", picture_format, result.stderr))
    return result.stdout


def _failure(renderer: str, picture_format: str, said: str | bytes) -> str:
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    reason = " ".join((text.strip().splitlines() or ["no output"])[-1].split())
    return f"{picture_format}: {renderer} failed ({reason}); draw into a .dot file instead"
