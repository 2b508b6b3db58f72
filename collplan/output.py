"""What commands print: one JSON object, or tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PIPE_WIDTH: Final = 160


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` as one line of JSON.

    Infinities and NaN would not be JSON and are refused.
    """
    text = json.dumps(document, allow_nan=False, default=_convert)
    sys.stdout.write(text + "\n")


def print_line(text: str) -> None:
    """Print a line for people."""
    sys.stdout.write(text + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, plain: bool = False
) -> None:
    """Print a table; columns of numbers go right, only the last column may wrap.

    `plain` is for where standard output looks like a terminal and is none.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[str(cell) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD)
    for i, name in enumerate(columns):
        filled = [row[i] for row in cells if row[i]]
        is_number = bool(filled) and all(cell.lstrip("*")[0].isdigit() for cell in filled)
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=i < len(columns) - 1
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    # A file or a pipe has no width: let no line be broken there.
    is_terminal = sys.stdout.isatty() and not plain
    console = Console(
        file=sys.stdout,
        highlight=False,
        width=None if is_terminal else _PIPE_WIDTH,
        force_terminal=is_terminal,
    )
    console.print(table)


def show_progress(text: str) -> AbstractContextManager[Any]:
    """Show a spinner on standard error while the block runs, if that is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def format_bytes(n_bytes: float) -> str:
    """Write bytes for people.

    Examples
    --------
    >>> format_bytes(900), format_bytes(65536), format_bytes(1536)
    ('900 B', '64 KiB', '1.5 KiB')
    """
    size = float(n_bytes)
    for unit in _BYTE_UNITS[:-1]:
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} {_BYTE_UNITS[-1]}"


def format_seconds(seconds: float) -> str:
    """Write a time for people.

    Examples
    --------
    >>> format_seconds(0.0000123), format_seconds(2.5)
    ('12.3 µs', '2.5 s')
    """
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _convert(value: Any) -> Any:
    """Turn numpy scalars and paths, which reports may hold, into JSON's types."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
