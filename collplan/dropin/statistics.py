"""Statistics of calls: algorithm, reason, number, time, and gain over native."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from collplan.planner.formats.output_files import write_text

if TYPE_CHECKING:
    from rich.table import Table

FILE: Final = "COLLPLAN_STATISTICS"
"""Environment variable that names a file; rank 0 writes there what ran, as JSON by size."""
_HEADS: Final = ("collective", "ran", "ranks", "bytes", "calls", "total", "a call", "gain", "why")
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(slots=True, eq=False)
class Row:
    """Calls that ran the same for the same reason.

    Parameters
    ----------
    collective : str
        Its kind, or mpi4py's name of a call that no plan covers.
    ran : str
        The label of what ran.
    why : str
        In words.
    ranks : int
        Of the communicator.
    planned : bool
        Whether a plan ran.
    native_s, chosen_s : float or None
        What the table measured for native and for what ran, a call.
    least_bytes, most_bytes : int
        Of MPI's count.
    calls : int
    seconds : float
        On this rank, in all; of non-blocking calls what it takes to start them.
    """

    collective: str
    ran: str
    why: str
    ranks: int
    planned: bool = False
    native_s: float | None = None
    chosen_s: float | None = None
    least_bytes: int = 0
    most_bytes: int = 0
    calls: int = 0
    seconds: float = 0.0

    @property
    def gain(self) -> float | None:
        """Return how many times faster than native it is by the table; None if unknown."""
        if self.native_s is None or not self.chosen_s:
            return None
        return self.native_s / self.chosen_s

    def as_dict(self) -> dict[str, Any]:
        """Return the row as what JSON can hold."""
        fields = asdict(self)
        del fields["native_s"], fields["chosen_s"]
        return fields | {"gain": self.gain}


class Statistics:
    """Rows of calls, of a communicator and all that were made from it; on this rank.

    Print it with rich, or as text; `as_dict` is for programs.

    Parameters
    ----------
    by_size : bool
        Whether calls whose sizes differ by a factor of 2 or more have rows of their own.
    """

    def __init__(self, *, by_size: bool = False) -> None:
        self._by_size = by_size
        self._rows: dict[tuple[str | int, ...], Row] = {}

    def row(
        self, collective: str, ran: str, why: str, ranks: int, n_bytes: int = 0, **measured: Any
    ) -> Row:
        """Return the row that such calls count in."""
        own = collective, ran, why, ranks
        key = (*own, n_bytes.bit_length()) if self._by_size else own
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = Row(*own, least_bytes=n_bytes, **measured)
        found.least_bytes = min(found.least_bytes, n_bytes)
        found.most_bytes = max(found.most_bytes, n_bytes)
        return found

    def own_row(
        self, collective: str, ran: str, why: str, ranks: int, n_bytes: int, *, planned: bool
    ) -> Row:
        """Return a new row, in which only one signature's calls count."""
        row = Row(collective, ran, why, ranks, planned, least_bytes=n_bytes, most_bytes=n_bytes)
        self._rows[len(self._rows),] = row
        return row

    @property
    def rows(self) -> list[Row]:
        """Return the rows with calls, the longest first."""
        used = [row for row in self._rows.values() if row.calls]
        return sorted(used, key=lambda row: -row.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return all rows, and how many calls a plan ran and how many native MPI."""
        rows = self.rows
        return {
            "planned_calls": sum(row.calls for row in rows if row.planned),
            "native_calls": sum(row.calls for row in rows if not row.planned),
            "rows": [row.as_dict() for row in rows],
        }

    def report(self) -> str:
        """Return what ran as lines of text, empty if nothing did."""
        if not self.rows:
            return ""
        counts = self.as_dict()
        return (
            f"collplan: rank 0: {counts['planned_calls']} collectives by plans, "
            f"{counts['native_calls']} native\n{self}\n"
        )

    def deliver(self) -> None:
        """Write what ran to the file that is asked for, or to standard error."""
        path = os.environ.get(FILE)
        if path:
            write_text(path, json.dumps(self.as_dict()))
        else:
            sys.stderr.write(self.report())
            sys.stderr.flush()

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.collective,
                row.ran,
                str(row.ranks),
                _range(row.least_bytes, row.most_bytes),
                str(row.calls),
                _seconds(row.seconds),
                _seconds(row.seconds / row.calls),
                "" if row.gain is None else f"{row.gain:.2f}x",
                row.why,
            )
            for row in self.rows
        ]

    def __rich__(self) -> Table:
        """Return the rows as a table for rich."""
        from rich.table import Column, Table

        table = Table(*(Column(head, no_wrap=head != "why") for head in _HEADS))
        for cells in self._cells():
            table.add_row(*cells)
        return table

    def __str__(self) -> str:
        """Write the rows below each other, as plain text."""
        lines = [_HEADS, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _seconds(value: float) -> str:
    """Write a time in the unit that fits.

    Examples
    --------
    >>> _seconds(0.00123), _seconds(0.0)
    ('1.23 ms', '0 s')
    """
    for scale, unit in _UNITS:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return "0 s"


def new_statistics() -> Statistics:
    """Return statistics, by size where a file of them is asked for."""
    return Statistics(by_size=bool(os.environ.get(FILE)))
