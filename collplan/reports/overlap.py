"""Reports of predicted and measured overlap with computation, as JSON, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.reports.output import format_bytes, format_seconds, pick, print_line, print_table
from collplan.reports.plots import COLOURS, Series, finish, new_figure, plot_by_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collplan.measure.overlap.model import LevelChoice, OverlapTable, Times
    from collplan.measure.overlap.simulation import SimulatedOverlap
    from collplan.measure.overlap.sweep import OverlapSweep

_SIZE_INCHES: Final = (11.0, 4.8)
_MOST_LINES: Final = 7
"""Largest number of levels to draw; more levels of a higher tree are never nearly the best."""
_NARROW: Final = 8
"""Ratio of the ends of an axis below which powers of two give too few ticks."""
_DARK, _GREY = COLOURS[0], "#8a8f98"
_LINES: Final = (*COLOURS[1:], "#8c564b")
_COLUMNS: Final = ("communication", "computation", "both", "overlap")


def to_json(model: OverlapTable, simulated: SimulatedOverlap | None = None) -> dict[str, Any]:
    """Return the tables as a dictionary that JSON can hold.

    Parameters
    ----------
    model : OverlapTable
        Times by the closed forms.
    simulated : SimulatedOverlap, optional
        Simulated times.

    Returns
    -------
    dict
        `collective`; `radix`, that of the tree; `cores`; `rows`, a list of ``{ranks, levels,
        time, communication}`` for every number of ranks below the number of cores and every
        number of levels on the application cores, where `time` is T_overlapped and
        `communication` is T_non-blocking, in transfers; `references`, a list of ``{ranks,
        blocking, compute}`` with T_blocking and C; `best`, a list of ``{ranks, levels, time}``
        for every number of ranks; `switches`, those entries of `best` whose levels differ from
        the levels for one rank fewer; `best_overall`, the fastest entry. With a simulation,
        rows also have `simulated` and `simulated_communication` in transfers, and
        `simulation` has `machine`, `transport`, `transfer_bytes`, `transfer_s`, and
        `references`, `best`, `switches` and `best_overall` as above.
    """
    times = {"time": model.overlapped, "communication": model.communication}
    more = {}
    if simulated is not None:
        table = simulated.table
        times |= {"simulated": table.overlapped, "simulated_communication": table.communication}
        about = pick(simulated, "machine transport transfer_bytes transfer_s")
        more["simulation"] = about | _choices(table)
    rows = [
        {"ranks": row + 1, "levels": levels}
        | {name: float(each[row, levels]) for name, each in times.items()}
        for row in range(model.n_cores - 1)
        for levels in range(model.n_levels)
    ]
    return {
        "collective": model.collective,
        "radix": model.radix,
        "cores": model.n_cores,
        "rows": rows,
        **_choices(model),
        **more,
    }


def _choices(table: OverlapTable) -> dict[str, Any]:
    times = zip(table.blocking.tolist(), table.compute.tolist(), strict=True)
    return {
        "references": [
            {"ranks": ranks, "blocking": blocking, "compute": compute}
            for ranks, (blocking, compute) in enumerate(times, 1)
        ],
        "best": [one._asdict() for one in table.best()],
        "switches": [one._asdict() for one in table.switches()],
        "best_overall": table.best_overall()._asdict(),
    }


def print_overlap(model: OverlapTable, simulated: SimulatedOverlap | None = None) -> None:
    """Print the best number of levels for ranges of ranks, and the best choice of all."""
    _print_choices("model", model)
    if simulated is None:
        return
    _print_choices("simulated", simulated.table)
    where, unit = "cores where nothing but transfers takes time", "one takes a unit"
    if simulated.machine is not None:
        transfer = format_bytes(simulated.transfer_bytes)
        where = simulated.machine
        unit = f"one of {transfer} takes {format_seconds(simulated.transfer_s)}"
    how = "shared memory" if simulated.transport == "shared" else "messages"
    print_line(f"simulated: on {where}; transfers through {how}, {unit}")


def _print_choices(name: str, table: OverlapTable) -> None:
    ranges = groupby(table.best(), key=lambda one: one.levels)
    print_table(
        (f"ranks ({name})", "communication cores", "levels S", "fastest with", "transfers"),
        [_range_row(list(part), table.n_cores) for _, part in ranges],
    )
    best = table.best_overall()
    row = best.ranks - 1
    print_line(
        f"least: {best.time:.4g} transfers with {_count(best.ranks, 'rank')} and S = {best.levels};"
        f" computation alone {table.compute[row]:.4g}, the blocking collective alone "
        f"{table.blocking[row]:.4g}"
    )


def _range_row(part: Sequence[LevelChoice], n_cores: int) -> tuple[str, ...]:
    first, last = part[0].ranks, part[-1].ranks
    fastest = min(part, key=lambda one: one.time)
    return (
        _span(first, last),
        _span(n_cores - first, n_cores - last),
        str(part[0].levels),
        _count(fastest.ranks, "rank"),
        f"{fastest.time:.4g}",
    )


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def plot_overlap(path: Path, model: OverlapTable, simulated: OverlapTable | None = None) -> None:
    """Plot communication alone and with computation, one line per number of levels.

    The plots start at half of the cores. With fewer ranks, every rank has a communication
    core of its own, and levels on application cores are no advantage.

    Parameters
    ----------
    path : Path
        File to write; its suffix gives the file type.
    model : OverlapTable
        Times of the model, drawn as lines.
    simulated : OverlapTable, optional
        Simulated times, drawn as points.

    Raises
    ------
    CollplanError
        If the path is not valid for a plot.
    """
    with new_figure(path, _SIZE_INCHES) as figure:
        alone, both = figure.subplots(1, 2)
        _draw_levels(alone, model.communication)
        _draw(alone, model.compute, "computation", _GREY, ":")
        _draw(alone, model.blocking, "blocking", _DARK, "--")
        _draw_levels(both, model.overlapped)
        one_after_other = model.compute + model.blocking
        _draw(both, one_after_other, "computation, then blocking", _DARK, "--")
        if simulated is not None:
            _draw_levels(alone, simulated.communication, simulated=True)
            _draw_levels(both, simulated.overlapped, simulated=True)
        where = f"{model.collective}{_of_radix(model.radix)} on {model.n_cores} cores"
        _furnish(alone, f"{where}: communication alone")
        _furnish(both, f"{where}: with computation")


def _of_radix(radix: int | None) -> str:
    """Return a remark on the radix; empty if the tree is binomial or there is no tree."""
    return "" if radix in (None, 2) else f" with radix {radix}"


def _draw(axes: Axes, times: Times, label: str | None, colour: str, style: str) -> None:
    """Draw times against ranks, from half of the cores on.

    Times of 0, such as that of a collective on one rank, are left out, because a logarithmic
    axis cannot show them.
    """
    import numpy as np

    ranks = np.arange(1, len(times) + 1)
    ranks = ranks[(ranks >= len(times) // 2) & (times > 0)]
    axes.plot(
        ranks, times[ranks - 1], style, label=label, color=colour, linewidth=1.4, markersize=4
    )


def _draw_levels(axes: Axes, times: Times, *, simulated: bool = False) -> None:
    for levels, line in enumerate(times.T[:_MOST_LINES]):
        label = f"S = {levels}" if not simulated else "simulated" if levels == 0 else None
        _draw(axes, line, label, _LINES[levels], "." if simulated else "-")


def _furnish(axes: Axes, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    axes.set_xlabel("ranks; the other cores are communication cores")
    axes.set_ylabel("time, in transfers")
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    if high < _NARROW * low:
        axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    finish(axes, title, fontsize=8, ncols=2)


def sweep_document(
    sweep: OverlapSweep, repetitions: int | None, found: dict[str, Any]
) -> dict[str, Any]:
    """Return the results of a sweep as a dictionary that JSON can hold.

    Parameters
    ----------
    sweep : OverlapSweep
        Sweep that was run or simulated.
    repetitions : int or None
        Number of repetitions that count; None for a simulation.
    found : dict
        ``rows``, and further keys of the document.
    """
    best = []
    for n_ranks, rows in groupby(found["rows"], key=lambda row: row["ranks"]):
        chosen = min(rows, key=lambda row: row["total_s"])
        levels = {"model_levels": sweep.model_levels(n_ranks)}
        best.append({key: chosen[key] for key in ("ranks", "method", "total_s")} | levels)
    asked: dict[str, Any] = {
        "source": "simulated" if repetitions is None else "measured",
        "collective": sweep.kind,
        "algorithm": sweep.algorithm,
        "radix": None if sweep.model_levels(sweep.ranks[0]) is None else sweep.radix,
        "transport": sweep.transport,
        "bytes": sweep.n_bytes,
        "cores": sweep.n_cores,
    }
    if repetitions is not None:
        asked["repetitions"] = repetitions
    return asked | found | {"best": best}


def print_sweep(document: dict[str, Any]) -> None:
    """Print the rows of a sweep, and remarks on them."""
    progress = [] if document["source"] == "simulated" else ["progress"]
    print_line(
        f"{document['collective']} of {format_bytes(document['bytes'])} on {document['cores']} "
        f"cores, {document['algorithm']}{_of_radix(document['radix'])}, "
        f"{document.get('library', 'simulated')}"
    )
    best = {(entry["ranks"], entry["method"]) for entry in document["best"]}
    rows = [
        [
            str(row["ranks"]),
            row["method"],
            *(row[key] for key in progress),
            format_seconds(row["communication_s"]),
            format_seconds(row["computation_s"]),
            "*" * ((row["ranks"], row["method"]) in best) + format_seconds(row["total_s"]),
            f"{row['overlap']:.0%}".replace("-0%", "0%"),
        ]
        for row in document["rows"]
    ]
    print_table(["ranks", "method", *progress, *_COLUMNS], rows)
    print_line("* the least time of both for this number of ranks")
    levels = {entry["ranks"]: entry["model_levels"] for entry in document["best"]}
    if None not in levels.values():
        told = ", ".join(f"S={best} on {n_ranks}" for n_ranks, best in levels.items())
        print_line(f"best by the model: {told}")
    print_line(f"computation on all cores: {format_seconds(document['computation_s'])}")
    for line in _remarks(document):
        print_line(line)


def plot_sweep(path: Path, document: dict[str, Any]) -> None:
    """Plot the times of computation and communication together against numbers of ranks."""
    rows = document["rows"]
    series = []
    # Only the largest number of ranks has all levels, so it gives the order.
    for name in dict.fromkeys(row["method"] for row in reversed(rows)):
        own = [row for row in rows if row["method"] == name]
        ranks, times = zip(*((row["ranks"], row["total_s"]) for row in own), strict=True)
        intervals = [row["total_ci95_s"] for row in own] if "total_ci95_s" in own[0] else None
        series.append(Series(name, ranks, times, intervals))
    title = (
        f"{document['collective']}{_of_radix(document['radix'])} of "
        f"{format_bytes(document['bytes'])} and computation on "
        f"{document['cores']} cores, {document.get('library', 'simulated')}"
    )
    plot_by_ranks(path, series[::-1], title=title)


def _remarks(document: dict[str, Any]) -> list[str]:
    """Return remarks on the numbers of a sweep."""
    found = []
    if "repetitions" in document:
        found.append(
            f"{document['repetitions']} repetitions in turns; medians, from the first rank's start "
            f"to the last one's end"
        )
    if document.get("is_mapped"):
        found.append(
            f"note: {document['cores']} cores share {document['processors']} processors: times "
            f"only show that it works"
        )
    reasons = {row.get("why_caller") for row in document["rows"]} - {None}
    found += [f"note: progress by the caller: {reason}" for reason in sorted(reasons)]
    if document.get("asynchronous") is not None:
        found.append(f"native, asynchronous: {document['asynchronous']}")
    if document.get("why_not_asynchronous") is not None:
        found.append(f"native, asynchronous: none; {document['why_not_asynchronous']}")
    found += [f"WRONG: {wrong}" for wrong in document.get("wrong", [])]
    return found
