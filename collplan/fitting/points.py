"""Measured points: one time of one collective, with everything on which it depends."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from collplan.planner.arrays import Ints
from collplan.specs.errors import CollplanError

SHORTEST_S: Final = 5e-8
LONGEST_S: Final = 1e4
"""Times in seconds outside of which the unit of a file must be another one than stated."""
FEWEST: Final = 8
"""Number of points below which nothing is fitted."""
LATENCY: Final = "latency"
"""Kind of a point that is half a round trip of two ranks."""
ROUND_TRIP_LINKS: Final = ("numa", "node", "network")


class MeasurementError(CollplanError):
    """A file of measurements that cannot be used, and the reason."""


@dataclass(frozen=True, eq=False)
class RankLayout:
    """Places of the ranks of a job.

    Parameters
    ----------
    node, domain, group : ndarray of int64, shape (n_ranks,)
        Node, NUMA domain of the machine, and group of switches of each rank.
    n_lanes : int
        Lanes of a node.
    """

    node: Ints
    domain: Ints
    group: Ints
    n_lanes: int = 1

    @property
    def n_ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.node)

    @property
    def per_node(self) -> int:
        """Return the largest number of ranks on one node."""
        return int(np.bincount(self.node).max())

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes."""
        return len(np.unique(self.node))


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredPoint:
    """One measured time.

    Parameters
    ----------
    system, job, collective, algorithm, library : str
        Names as in the file. A job is what ran at one time on one set of nodes.
    layout : RankLayout
        Places of the ranks.
    n_bytes : int
        Bytes of the vector, or of all blocks of one rank together; of a message for `LATENCY`.
    seconds : float
        Median or mean time of the slowest rank.
    mapping : str
        Order in which ranks were placed, where a file has several.
    """

    system: str
    job: str
    collective: str
    algorithm: str
    library: str
    layout: RankLayout
    n_bytes: int
    seconds: float
    mapping: str = ""

    @property
    def case(self) -> tuple[str | int, ...]:
        """Return what all algorithms that were compared with each other have in common."""
        layout = self.layout
        return (
            self.system,
            self.job,
            self.mapping,
            self.collective,
            layout.n_nodes,
            layout.n_ranks,
            self.n_bytes,
        )

    @property
    def is_choice(self) -> bool:
        """Return whether the point is of a named algorithm, not of the default of a library."""
        return not self.algorithm.startswith("default") and self.collective != LATENCY


@dataclass
class PointCollection:
    """Points of some files, and what was left out.

    Parameters
    ----------
    points : list of MeasuredPoint
    notes : list of str
        Remarks on points that were left out or corrected.
    """

    points: list[MeasuredPoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def require_seconds(value: str, unit_s: float, where: str, name: str) -> float:
    """Return a time of a file in seconds.

    Parameters
    ----------
    value : str
        Text of the number.
    unit_s : float
        Unit of the column in seconds.
    where : str
        File and line.
    name : str
        Name of the column.

    Raises
    ------
    MeasurementError
        If the text is no positive number, or if the unit cannot be right.
    """
    try:
        seconds = float(value) * unit_s
    except ValueError:
        seconds = math.nan
    if not seconds > 0 or math.isinf(seconds):
        raise MeasurementError(f"{where}: {name} is {value!r}; give a time above 0")
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise MeasurementError(
            f"{where}: {name} is {value!r}, which is {seconds:.3g} s; "
            f"check the unit of the column, which must be {'µs' if unit_s < 1e-3 else 's'}"
        )
    return seconds


def require_integer(value: str, where: str, name: str, least: int = 0) -> int:
    """Return an integer of a file that is at least `least`; raise `MeasurementError` otherwise."""
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise MeasurementError(f"{where}: {name} is {value!r}; give an integer of at least {least}")
    return number


def require_enough(points: Sequence[MeasuredPoint], source: str) -> None:
    """Raise `MeasurementError` if points are too few, or if all times are equal."""
    if len(points) < FEWEST:
        raise MeasurementError(
            f"{source}: has {len(points)} usable points; a fit needs {FEWEST} or more"
        )
    if len({point.seconds for point in points}) == 1:
        raise MeasurementError(
            f"{source}: all {len(points)} times are {points[0].seconds:g} s; "
            "a fit needs times that depend on something"
        )


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
