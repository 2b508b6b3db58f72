"""CSV files with a header: columns by name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from collplan.fitting.points import MeasurementError


def read_rows(text: str, path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the fields of each row of a CSV file.

    Parameters
    ----------
    text : str
        Content of the file.
    path : Path
        Name of the file, for errors.
    needed : sequence of str
        Columns that must be there.

    Raises
    ------
    MeasurementError
        If a column is missing, or if a row is shorter than the header.
    """
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise MeasurementError(
            f"{path}: has no column {missing[0]!r}; its columns are "
            f"{', '.join(reader.fieldnames or ()) or 'none'}, and needed are {', '.join(needed)}"
        )
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if any(row[name] is None for name in needed):
            raise MeasurementError(f"{where}: has fewer fields than the header; complete the row")
        yield where, row
