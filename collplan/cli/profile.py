"""``collplan profile``: collectives that a program calls, and possible gains from plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collplan.cli.exec import CONTEXT_SETTINGS as CONTEXT_SETTINGS
from collplan.cli.inputs import announce_compiling
from collplan.cli.native_runs import ProgramOptions, ranks_of, run_natively
from collplan.cli.options import Json, launcher, option
from collplan.reports.output import (
    Document,
    format_bytes,
    format_seconds,
    print_line,
    print_result,
    print_table,
)
from collplan.reports.progress import spinner
from collplan.specs import Machine
from collplan.specs.loading import load_machine, machine_at_hand


class ProfileOptions(ProgramOptions):
    """Options of ``collplan profile``."""

    table: Path | None = option(
        "TABLE", "A tuning table, to use its measured times; by default a model predicts them."
    )
    machine: str | None = option(
        "FILE|PRESET", "Machine of the model; by default one node that is not calibrated."
    )
    timeout: float | None = option("SECONDS", "Give up after this long.", min=1)
    launcher: str | None = launcher()
    as_json: Json = False


def command(options: ProfileOptions) -> int:
    """Run an MPI program; count its collectives, with sizes and times, and what plans gain.

    All collectives stay the MPI library's own. The program may be one of mpi4py, or
    in C, C++ or Fortran, as for collplan exec. Times are those of rank 0 and include
    its waiting for other ranks. The counts come after the program's output; with
    --json they are the last line. Exit status: the program's. Of a program that fails,
    there may be no counts.
    """
    from collplan.tables.table import load_table
    from collplan.watch.causes import meetings_of, waiting_by_row

    announce_compiling()
    # Read files before any rank is started, so that errors are reported once.
    n = ranks_of("profile", options)
    table = None if options.table is None else load_table(options.table)
    machine = machine_at_hand() if options.machine is None else load_machine(options.machine)
    run = run_natively(n, options.timeout, options.program[0])
    if run.statistics is None:
        return run.status
    waiting = None if run.trace is None else waiting_by_row(meetings_of(run.trace))
    with spinner("comparing the calls with plans"):
        document = _document(run.statistics, n, table, machine, waiting)
    print_result(document, _print, as_json=options.as_json)
    return run.status


def _document(
    statistics: Document, n: int, table: Any, machine: Machine | None, waiting: Any = None
) -> Document:
    """Return the counted calls and the gains from plans, as values for JSON."""
    from collplan.deciding.gains import gains_of

    gains = gains_of(statistics["rows"], n, table, machine, waiting)
    return {
        "ranks": n,
        "calls": sum(one.calls for one in gains),
        "seconds": sum(one.seconds for one in gains),
        "waiting_s": None if waiting is None else sum(one.waiting_s for one in gains),
        "saved_s": sum(one.saved_s for one in gains),
        "by": "model" if table is None else "table",
        "rows": [one.as_dict() for one in gains],
    }


def _waiting_text(document: Document) -> str:
    """Return the end of the sentence on gains, about waiting."""
    waiting_s = document["waiting_s"]
    if waiting_s is None:
        return ", if its calls wait for no late rank"
    return f"; {format_seconds(waiting_s)} of it are waiting for late ranks, which no plan saves"


def _print(document: Document) -> None:
    """Print a row for each collective and size, the possible gain, and the command to tune."""
    rows = document["rows"]
    print_table(
        ["collective", "ranks", "size", "calls", "total", "per call", "best plan", "gain", "why"],
        [
            [
                row["collective"],
                str(row["ranks"]),
                " to ".join(dict.fromkeys(
                    format_bytes(row[name]) for name in ("least_bytes", "most_bytes")
                )),
                str(row["calls"]),
                format_seconds(row["seconds"]),
                format_seconds(row["seconds"] / row["calls"]),
                row["plan"] or "",
                "" if row["factor"] is None else f"{row['factor']:.2f}",
                row["how"],
            ]
            for row in rows
        ],
    )  # fmt: skip
    print_line(
        f"rank 0 of {document['ranks']}: {document['calls']} calls, "
        f"{format_seconds(document['seconds'])} in all"
    )
    gainers = dict.fromkeys(row["collective"] for row in rows if row["plan"] is not None)
    if not gainers:
        print_line("no call is known to gain from a plan")
        return
    share = document["saved_s"] / document["seconds"] if document["seconds"] else 0.0
    print_line(
        f"{', '.join(gainers)} would gain from plans: about {format_seconds(document['saved_s'])}, "
        f"{share:.0%} of that time{_waiting_text(document)}"
    )
    if document["by"] == "model":
        sizes = sorted({row["most_bytes"] for row in rows if row["plan"] is not None})
        n_ranks = sorted({row["ranks"] for row in rows if row["plan"] is not None})
        print_line(
            f"measure it: collplan tune -n {document['ranks']} --collectives {','.join(gainers)} "
            f"--ranks {','.join(map(str, n_ranks))} --sizes {','.join(map(str, sizes))} "
            "-o table.yaml"
        )
