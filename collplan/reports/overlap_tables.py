"""How well a collective overlaps with computation: as JSON, and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from collplan.reports.output import format_bytes, format_seconds, print_line, print_table

if TYPE_CHECKING:
    from collplan.measure.overlap.model import Choice, OverlapTable
    from collplan.measure.overlap.simulation import SimulatedOverlap


def to_json(model: OverlapTable, simulated: SimulatedOverlap | None = None) -> dict[str, Any]:
    """Return the tables, ready for JSON.

    Parameters
    ----------
    model : OverlapTable
        What the closed forms say.
    simulated : SimulatedOverlap, optional
        What the simulator says.

    Returns
    -------
    dict
        `collective`; `cores`; `rows`, a list of ``{ranks, levels, time, communication}``
        for every number of ranks below the cores and every number of levels on the
        application cores, `time` being T_overlapped and `communication`
        T_non-blocking, in transfers; `references`, a list of ``{ranks, blocking,
        compute}``, T_blocking and C; `best`, a list of ``{ranks, levels, time}`` for
        every number of ranks; `switches`, those of them whose levels are not those of
        one rank less; `best_overall`, the least. With a simulation, rows have
        `simulated` and `simulated_communication` beside them, in transfers, too, and
        `simulation` has `machine`, `transport`, `transfer_bytes`, `transfer_s`, and
        `references`, `best`, `switches` and `best_overall` as above.
    """
    places = [(row, levels) for row in range(model.n_cores - 1) for levels in range(model.n_levels)]
    rows = [
        {
            "ranks": row + 1,
            "levels": levels,
            "time": float(model.overlapped[row, levels]),
            "communication": float(model.communication[row, levels]),
        }
        for row, levels in places
    ]
    document = {
        "collective": model.collective,
        "cores": model.n_cores,
        "rows": rows,
        **_choices(model),
    }
    if simulated is not None:
        table = simulated.table
        for place, entry in zip(places, rows, strict=True):
            entry["simulated"] = float(table.overlapped[place])
            entry["simulated_communication"] = float(table.communication[place])
        document["simulation"] = {
            "machine": simulated.machine,
            "transport": simulated.transport,
            "transfer_bytes": simulated.transfer_bytes,
            "transfer_s": simulated.transfer_s,
            **_choices(table),
        }
    return document


def _choices(table: OverlapTable) -> dict[str, Any]:
    return {
        "references": [
            {
                "ranks": row + 1,
                "blocking": float(table.blocking[row]),
                "compute": float(table.compute[row]),
            }
            for row in range(table.n_cores - 1)
        ],
        "best": [one.to_json() for one in table.best()],
        "switches": [one.to_json() for one in table.switches()],
        "best_overall": table.best_overall().to_json(),
    }


def print_overlap(model: OverlapTable, simulated: SimulatedOverlap | None = None) -> None:
    """Print the best levels by ranges of ranks, and what is best of all."""
    _print_choices("model", model)
    if simulated is not None:
        _print_choices("simulated", simulated.table)
        where = simulated.machine or "cores where nothing but transfers takes time"
        unit = "one takes a unit"
        if simulated.machine is not None:
            unit = (
                f"one of {format_bytes(simulated.transfer_bytes)} takes "
                f"{format_seconds(simulated.transfer_s)}"
            )
        how = "shared memory" if simulated.transport == "shared" else "messages"
        print_line(f"simulated: on {where}; transfers through {how}, {unit}")


def _print_choices(name: str, table: OverlapTable) -> None:
    ranges = _ranges(table.best())
    print_table(
        (f"ranks ({name})", "communication cores", "levels S", "fastest with", "transfers"),
        [_range_row(part, table.n_cores) for part in ranges],
    )
    best = table.best_overall()
    row = best.ranks - 1
    print_line(
        f"least: {best.time:.4g} transfers with {_count(best.ranks, 'rank')} and S = {best.levels};"
        f" computation alone {table.compute[row]:.4g}, the blocking collective alone "
        f"{table.blocking[row]:.4g}"
    )


def _ranges(best: Sequence[Choice]) -> list[list[Choice]]:
    return [list(part) for _, part in groupby(best, key=lambda one: one.levels)]


def _range_row(part: Sequence[Choice], n_cores: int) -> tuple[str, ...]:
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
