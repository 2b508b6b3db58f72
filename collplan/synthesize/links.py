"""Links between ranks, from files and known machines."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Final

from collplan.specs.errors import CollplanError, SpecError, show_value, suggest
from collplan.specs.syntax.documents import parse_yaml, read_document
from collplan.specs.topology.files import read_graphml
from collplan.synthesize.graph import Pair

MAX_WIDTH: Final = 64
"""Widest link, in multiples of the narrowest."""
_KEYS: Final = ("both_ways", "one_way")
_WIDTHS: Final = ("width", "capacity", "weight")
_WHAT: Final = "file of links"


def known_links() -> tuple[str, ...]:
    """Return the names of the graphs that are part of collplan.

    Examples
    --------
    >>> known_links()
    ('dgx1',)
    """
    files = (resources.files(__package__) / "graphs").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".yaml")))


def read_links(source: str) -> dict[Pair, int]:
    """Return the width of every link of a known machine or of a file, sender first.

    Parameters
    ----------
    source : str
        Name from `known_links`, or path of a YAML, JSON or GraphML file.

    Raises
    ------
    CollplanError
        If `source` is neither, or the file has no links.

    Examples
    --------
    >>> links = read_links("dgx1")
    >>> links[0, 4], links[4, 0], len(links)
    (2, 2, 32)
    """
    if source in known_links():
        text = (resources.files(__package__) / "graphs" / f"{source}.yaml").read_text("utf-8")
        return _from_document(parse_yaml(text, source), source)
    path = Path(source)
    if not path.suffix:
        hint = suggest(source, known_links())
        raise CollplanError(
            f"--links: {show_value(source)} is not a known machine; {hint}valid: "
            f"{', '.join(known_links())}, or a YAML, JSON or GraphML file"
        )
    if path.suffix == ".graphml":
        return _from_graphml(path)
    return _from_document(read_document(path, _WHAT), source)


def _from_document(document: Any, source: str) -> dict[Pair, int]:
    if not isinstance(document, dict) or not document or not set(document) <= set(_KEYS):
        raise SpecError(
            f"{source}: is not a {_WHAT}; give lists of [rank, rank] or [rank, rank, width] under "
            f"{' and '.join(_KEYS)}"
        )
    widths: dict[Pair, int] = {}
    for key, rows in document.items():
        if not isinstance(rows, list):
            raise SpecError(f"{source}: {key}: {show_value(rows)} is not a list of links")
        for row in rows:
            a, b, width = _checked(row, f"{source}: {key}")
            for pair in ((a, b), (b, a)) if key == "both_ways" else ((a, b),):
                _add(widths, pair, width, source)
    return _some(widths, source)


def _checked(row: Any, where: str) -> tuple[int, int, int]:
    is_row = isinstance(row, list) and len(row) in (2, 3)
    if not is_row or any(isinstance(n, bool) or not isinstance(n, int) for n in row):
        raise SpecError(
            f"{where}: {show_value(row)} is not a link; write [rank, rank] or [rank, rank, width]"
        )
    a, b, width = (*row, 1)[:3]
    if a == b or min(a, b) < 0:
        raise SpecError(
            f"{where}: {show_value(row)} is not a link of two ranks; number them from 0"
        )
    if not 1 <= width <= MAX_WIDTH:
        raise SpecError(f"{where}: {show_value(row)} has the width {width}; give 1 to {MAX_WIDTH}")
    return a, b, width


def _add(widths: dict[Pair, int], pair: Pair, width: int, source: str) -> None:
    if pair in widths:
        raise SpecError(
            f"{source}: the link from {pair[0]} to {pair[1]} is there twice; give it once, with "
            f"the sum of the widths"
        )
    widths[pair] = width


def _some(widths: dict[Pair, int], source: str) -> dict[Pair, int]:
    if not widths:
        raise SpecError(f"{source}: has no links; give at least one")
    return widths


def _from_graphml(path: Path) -> dict[Pair, int]:
    graph = read_graphml(path, f"give another {_WHAT}")
    rank = {vertex: number for number, vertex in enumerate(graph)}
    widths: dict[Pair, int] = {}
    for a, b, about in graph.edges(data=True):
        width = next((about[name] for name in _WIDTHS if name in about), 1)
        whole = int(width) if isinstance(width, float) and width.is_integer() else width
        ends = _checked([rank[a], rank[b], whole], str(path))
        for pair in (ends[:2],) if graph.is_directed() else (ends[:2], ends[1::-1]):
            _add(widths, pair, ends[2], str(path))
    return _some(widths, str(path))
