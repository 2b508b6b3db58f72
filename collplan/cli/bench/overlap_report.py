"""What overlap was found: one document of all launches, its tables, plot and trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.bench.ranks import Document

if TYPE_CHECKING:
    from collplan.executors.cost.traces.states import CoreStates
    from collplan.measure.overlap.sweep import Sweep

_COLUMNS: Final = ("communication", "computation", "both", "overlap")


@dataclass(frozen=True, slots=True)
class Report:
    """Where a sweep's results go.

    Parameters
    ----------
    sweep : Sweep
        What was run.
    repetitions : int or None
        How many were counted; None for a simulation.
    plot, trace : Path or None
        Files to write.
    as_json : bool
        Whether to print JSON instead of a table.
    """

    sweep: Sweep
    repetitions: int | None
    plot: Path | None
    trace: Path | None
    as_json: bool

    def show(self, found: Mapping[str, Any], states: Sequence[CoreStates]) -> None:
        """Print rows and what goes with them, then write the files, which may fail.

        Parameters
        ----------
        found : mapping
            ``rows``, and more keys for the document.
        states : sequence of CoreStates
            For the trace.
        """
        from collplan.reports.output import print_json

        document = self._document(found)
        if self.as_json:
            print_json(document)
        else:
            self._print(document)
        if self.plot is not None:
            self._plot(self.plot, document)
        if self.trace is not None:
            from collplan.executors.cost.traces.states import write_states

            write_states(self.trace, states)

    def _document(self, found: Mapping[str, Any]) -> Document:
        sweep, rows = self.sweep, found["rows"]
        best = []
        for n_ranks in dict.fromkeys(row["ranks"] for row in rows):
            chosen = min(
                (row for row in rows if row["ranks"] == n_ranks), key=lambda row: row["total_s"]
            )
            best.append({key: chosen[key] for key in ("ranks", "method", "total_s")})
            best[-1]["model_levels"] = sweep.model_levels(n_ranks)
        asked: Document = {
            "source": "simulated" if self.repetitions is None else "measured",
            "collective": sweep.kind,
            "algorithm": sweep.algorithm,
            "transport": sweep.transport,
            "bytes": sweep.n_bytes,
            "cores": sweep.n_cores,
        }
        if self.repetitions is not None:
            asked["repetitions"] = self.repetitions
        files = {"plot": self.plot, "trace": self.trace}
        written = {name: str(path) for name, path in files.items() if path is not None}
        return asked | dict(found) | {"best": best} | written

    def _print(self, document: Document) -> None:
        from collplan.reports.output import format_bytes, format_seconds, print_line, print_table

        measured = self.repetitions is not None
        where = document["library"] if measured else "simulated"
        print_line(
            f"{document['collective']} of {format_bytes(document['bytes'])} "
            f"on {document['cores']} cores, {document['algorithm']}, {where}"
        )
        best = {(entry["ranks"], entry["method"]) for entry in document["best"]}
        print_table(
            ["ranks", "method", *(["progress"] if measured else []), *_COLUMNS],
            [self._cells(row, (row["ranks"], row["method"]) in best) for row in document["rows"]],
            plain=True,  # Open MPI gives its ranks a pseudo-terminal.
        )
        print_line("* the least time of both for so many ranks")
        levels = {entry["ranks"]: entry["model_levels"] for entry in document["best"]}
        if None not in levels.values():
            told = ", ".join(f"S={best} on {n_ranks}" for n_ranks, best in levels.items())
            print_line(f"best by the model: {told}")
        print_line(f"computation on all cores: {format_seconds(document['computation_s'])}")
        for line in _remarks(document):
            print_line(line)

    def _cells(self, row: Mapping[str, Any], is_best: bool) -> list[str]:
        from collplan.reports.output import format_seconds

        return [
            str(row["ranks"]),
            row["method"],
            *([] if self.repetitions is None else [row["progress"]]),
            format_seconds(row["communication_s"]),
            format_seconds(row["computation_s"]),
            "*" * is_best + format_seconds(row["total_s"]),
            f"{row['overlap']:.0%}".replace("-0%", "0%"),
        ]

    def _plot(self, path: Path, document: Document) -> None:
        from collplan.reports.output import format_bytes
        from collplan.reports.plots import Series, plot_by_ranks

        rows = document["rows"]
        series = []
        # Only the most ranks have all levels: they give the order.
        for name in dict.fromkeys(row["method"] for row in reversed(rows)):
            own = [row for row in rows if row["method"] == name]
            ranks, times = zip(*((row["ranks"], row["total_s"]) for row in own), strict=True)
            intervals = [row["total_ci95_s"] for row in own] if "total_ci95_s" in own[0] else None
            series.append(Series(name, ranks, times, intervals))
        title = (
            f"{document['collective']} of {format_bytes(document['bytes'])} and computation on "
            f"{document['cores']} cores, {document.get('library', 'simulated')}"
        )
        plot_by_ranks(path, series[::-1], title=title)


def _remarks(document: Document) -> list[str]:
    """Return what is to be known of the numbers."""
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
