"""Printed output of OSU's, Intel's and ReproMPI's benchmarks.

These outputs say the collective, sizes and times, but not where ranks were. The layout is that of a
machine that the caller names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from collplan.fitting.points import (
    LATENCY,
    MeasuredPoint,
    MeasurementError,
    PointCollection,
    RankLayout,
    require_integer,
    require_seconds,
)
from collplan.fitting.readers.orfeo import two_ranks

OSU: Final = re.compile(r"#\s*OSU MPI (.+?) Test", re.IGNORECASE)
IMB: Final = re.compile(r"#\s*Benchmarking\s+(\S+)")
REPROMPI: Final = re.compile(r"#@\w+=")
KINDS: Final[Mapping[str, str]] = {
    name.replace("_", ""): name
    for name in (
        "allgather",
        "allreduce",
        "alltoall",
        "barrier",
        "bcast",
        "gather",
        "reduce",
        "reduce_scatter",
        "scatter",
    )
} | {
    "broadcast": "bcast",
    "reducescatter": "reduce_scatter",
    "reducescatterblock": "reduce_scatter",
}
"""Collectives by their names in outputs, in small letters without other signs."""
OF_BLOCKS: Final = ("allgather", "alltoall", "gather", "scatter")
"""Collectives whose sizes in outputs are those of one block."""
_ROUND_TRIPS: Final = ("latency", "pingpong")
_PROCESSES: Final = re.compile(r"#\s*#?processes\s*=\s*(\d+)|#@nprocs=(\d+)")
_EXTENT: Final = re.compile(r"#@datatype_extent_bytes=(\d+)")


class Surroundings(NamedTuple):
    """Facts that outputs lack: name of the system, library, places of ranks, and their link."""

    system: str
    library: str
    layout: RankLayout
    link: str


class _Line(NamedTuple):
    where: str
    words: list[str]


def read_printed(text: str, path: Path, around: Surroundings) -> PointCollection:
    """Return the points of an output.

    Parameters
    ----------
    text, path : str, Path
        Content and name of the file.
    around : Surroundings
        Places of the ranks.

    Raises
    ------
    MeasurementError
        If the file is none of the known outputs, or if a number is missing.
    """
    told = _PROCESSES.search(text)
    n_ranks = around.layout.n_ranks
    if told is not None and int(told[1] or told[2]) > n_ranks:
        raise MeasurementError(
            f"{path}: was measured on {told[1] or told[2]} ranks, and the machine has {n_ranks}; "
            "give the right one by --machine"
        )
    if told is not None:
        around = around._replace(layout=_first_ranks(around.layout, int(told[1] or told[2])))
    if REPROMPI.search(text):
        return PointCollection(list(_reprompi(text, path, around)))
    for pattern, column in ((OSU, 1), (IMB, None)):
        if pattern.search(text):
            return PointCollection(list(_blocks(text, path, around, pattern, column)))
    raise MeasurementError(
        f"{path}: is no output of OSU's, Intel's or ReproMPI's benchmarks, and no CSV of PICO or "
        "ORFEO; give one of these"
    )


def _first_ranks(layout: RankLayout, n_ranks: int) -> RankLayout:
    node, domain = layout.node[:n_ranks], layout.domain[:n_ranks]
    return RankLayout(node, domain, layout.group[:n_ranks], layout.n_lanes)


def _blocks(
    text: str, path: Path, around: Surroundings, pattern: re.Pattern[str], column: int | None
) -> Iterator[MeasuredPoint]:
    """Yield the points of OSU's and Intel's outputs: a title, then lines of numbers.

    Intel's lines have the number of repetitions after the size, then the least, the greatest and
    the mean time of ranks, of which the greatest is taken; or one time.
    """
    kind: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        title = pattern.search(line)
        if title is not None:
            kind = _kind_of(title[1])
        words = line.split()
        if kind is None or not words or not re.fullmatch(r"\d+", words[0]):
            continue
        where = f"{path}, line {number}"
        place = column if column is not None else 3 if len(words) >= 5 else 2
        if len(words) <= place:
            raise MeasurementError(f"{where}: has no time after {words[0]!r}; complete the line")
        yield _point(kind, require_integer(words[0], where, "size"), words[place], where, around)


def _point(
    kind: str, size: int, time: str, where: str, around: Surroundings, unit_s: float = 1e-6
) -> MeasuredPoint:
    is_trip = kind in _ROUND_TRIPS
    n_bytes = size * (around.layout.n_ranks if kind in OF_BLOCKS else 1)
    return MeasuredPoint(
        system=around.system,
        job=where.rpartition(", line")[0],
        collective=LATENCY if is_trip else kind,
        algorithm="default",
        library=around.library,
        layout=two_ranks(around.link) if is_trip else around.layout,
        n_bytes=n_bytes,
        seconds=require_seconds(time, unit_s, where, "time"),
        mapping=around.link if is_trip else "",
    )


def _kind_of(title: str) -> str | None:
    """Return the collective of a title, or a round trip; None if it is another benchmark."""
    plain = re.sub(r"[^a-z]", "", title.lower().replace("mpi", "").partition("latency")[0])
    if plain in KINDS:
        return KINDS[plain]
    whole = re.sub(r"[^a-z]", "", title.lower())
    return whole if whole in _ROUND_TRIPS else None


def _reprompi(text: str, path: Path, around: Surroundings) -> Iterator[MeasuredPoint]:
    """Yield the median over the repetitions of each collective and size."""
    extent = _EXTENT.search(text)
    columns: list[str] = []
    times: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        if "test" in words and "runtime_sec" in words:
            columns = words
            continue
        if not columns:
            raise MeasurementError(
                f"{where}: has no header with test, count and runtime_sec before it; give the "
                "whole output"
            )
        row = dict(zip(columns, words, strict=False))
        kind = _kind_of(row["test"].removeprefix("MPI_"))
        size = row.get("count", row.get("msize"))
        if kind is None or size is None or "runtime_sec" not in row:
            continue
        n_bytes = require_integer(size, where, "count") * (int(extent[1]) if extent else 1)
        require_seconds(row["runtime_sec"], 1.0, where, "runtime_sec")
        times[kind, n_bytes].append(row["runtime_sec"])
    for (kind, n_bytes), found in times.items():
        middle = repr(median(float(one) for one in found))
        yield _point(kind, n_bytes, middle, f"{path}, line 0", around, 1.0)
