"""Output of commands: one JSON object, or tables and text."""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from rich.table import Table

Document = dict[str, Any]

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PIPE_WIDTH: Final = 10_000
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LONG_CELL: Final = 30
"""Length from which a cell may be wrapped if the terminal is too narrow for the table."""
_PLAIN: Final = "collplan.plain"
_SPELLED: Final = {
    "µ": "u", "·": "*", "×": "x", "±": "+-", "√": "sqrt ", "≤": "<=", "≥": ">=", "→": "->",
    "←": "<-", "–": "-", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "ø": "o", "Σ": "sum ",
}  # fmt: skip
"""ASCII text for characters to which Unicode normalization gives none."""


def prepare_streams() -> None:
    """Set up the standard streams: spell characters that an encoding lacks, replace closed streams.

    A write to a closed standard output then raises `OSError`, as one to a full disk does.
    """
    if sys.stdout is None:
        # Writes to a file that is open for reading fail, as they should here.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    codecs.register_error(_PLAIN, _spell_plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != _PLAIN:
            stream.reconfigure(errors=_PLAIN)


def _spell_plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    """Spell a character that an encoding lacks in ASCII; a handler of encoding errors."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, end = error.object[error.start], error.start + 1
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) & 0xFF]), end  # byte of a file name that is not text
    name = unicodedata.name(character, "")
    text = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if character in _SPELLED:
        text = _SPELLED[character]
    elif name.startswith("BOX DRAWINGS"):
        text = "+" if " AND " in name else "|" if "VERTICAL" in name else "-"
    elif name.startswith("GREEK"):
        text = name.split()[-1].lower()
    return text or character.encode("ascii", "backslashreplace").decode(), end


class OutputError(Exception):
    """Error for a standard output that cannot be written."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"standard output: cannot be written: {error.strerror}; redirect it elsewhere"
        ) from None


def write(text: str) -> None:
    """Write to standard output.

    Raises
    ------
    BrokenPipeError
        If the reader of a pipe has closed it.
    OutputError
        If standard output cannot be written for another reason.
    """
    with _writing():
        sys.stdout.write(text)


def flush() -> None:
    """Flush standard output; raise the same errors as `write`."""
    with _writing():
        sys.stdout.flush()


_messages: Final[dict[str, list[str]]] = {}
"""Warnings and notes of the running command, which `print_json` adds to its output."""


def warn(text: str) -> None:
    """Print a warning on standard error, and keep it for the command's JSON."""
    sys.stderr.write(f"collplan: warning: {text}\n")
    _messages.setdefault("warnings", []).append(text)


def note(text: str) -> None:
    """Print a note on standard error, and keep it for the command's JSON."""
    sys.stderr.write(f"collplan: {text}\n")
    _messages.setdefault("notes", []).append(text)


def forget_messages() -> None:
    """Remove all warnings and notes, as at the begin of a command."""
    _messages.clear()


def print_json(document: Document) -> None:
    """Print `document` as one line of JSON, with ``warnings`` and ``notes`` if there were any.

    JSON has no infinities and NaN, so they raise `ValueError`.
    """
    text = json.dumps({**document, **_messages}, allow_nan=False, default=_convert)
    write(text + "\n")


def print_result(
    document: Document, text: str | Callable[[Document], object], *, as_json: bool
) -> None:
    """Print the result of a command as one line of JSON, or as text.

    Parameters
    ----------
    document : mapping
        Result for JSON.
    text : str or callable
        Lines of text, or a function of the document that prints them.
    as_json : bool
        Whether to print JSON.
    """
    if as_json:
        print_json(document)
    elif callable(text):
        text(document)
    else:
        print_line(text)


def pick(thing: object, names: str) -> dict[str, Any]:
    """Return the attributes of an object whose names `names` lists, separated by spaces."""
    return {name: getattr(thing, name) for name in names.split()}


def print_line(text: str) -> None:
    """Print lines of text, with control characters escaped."""
    write(_escape(text) + "\n")


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    is_tight: bool = False,
    most_wide: int = _PIPE_WIDTH,
) -> None:
    """Print a table, with columns of numbers aligned to the right.

    If a terminal is too narrow, long cells are wrapped over several lines, and short cells are
    not. If it is too narrow for all short cells, several tables follow each other, each of which
    begins with the first column. A tight table has no empty lines around it. No table is wider than
    `most_wide`, even in a pipe.
    """
    from rich.console import Console

    from collplan.executors.mpi.launch.environment import is_under_mpi

    cells = [[_escape(str(cell)) for cell in row] for row in rows]
    # A file or pipe has no width, and neither has the pseudo-terminal that Open MPI gives its
    # ranks. Lines are not wrapped there.
    is_terminal = sys.stdout.isatty() and not is_under_mpi()
    console = Console(
        file=sys.stdout,
        highlight=False,
        width=None if is_terminal else _PIPE_WIDTH,
        force_terminal=is_terminal,
    )
    # Rich itself would exit if the reader of a pipe has closed it, so capture its output.
    with _writing(), console.capture() as capture:
        width = min(console.width, most_wide)
        for part in _parts(columns, cells, width):
            console.print(_table_of(columns, cells, part), width=width)
    text = capture.get()
    if is_tight:
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.isspace())
    write(text if is_terminal else re.sub(r" +$", "", text, flags=re.MULTILINE))


def _parts(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Return the columns of each table that fits a width, the first column in all of them."""
    least = [
        max(map(len, (name, *filled)), default=0)
        if _is_whole(columns, i, filled)
        else max(len(name), min(_LONG_CELL, max(map(len, filled), default=0)))
        for i, name in enumerate(columns)
        for filled in [_filled(cells, i)]
    ]
    parts: list[list[int]] = []
    for i in range(len(columns)):
        wider = [*parts[-1], i] if parts else [i]
        # Each column has blanks on both sides and one between it and the next, as have both edges.
        needed = sum(least[each] + 3 for each in wider) + 1
        # A table has a second column, even if that does not fit.
        if needed > width and len(wider) > 2:
            parts.append([0, i])
        else:
            parts[-1:] = [wider]
    return parts


def _filled(cells: Sequence[Sequence[str]], i: int) -> list[str]:
    """Return the cells of a column that are not empty."""
    return [row[i] for row in cells if row[i]]


def _is_whole(columns: Sequence[str], i: int, filled: Sequence[str]) -> bool:
    """Return whether no cell of a column is wrapped, as all are short; the last may be."""
    return max(map(len, filled), default=0) < _LONG_CELL and i < len(columns) - 1


def _table_of(columns: Sequence[str], cells: Sequence[Sequence[str]], part: Sequence[int]) -> Table:
    """Return a table of some columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for i in part:
        filled = _filled(cells, i)
        is_number = bool(filled) and all(cell.lstrip("*")[:1].isdigit() for cell in filled)
        table.add_column(
            columns[i],
            justify="right" if is_number else "left",
            no_wrap=is_number or _is_whole(columns, i, filled),
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(Text(row[i]) for i in part))
    return table


def require_folder(option: str, path: Path) -> None:
    """Raise `CollplanError` if `path` is a folder, or if its folder does not exist."""
    if not path.parent.is_dir():
        raise CollplanError(f"{option}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise CollplanError(f"{option}: {path} is a folder; give a file in it")


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes as text with a binary unit.

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


def format_seconds(seconds: float, kernels_s: float = 0.0) -> str:
    """Return a time as text with a unit, and the time to compile kernels if it is not 0.

    Examples
    --------
    >>> format_seconds(0.0000123), format_seconds(2.5, 7.25)
    ('12.3 µs', '2.5 s (and 7.25 s to compile kernels, once)')
    """
    more = f" (and {format_seconds(kernels_s)} to compile kernels, once)" if kernels_s else ""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}{more}"
    return f"{seconds * 1e9:.4g} ns{more}"


def _convert(value: Any) -> Any:
    """Convert numpy scalars and paths, which reports may hold, to types of JSON."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
