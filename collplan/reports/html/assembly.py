"""Assembly of HTML pages from a template, sections, data, styles and scripts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

from collplan.planner.draw.style import OP_LOOKS
from collplan.planner.formats.output_files import replacing
from collplan.specs.errors import CollplanError

_BEGINS: Final = re.compile(r"<!-- section (\w+) -->\n")

Json = dict[str, Any]


def write_page(path: Path, text: str) -> None:
    """Write a page; a failure leaves no incomplete file.

    Raises
    ------
    CollplanError
        If the file cannot be written.
    """
    with replacing(path, CollplanError) as file:
        file.write(text.encode())


def assemble(title: str, subtitle: str, sections: Sequence[str], data: Json) -> str:
    """Return a page that loads no other files.

    Parameters
    ----------
    title, subtitle : str
        Title and subtitle as plain text.
    sections : sequence of str
        HTML of the sections, as `section` returns it, from top to bottom.
    data : dict
        Data for the page's script, which draws the charts.
    """
    colors = {op.name.lower(): look for op, look in OP_LOOKS.items()}
    text = json.dumps(data | {"colors": colors})
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    parts = {
        "title": escape(title),
        "subtitle": escape(subtitle),
        "sections": "\n".join(sections),
        "css": _asset("report.css"),
        "data": packed,
        "plotly": _asset("vendor/plotly-basic.min.js").replace("</script", "<\\/script"),
        "panzoom": _asset("vendor/svg-pan-zoom.min.js"),
        "script": _asset("report.js"),
    }
    return Template(_asset("report.html")).substitute(parts)


def section(name: str, **parts: str) -> str:
    """Return a section of the page as HTML, given the HTML of its parts."""
    return Template(_sections()[name]).substitute(parts)


def paragraphs(lines: Sequence[str]) -> str:
    """Return lines of plain text as HTML paragraphs."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False) -> str:
    """Return a table as HTML.

    Parameters
    ----------
    head : sequence of str
        Titles of columns; a column with an empty title has no header.
    rows : sequence of sequence of str
        Cells of each row as plain text.
    named : bool
        Whether the first cell of a row is its header.
    """
    titles = "".join(f'<th scope="col">{escape(one)}</th>' if one else "<td></td>" for one in head)

    def cell(i: int, text: str) -> str:
        if named and i == 0:
            return f'<th scope="row">{escape(text)}</th>'
        return f"<td>{escape(text)}</td>"

    body = "".join(
        f"<tr>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>" for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def wide_table(
    label: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False
) -> str:
    """Return a `table` in a region that scrolls, because it can be wider than the page."""
    region = f'class="wide" tabindex="0" role="region" aria-label="{escape(label)}"'
    return f"<div {region}>{table(head, rows, named=named)}</div>"


def answered(lines: Sequence[str]) -> str:
    """Return the section of the answer with the given sentences."""
    return section("answer", answer=paragraphs(lines))


def reproduction(commands: Sequence[str], files: Sequence[tuple[str, str]]) -> str:
    """Return the section of commands, with titles and contents of the files that they need."""
    text = escape("\n".join(commands))
    blocks = "".join(
        f"<details><summary>{escape(title)}</summary>"
        f'<pre tabindex="0" aria-label="{escape(title)}">{escape(content)}</pre></details>'
        for title, content in files
    )
    return section(
        "reproduce", content=f'<pre tabindex="0" aria-label="Commands">{text}</pre>{blocks}'
    )


def _asset(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


@cache
def _sections() -> dict[str, str]:
    """Return the templates of all sections by name."""
    _, *found = _BEGINS.split(_asset("report.sections.html"))
    return dict(zip(found[::2], found[1::2], strict=True))
