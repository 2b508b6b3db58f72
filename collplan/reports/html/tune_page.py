"""The HTML page of a tuning table: winners, gains, and all times with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.reports.html.assembly import (
    answered,
    assemble,
    reproduction,
    section,
    table,
    wide_table,
    write_page,
)
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.tuning import gain_of, measured_sweeps, native_of, speedup_of
from collplan.specs.syntax.documents import write_yaml
from collplan.tables.sweep import NATIVE_LABEL, Sweep

if TYPE_CHECKING:
    from collplan.tune.tuner import Tuned

Json = dict[str, Any]


def write_tuned(path: Path, tuned: Tuned, commands: Sequence[str]) -> None:
    """Write a tuning table as one HTML file that loads no other files.

    Parameters
    ----------
    path : Path
        File to write.
    tuned : Tuned
        Results of a tuning run.
    commands : sequence of str
        Commands that make the table and use it.

    Raises
    ------
    CollplanError
        If the file cannot be written.
    """
    here, sweeps = tuned.table.fingerprint, measured_sweeps(tuned.table)
    nodes = "1 node" if here.nodes == 1 else f"{here.nodes} nodes"
    files = [(f"What the table chooses for {_title(one)}", _choices(one)) for one in sweeps]
    text = assemble(
        f"Tuned collectives, {here.mpi}",
        f"Measured on {nodes} of {here.cores_per_node} cores, {here.cpu}.",
        [
            answered(list(_answer(tuned, sweeps))),
            section("winners", tables="".join(_winners(sweeps))),
            section("tuned"),
            reproduction(commands, files),
        ],
        {"sweeps": [_document(one) for one in sweeps]},
    )
    write_page(path, text)


def _title(sweep: Sweep) -> str:
    return f"{sweep.name} on {sweep.placement}"


def _answer(tuned: Tuned, sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Generate sentences on the results of the tuning run."""
    n_won = sum(point.winner != NATIVE_LABEL for one in sweeps for point in one.points)
    n_points = sum(len(one.points) for one in sweeps)
    yield f"A plan is faster than the MPI library's own collective at {n_won} of {n_points} points."
    for sweep in sweeps:
        best = max(sweep.points, key=lambda point: speedup_of(point).factor)
        if best.winner != NATIVE_LABEL:
            yield (
                f"{_title(sweep)}: at most {speedup_of(best).factor:.2f} times as fast, by "
                f"{best.winner} at {format_bytes(best.bytes)}; {gain_of(sweep).mean:.2f} times on "
                f"average over {len(sweep.points)} sizes."
            )
        else:
            yield f"{_title(sweep)}: native stays at every size."
    crowd = max((one.ranks_per_core or 1.0 for one in sweeps), default=1.0)
    if crowd > 1:
        yield (
            f"Caution: up to {crowd:.3g} ranks shared a core, where native calls may wait for each "
            "other's time slices; these gains do not hold where every rank has a core."
        )
    yield from (f"Wrong: {text}" for text in tuned.wrong)
    yield from (f"Failed: {text}" for text in tuned.failures)


def _winners(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Generate a table of winners for each placement, and a table of gains."""
    for placement in dict.fromkeys(one.placement for one in sweeps):
        rows = []
        for sweep in (one for one in sweeps if one.placement == placement):
            for point in sweep.points:
                best, native = point.times[point.winner], native_of(point)
                gain = speedup_of(point)
                rows.append((
                    sweep.name, format_bytes(point.bytes), point.winner,
                    _spread(best), _spread(native), f"{gain.factor:.2f}",
                    f"{gain.low:.2f} to {gain.high:.2f}",
                    str(len(point.times)), str(point.skipped),
                ))  # fmt: skip
        head = ("collective", "size", "winner", "its time", "native", "gain", "at worst and best",
                "measured", "left out")  # fmt: skip
        yield f"<h3>{placement}</h3>" + wide_table(f"Winners on {placement}", head, rows)
    gains = [
        (_title(one), str(len(one.points)), *(f"{factor:.2f}" for factor in gain_of(one)))
        for one in sweeps
    ]
    titles = ("gain over all sizes", "sizes", "least", "mean", "greatest")
    yield "<h3>Gains</h3>" + wide_table("Gains", titles, gains, named=True)


def _spread(time: Any) -> str:
    ends = f"{format_seconds(time.low_s)} to {format_seconds(time.high_s)}"
    return f"{format_seconds(time.median_s)} ({ends})"


def _choices(sweep: Sweep) -> str:
    """Return the methods of a sweep's winners as YAML."""
    labels = dict.fromkeys(point.winner for point in sweep.points)
    return write_yaml(
        {label: sweep.choices[label].model_dump(mode="json", exclude_none=True) for label in labels}
    )


def _document(sweep: Sweep) -> Json:
    """Return the data of a sweep for the chart, and a table of all its times."""
    rows = [
        (
            format_bytes(point.bytes),
            label + " (chosen)" * (label == point.winner),
            format_seconds(time.median_s),
            f"{format_seconds(time.low_s)} to {format_seconds(time.high_s)}",
            str(time.n),
        )
        for point in sweep.points
        for label, time in sorted(point.times.items(), key=lambda item: item[1].median_s)
    ]
    head = ("size", "candidate", "median", "95 % of the median", "repetitions")
    return {
        "name": _title(sweep),
        "points": [
            {
                "bytes": point.bytes,
                "label": format_bytes(point.bytes),
                "winner": point.winner,
                "times": {
                    label: [time.median_s, time.low_s, time.high_s]
                    for label, time in point.times.items()
                },
            }
            for point in sweep.points
        ],
        "table": table(head, rows),
    }
