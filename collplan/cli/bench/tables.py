"""Tables and plots of what benchmarks measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

STATISTICS: Final = ("median", "mean", "95 % of the median", "least")
"""The columns that `statistics` fills."""


def statistics(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a row's times."""
    from collplan.reports.output import format_seconds

    low, high = map(format_seconds, row["ci95_s"])
    return [
        format_seconds(row["median_s"]),
        format_seconds(row["mean_s"]),
        f"{low} to {high}",
        format_seconds(row["min_s"]),
    ]


def plot_rows(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    *,
    title: str,
    size_label: str,
) -> None:
    """Plot the medians of rows and their intervals against sizes, a line for each name.

    Parameters
    ----------
    path : Path
        Where to.
    rows : sequence of mapping
        With ``bytes``, ``median_s`` and ``ci95_s``; ascending in bytes.
    names : sequence of str
        Each row's line.
    title, size_label : str
        As for `collplan.reports.plots.plot_times`.
    """
    from collplan.reports.plots import Series, plot_times

    series = []
    for name in dict.fromkeys(names):
        own = [row for row, other in zip(rows, names, strict=True) if other == name]
        series.append(
            Series(
                name,
                [row["bytes"] for row in own],
                [row["median_s"] for row in own],
                [row["ci95_s"] for row in own],
            )
        )
    plot_times(path, series, title=title, size_label=size_label)
