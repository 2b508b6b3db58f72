"""Assembly of pages: one template, the sections that a page has, data, styles and scripts."""

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
    """Write a page so that it is there whole or not at all.

    Raises
    ------
    CollplanError
        If it cannot be written.
    """
    with replacing(path, CollplanError) as file:
        file.write(text.encode())


def assemble(title: str, subtitle: str, sections: Sequence[str], data: Json) -> str:
    """Return a page that loads nothing.

    Parameters
    ----------
    title, subtitle : str
        Plain text.
    sections : sequence of str
        HTML of `section`, from the top.
    data : dict
        What the page's script shows in charts.
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
    """Return lines of plain text as HTML."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False) -> str:
    """Return a table as HTML.

    Parameters
    ----------
    head : sequence of str
        Titles of columns; of an empty one there is none.
    rows : sequence of sequence of str
    named : bool
        Whether the first cell of a row names it.
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
    """Return a table as of `table` in a region that scrolls, as it may be wider than the page."""
    region = f'class="wide" tabindex="0" role="region" aria-label="{escape(label)}"'
    return f"<div {region}>{table(head, rows, named=named)}</div>"


def answered(lines: Sequence[str]) -> str:
    """Return the section with the answer, given its sentences."""
    return section("answer", answer=paragraphs(lines))


def reproduction(commands: Sequence[str], files: Sequence[tuple[str, str]]) -> str:
    """Return the section with commands, and the files that they need by their titles."""
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
