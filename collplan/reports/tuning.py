"""Tables and plots of the measurements of ``collplan tune``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.reports.plots import COLOURS, finish, furnish_sizes, new_figure
from collplan.select.sweep import run_jobs
from collplan.specs.errors import CollplanError
from collplan.tables.sweep import NATIVE_LABEL, Point, Sweep, Time

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from matplotlib.axes import Axes

    from collplan.specs import PlanSpec
    from collplan.tables.table import TuningTable
    from collplan.tune.tuner import Tuned


class Speedup(NamedTuple):
    """Speed-up of a point's winner over native.

    Parameters
    ----------
    factor : float
        Ratio of the native median to the winner's; 1 if native wins.
    low, high : float
        Smallest and largest ratio that the 95 % intervals of both medians allow.
    """

    factor: float
    low: float
    high: float


def native_of(point: Point) -> Time:
    """Return the time of the native call at a point.

    Raises
    ------
    CollplanError
        If the point has none, as only tables that `collplan tune` did not write.
    """
    if NATIVE_LABEL not in point.times:
        raise CollplanError(
            f"table: has no time of {NATIVE_LABEL} at {point.bytes} bytes, and speed-ups are "
            f"relative to it; tune again with --restart"
        )
    return point.times[NATIVE_LABEL]


def speedup_of(point: Point) -> Speedup:
    """Return the speed-up of a point's winner over native."""
    own, native = point.times[point.winner], native_of(point)
    if point.winner == NATIVE_LABEL or not own.low_s:
        return Speedup(1.0, 1.0, 1.0)
    return Speedup(
        native.median_s / own.median_s, native.low_s / own.high_s, native.high_s / own.low_s
    )


class SweepGain(NamedTuple):
    """Smallest, mean and largest speed-up over the sizes of a sweep; it is 1 if native wins."""

    least: float
    mean: float
    greatest: float


def gain_of(sweep: Sweep) -> SweepGain:
    """Return the gain of a sweep with at least one point."""
    factors = [speedup_of(point).factor for point in sweep.points]
    return SweepGain(min(factors), float(np.mean(factors)), max(factors))


def measured_sweeps(table: TuningTable) -> list[Sweep]:
    return [sweep for sweep in table.sweeps if sweep.points]


def to_json(tuned: Tuned) -> dict[str, Any]:
    """Return the results of a run as a dictionary that JSON can hold."""
    return {
        "points": tuned.n_points,
        "resumed": tuned.n_resumed,
        "correct": not tuned.wrong and not tuned.failures,
        "wrong": list(tuned.wrong),
        "failed": list(tuned.failures),
        "rows": [_row(sweep, point) for sweep, point in _points(tuned.table)],
        "gains": [_gain_row(sweep) for sweep in measured_sweeps(tuned.table)],
        "table": tuned.table.model_dump(mode="json", exclude_none=True),
    }


def _points(table: TuningTable) -> list[tuple[Sweep, Point]]:
    return [(sweep, point) for sweep in table.sweeps for point in sweep.points]


def _subject(sweep: Sweep) -> dict[str, Any]:
    return {
        "collective": sweep.collective,
        **({} if sweep.counts is None else {"counts": sweep.counts}),
        "ranks": sweep.ranks,
        "placement": str(sweep.placement),
    }


def _gain_row(sweep: Sweep) -> dict[str, Any]:
    gain = gain_of(sweep)
    return {
        **_subject(sweep),
        "sizes": len(sweep.points),
        "min": gain.least,
        "mean": gain.mean,
        "max": gain.greatest,
    }


def _row(sweep: Sweep, point: Point) -> dict[str, Any]:
    speedup = speedup_of(point)
    return {
        **_subject(sweep),
        "bytes": point.bytes,
        "winner": point.winner,
        "median_s": point.times[point.winner].median_s,
        "native_median_s": native_of(point).median_s,
        "speedup": speedup.factor,
        "speedup_interval": (speedup.low, speedup.high),
        "measured": len(point.times),
        "skipped": point.skipped,
        "ranks_per_core": sweep.ranks_per_core,
    }


def print_tuned(tuned: Tuned, output: str) -> None:
    """Print the winners of each placement, the gains, and a summary of the run."""
    table = tuned.table
    print_line(f"{table.fingerprint.mpi}, {table.fingerprint.cpu}")
    for placement in dict.fromkeys(sweep.placement for sweep in table.sweeps):
        print_table(
            [str(placement), "size", "winner", "time", "native", "speed-up", "measured", "skipped"],
            [_cells(s, point) for s, point in _points(table) if s.placement == placement],
        )
    print_table(
        ["gain over native", "ranks", "sizes", "min", "mean", "max"],
        [
            [sweep.name, str(sweep.ranks), str(len(sweep.points))]
            + [f"{factor:.2f}" for factor in gain_of(sweep)]
            for sweep in measured_sweeps(table)
        ],
    )
    resumed = f", {tuned.n_resumed} of them by earlier runs" if tuned.n_resumed else ""
    skipped = sum(point.skipped for _, point in _points(table))
    points = f"{tuned.n_points} point{'s' if tuned.n_points > 1 else ''}"
    print_line(
        f"{points}{resumed}; {skipped} candidates left out, as the model finds them far from "
        f"the best; the slowest rank of each repetition counts"
    )
    crowd = max((sweep.ranks_per_core or 1.0 for sweep in table.sweeps), default=1.0)
    if crowd > 1:
        print_line(
            f"CAUTION: up to {crowd:.3g} ranks shared a core, where native calls may wait for each "
            "other's time slices; these speed-ups do not hold where every rank has a core"
        )
    for text in tuned.wrong:
        print_line(f"WRONG: {text}")
    for text in tuned.failures:
        print_line(f"FAILED: {text}")
    print_line(f"wrote {output}")


def _cells(sweep: Sweep, point: Point) -> list[str]:
    speedup = speedup_of(point)
    won = point.winner != NATIVE_LABEL
    return [
        sweep.name,
        format_bytes(point.bytes),
        point.winner,
        format_seconds(point.times[point.winner].median_s),
        format_seconds(native_of(point).median_s),
        f"{speedup.factor:.2f} ({speedup.low:.2f} to {speedup.high:.2f})" if won else "",
        str(len(point.times)),
        str(point.skipped),
    ]


def plot_speedups(path: Path, table: TuningTable) -> None:
    """Plot the speed-ups of winners over native by size, and their minimum, mean and maximum.

    Raises
    ------
    CollplanError
        If the path is not valid for a plot.
    """
    sweeps = measured_sweeps(table)
    many = len({sweep.placement for sweep in sweeps}) > 1
    names = [f"{one.name}, {one.ranks} ranks" if many else one.name for one in sweeps]
    with new_figure(path, (12.0, 4.8)) as figure:
        by_size, by_sweep = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
        for i, (sweep, name) in enumerate(zip(sweeps, names, strict=True)):
            speedups = np.array([speedup_of(point) for point in sweep.points])
            factors, lows, highs = speedups.T
            bars = np.maximum(0.0, [factors - lows, highs - factors])
            by_size.errorbar(
                [point.bytes for point in sweep.points],
                factors,
                yerr=bars,
                label=name,
                color=COLOURS[i % len(COLOURS)],
                linestyle=("-", "--", ":")[i // len(COLOURS) % 3],
                marker="o",
                markersize=4,
                linewidth=1.4,
                capsize=3,
            )
        _plot_gains(by_sweep, sweeps, names)
        for axes in (by_size, by_sweep):
            axes.axhline(1.0, color="#5f6368", linewidth=0.8)
        sizes = sorted({point.bytes for _, point in _points(table)})
        furnish_sizes(by_size, sizes, "bytes of the vector, or of one block")
        by_size.set_ylabel("times faster than native")
        by_size.set_ylim(bottom=0)
        finish(by_size, f"Winners beside native, {table.fingerprint.mpi}", fontsize=8)
        finish(by_sweep, "Gain over all sizes: min, mean and max")


def _plot_gains(axes: Axes, sweeps: Sequence[Sweep], names: Sequence[str]) -> None:
    """Draw a bar for the mean gain of each sweep, with a line from its minimum to its maximum."""
    places = range(len(sweeps))
    least, mean, greatest = np.array([gain_of(sweep) for sweep in sweeps]).reshape(-1, 3).T
    axes.bar(
        places,
        mean,
        yerr=[mean - least, greatest - mean],
        color=[COLOURS[i % len(COLOURS)] for i in places],
        alpha=0.7,
        capsize=4,
    )
    axes.set_xticks(list(places), names, rotation=30, ha="right", fontsize=8)
    axes.tick_params(labelleft=True)


def _listed(spec: PlanSpec) -> list[dict[str, Any]]:
    """Return name, family, topology and segment sizes of every candidate of a collective."""
    from collplan.select.candidates import SEGMENTS
    from collplan.tune.candidates import all_variants, family_of, topology_of

    return [
        {
            "name": form.name,
            "family": family_of(form),
            "topology": topology_of(form),
            "segments": list(SEGMENTS) if form.has_segments else [],
        }
        for form in all_variants(spec)
    ]


def candidates_to_json(
    specs: Sequence[PlanSpec], executor: Executor | None = None
) -> dict[str, Any]:
    """Return all candidates as a dictionary that JSON can hold; an executor can list them."""
    kinds = [spec.collective.kind for spec in specs]
    return {
        "ranks": specs[0].machine.n_ranks,
        "candidates": dict(zip(kinds, run_jobs(_listed, specs, executor), strict=True)),
    }


def print_candidates(document: dict[str, Any]) -> None:
    """Print all candidates of `candidates_to_json`, collective by collective."""
    for kind, listed in document["candidates"].items():
        rows = []
        for one in listed:
            ends = [format_bytes(size) for size in one["segments"][:1] + one["segments"][-1:]]
            rows.append([one["name"], one["topology"] or one["family"], " to ".join(ends)])
        print_table([f"{kind} on {document['ranks']} ranks", "family", "segments"], rows)
        print_line(f"{len(listed)} candidates beside native, not counting sizes of segments")
