"""Statistics of calls: plans that ran, reasons, numbers of calls, times, and speed-ups."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.executors.mpi.launch.environment import YIELDS, say_shared
from collplan.planner.formats.output_files import write_text
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from rich.table import Table

FILE: Final = "COLLPLAN_STATISTICS"
"""Environment variable with a path to which rank 0 writes the statistics by size as JSON."""
LOG: Final = "COLLPLAN_LOG"
"""Environment variable that makes rank 0 report statistics when the program ends.

If its value ends with ``.json``, it is the path of a file that rank 0 writes. Otherwise, rank 0
prints a table, unless the value is empty or 0.
"""
OBJECTS: Final = "objects"
"""Reason in rows of collectives of Python objects, each of which calls several MPI functions."""
SLOWER: Final = 1.1
"""Ratio of the times per call of a plan and of native from which a plan is said to be slower."""
YIELDING: Final = (
    "collplan: there are more ranks than cores, so idle ranks yield, which slows down small calls; "
    "to compare, set these variables yourself"
)
FASTER: Final = "was faster when tried here"
"""Reason of plans that won a trial in this run."""
_HEADS: Final = ("collective", "ran", "ranks", "bytes", "calls", "total", "per call", "gain", "why")
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def any_size(_n_bytes: int) -> int:
    """Return the same number for all sizes, so that they share a row."""
    return 0


def log_file() -> Path | None:
    """Return the file to which `LOG` directs the statistics; None if it names no file."""
    text = os.environ.get(LOG, "")
    return Path(text).absolute() if text.endswith(".json") else None


def is_logged() -> bool:
    """Return whether the environment requests statistics at program exit."""
    return os.environ.get(LOG, "") not in ("", "0") or bool(os.environ.get(FILE))


@dataclass(slots=True, eq=False)
class Row:
    """Calls of a collective that ran by the same plan, or natively, for the same reason.

    Parameters
    ----------
    collective : str
        Kind of the collective, or the name of mpi4py's method if no plan covers it.
    ran : str
        Label of the plan, or ``native``.
    why : str
        Reason, as shown to users.
    ranks : int
        Number of ranks of the communicator.
    planned : bool
        Whether a plan ran.
    native_s, chosen_s : float or None
        Times per call of the native collective and of the choice that ran, from the table, in
        seconds.
    least_bytes, most_bytes : int
        Smallest and largest message size in bytes: the size of the vector, or of one block.
    calls : int
        Number of calls on this rank.
    seconds : float
        Total time of the calls on this rank in seconds; for non-blocking calls, the time of
        their starts.
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
        """Speed-up over the native collective, from the table; None if it is unknown."""
        if self.native_s is None or not self.chosen_s:
            return None
        return self.native_s / self.chosen_s

    @property
    def call_s(self) -> float:
        """Measured time per call in seconds."""
        return self.seconds / self.calls

    @property
    def call_name(self) -> str:
        """Name of the MPI function, or of mpi4py's method if it communicates objects."""
        if self.why == OBJECTS:
            return self.collective
        return f"MPI_{self.collective[0].upper()}{self.collective[1:]}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, with the speed-up instead of the times of the table, for JSON."""
        fields = asdict(self)
        del fields["native_s"], fields["chosen_s"]
        return fields | {"gain": self.gain}


class Statistics:
    """Statistics of this rank's calls on a communicator and all communicators created from it.

    Statistics can be printed as text or by rich; `as_dict` returns them for programs.

    Parameters
    ----------
    size_class : callable
        Function from a message size in bytes to a number. Sizes with equal numbers share a row.

    Attributes
    ----------
    making_s : float
        Time in seconds that this rank spent making plans, which no row includes.
    ranks_per_core : float
        Number of ranks per core on the fullest host, as far as it is known.
    size_class : callable
        The parameter.
    """

    def __init__(self, size_class: Callable[[int], int] = any_size) -> None:
        self.making_s, self.ranks_per_core = 0.0, 1.0
        self.size_class = size_class
        self._path = log_file()
        self._rows: dict[tuple[str | int, ...], Row] = {}

    def row(
        self, collective: str, ran: str, why: str, ranks: int, n_bytes: int = 0, **measured: Any
    ) -> Row:
        """Return the row in which calls are counted; create it if it does not exist.

        Parameters
        ----------
        collective, ran, why, ranks : object
            Fields of `Row` that identify the row.
        n_bytes : int
            Message size of the calls in bytes.
        **measured
            Further fields of a new row.
        """
        fields = collective, ran, why, ranks
        key = *fields, self.size_class(n_bytes)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(*fields, least_bytes=n_bytes, **measured)
        row.least_bytes = min(row.least_bytes, n_bytes)
        row.most_bytes = max(row.most_bytes, n_bytes)
        return row

    def own_row(
        self, collective: str, ran: str, why: str, ranks: int, n_bytes: int, *, planned: bool
    ) -> Row:
        """Create and return a separate row, which counts only calls of one signature."""
        row = Row(collective, ran, why, ranks, planned, least_bytes=n_bytes, most_bytes=n_bytes)
        self._rows[len(self._rows),] = row
        return row

    def add(self, other: Statistics) -> None:
        """Add the calls that other statistics have counted."""
        self.making_s += other.making_s
        self.ranks_per_core = max(self.ranks_per_core, other.ranks_per_core)
        for one in other.rows:
            row = self.row(one.collective, one.ran, one.why, one.ranks, one.least_bytes)
            row.planned, row.native_s, row.chosen_s = one.planned, one.native_s, one.chosen_s
            row.most_bytes = max(row.most_bytes, one.most_bytes)
            row.calls += one.calls
            row.seconds += one.seconds

    @property
    def rows(self) -> list[Row]:
        """Rows with at least one call, in descending order of time."""
        used = [row for row in self._rows.values() if row.calls]
        return sorted(used, key=lambda row: -row.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return the rows, and the numbers of planned and native calls, as values for JSON."""
        rows = self.rows
        return {
            "planned_calls": sum(row.calls for row in rows if row.planned),
            "native_calls": sum(row.calls for row in rows if not row.planned),
            "making_s": self.making_s,
            "rows": [row.as_dict() for row in rows],
        }

    def document(self) -> dict[str, Any]:
        """Return one object per function, plan and size, as `LOG` writes them to a file."""
        return {
            "calls": [
                {
                    "call": row.call_name,
                    "ran": row.ran,
                    "ranks": row.ranks,
                    "bytes": row.most_bytes,
                    "calls": row.calls,
                    "seconds": row.seconds,
                    "why": row.why or None,
                }
                for row in self.rows
            ]
        }

    def report(self) -> str:
        """Return the statistics as text; empty if there were no calls."""
        if not self.rows:
            return ""
        counts = self.as_dict()
        making = f"; making plans took {_seconds(self.making_s)}" if self.making_s else ""
        yields, shared = os.environ.get(YIELDS), say_shared(self.ranks_per_core)
        note = f"collplan: {shared}\n" if shared else ""
        note += "" if yields is None else f"{YIELDING}: {', '.join(yields.split())}\n"
        return (
            f"collplan: rank 0: {counts['planned_calls']} collectives by plans, "
            f"{counts['native_calls']} native{making}\n{self}\n{note}"
        )

    def deliver(self) -> None:
        """Write the statistics to the file that `FILE` or `LOG` names, or to standard error.

        If the file cannot be written, write one line to standard error.
        """
        path = os.environ.get(FILE)
        if path:
            write_text(path, json.dumps(self.as_dict()))
            return
        text = self.report()
        if self._path is not None:
            try:
                write_text(self._path, f"{json.dumps(self.document(), indent=1)}\n")
                return
            except CollplanError as error:
                text = f"collplan: {LOG}: {error}\n"
        sys.stderr.write(text)
        sys.stderr.flush()

    def _native_s(self, row: Row) -> float | None:
        """Return the time per native call alike in this run in seconds; None if there was none."""
        alike = [
            one
            for one in self._rows.values()
            if not one.planned
            and (one.collective, one.ranks) == (row.collective, row.ranks)
            and one.least_bytes == one.most_bytes == row.least_bytes == row.most_bytes
        ]
        n_calls = sum(one.calls for one in alike)
        is_start = row.collective.startswith("I")  # its time says nothing of the plan
        if not row.planned or is_start or not n_calls:
            return None
        return sum(one.seconds for one in alike) / n_calls

    def _gain(self, row: Row) -> str:
        """Return the speed-up that was measured in this run; empty if none was."""
        native_s = self._native_s(row)
        if native_s is not None and row.call_s > 0:
            return f"{native_s / row.call_s:.2f}x"
        return f"{row.gain:.2f}x" if row.why == FASTER and row.gain is not None else ""

    def _why(self, row: Row) -> str:
        """Return the reason of a row, and whether its plan is slower than native calls alike."""
        native_s = self._native_s(row)
        if native_s is None or row.call_s <= SLOWER * native_s:
            return row.why
        return f"{row.why}; slower here: native took {_seconds(native_s)}"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.collective,
                row.ran,
                str(row.ranks),
                _range(row.least_bytes, row.most_bytes),
                str(row.calls),
                _seconds(row.seconds),
                _seconds(row.call_s),
                self._gain(row),
                self._why(row),
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
        """Return the rows as a table in plain text."""
        lines = [_HEADS, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _seconds(value: float) -> str:
    """Format a time in a suitable unit.

    Examples
    --------
    >>> _seconds(0.00123), _seconds(0.0)
    ('1.23 ms', '0 s')
    """
    for scale, unit in _UNITS:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return "0 s"


def deliver(found: Iterable[Statistics]) -> None:
    """Deliver the statistics of a process that ends; a file of `LOG` contains all of them."""
    together = list(found)
    if log_file() is not None:
        total = new_statistics()
        for statistics in together:
            total.add(statistics)
        together = [total]
    for statistics in together:
        statistics.deliver()


def new_statistics() -> Statistics:
    """Return empty statistics, with rows as fine as the environment variables require.

    For `FILE`, sizes share a row if they have the same power of two. For a file of `LOG`, each size
    has its own row.
    """
    if os.environ.get(FILE):
        return Statistics(int.bit_length)
    return Statistics(any_size if log_file() is None else int)
