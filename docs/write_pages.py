"""Write everything in docs/ that is made from the code: pages, parts of pages, and pictures.

make pages
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import algorithm_tables
import folding_tables
import gallery

from collplan.cli.schema import schema_text
from import_graph import import_graph, mermaid, rooms

DOCS: Final = Path(__file__).parent
COMMAND: Final = "make pages"
PARTS: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "algorithms.md": {
        "table": algorithm_tables.table,
        "libraries": algorithm_tables.libraries,
    },
    "architecture.md": {"rooms": lambda: f"```mermaid\n{mermaid(rooms(import_graph()))}\n```"},
    "index.md": {"algorithms": algorithm_tables.names},
    "scale.md": {"folding": folding_tables.folding},
}
"""Parts of pages between two marks: for each page, functions that return them, by their names."""
WHOLE: Final[Mapping[str, Callable[[], str]]] = {
    "gallery.md": gallery.page,
    "spec.schema.json": schema_text,
    "program.schema.json": partial(schema_text, is_program=True),
}
"""Files that have no other text: functions that return them, by their names."""
NAMES: Final = (*PARTS, *WHOLE)
"""Names of the files in docs/ that are made from the code, without the pictures of the gallery."""


def text_of(name: str) -> str:
    """Return the text that a file should have."""
    if name in WHOLE:
        return WHOLE[name]()
    page = (DOCS / name).read_text()
    for part, make in PARTS[name].items():
        page = with_part(page, part, make())
    return page


def with_part(page: str, name: str, text: str) -> str:
    """Return a page with the text between two marks exchanged.

    Raises
    ------
    ValueError
        If the page has lost its marks.
    """
    begin, end = f"<!-- {name}: {COMMAND} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"a page has lost its marks {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def pictures() -> dict[str, str]:
    """Return the pictures of the gallery by the names of their files."""
    return {gallery.file_of(algorithm): drawn for algorithm, drawn in gallery.pictures()}


def write_all() -> list[Path]:
    """Write files that are out of date, delete pictures without an algorithm; return all these."""
    wanted = {DOCS / name: text_of(name) for name in NAMES}
    wanted |= {gallery.FOLDER / name: drawn for name, drawn in pictures().items()}
    stale = [path for path, text in wanted.items() if not _has(path, text)]
    for path in stale:
        path.write_text(wanted[path])
    gone = sorted(set(gallery.FOLDER.iterdir()) - wanted.keys())
    for path in gone:
        path.unlink()
    return [*stale, *gone]


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    changed = write_all()
    sys.stdout.writelines(f"{path.relative_to(DOCS.parent)}\n" for path in changed)
    sys.stdout.write(f"{len(changed)} files changed\n")
