"""``collplan export``: export of a plan or a tuning table in another project's format."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.inputs import open_plan
from collplan.cli.options import (
    Json,
    Options,
    argument,
    flag,
    option,
    output_file,
    parse_size,
    split_list,
)
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import print_result
from collplan.specs.errors import CollplanError, printable, show_value
from collplan.tables.table import load_table

if TYPE_CHECKING:
    from collplan.exports.mpich import Tree
    from collplan.exports.selection import Export

NO_RULES: Final = "no rules: of what the library has, nothing was measured to be faster than native"


class To(StrEnum):
    """Formats of exports."""

    goal = "goal"
    msccl = "msccl"
    ompi = "ompi"
    ompi_json = "ompi-json"
    mpich = "mpich"
    ucc = "ucc"


class Protocol(StrEnum):
    """MSCCL's protocols."""

    simple = "Simple"
    ll = "LL"
    ll128 = "LL128"


class ExportOptions(Options):
    """Options of ``collplan export``."""

    source: Path = argument(
        "SPEC|PLAN|TABLE",
        "A spec or a plan file for goal, msccl and programs, else a table.",
    )
    output: Path = output_file("Write here.", "-o", "--output", default=...)
    to: To = option(
        None,
        "goal: LogGOPSim's and ATLAHS's schedules; msccl: MSCCL's XML. For tables: "
        "ompi, ompi-json: Open MPI's dynamic rules, classic (4, 5) and JSON (6); "
        "mpich: MPICH's selection; ucc: UCC's tune string.",
        "--to",
        default=...,
    )
    defaults: Path | None = option(
        "FILE",
        "For mpich: MPICH's library, or coll_selection.json of its sources, as rules for "
        "cases that the table does not cover. By default the library of mpi4py.",
    )
    assume_commuting: bool = flag(
        "--assume-commuting",
        "For ompi: include algorithms that are wrong for non-commutative operations.",
    )
    between: str | None = option(
        "MIN,MAX", "For msccl: sizes between which MSCCL uses it; the plan's own by default."
    )
    protocol: Protocol = option(None, "For msccl: its protocol.", default=Protocol.simple)
    as_json: Json = False


def command(options: ExportOptions) -> None:
    """Write a plan or a tuning table in another project's format."""
    from collplan.planner.formats.goal import write_goal

    output, to = options.output, options.to
    found: dict[str, Any] = {"output": str(output), "to": to.value}
    text = f"wrote {output}"
    if to is To.goal:
        plan = open_plan(options.source)
        write_goal(plan, output)
        found["n_tasks"] = plan.n_tasks
    elif to is To.msccl:
        notes = _write_msccl(options, found)
        for note in notes:
            sys.stderr.write(f"collplan: {printable(note)}\n")
    else:
        export = _export(load_table(options.source), options)
        write_text(output, export.text)
        for note in export.notes:
            sys.stderr.write(f"collplan: {printable(note)}\n")
        use = export.use.format(path=output)
        found |= {"n_rules": export.n_rules, "notes": export.notes, "use": use}
        rules = f"{export.n_rules} rules; use them by: {use} ..." if export.n_rules else NO_RULES
        text += f"\n{rules}"
    print_result(found, text, as_json=options.as_json)


def _write_msccl(options: ExportOptions, found: dict[str, Any]) -> tuple[str, ...]:
    """Write a plan as MSCCL's XML, add the results to `found`, and return notes."""
    from collplan.planner.formats.msccl_write import write_msccl

    between = None
    if options.between is not None:
        sizes = [parse_size("--between", word) for word in split_list(options.between)]
        if len(sizes) != 2 or sizes[0] > sizes[1]:
            raise CollplanError(
                f"--between: {show_value(options.between)} is not two sizes; give them as 1MiB,4MiB"
            )
        between = sizes[0], sizes[1]
    plan = open_plan(options.source)
    written = write_msccl(plan, options.output, protocol=options.protocol.value, between=between)
    found |= {"n_tasks": plan.n_tasks, "n_chunks": written.n_chunks, "notes": written.notes}
    return written.notes


def _export(table: Any, options: ExportOptions) -> Export:
    from collplan.exports.mpich import write_mpich
    from collplan.exports.openmpi import write_classic, write_json
    from collplan.exports.ucc import write_ucc

    if options.to is To.ompi:
        return write_classic(table, options.assume_commuting)
    if options.to is To.ompi_json:
        return write_json(table, options.assume_commuting)
    if options.to is To.ucc:
        return write_ucc(table)
    return write_mpich(table, _mpich_defaults(options.defaults))


def _mpich_defaults(defaults: Path | None) -> Tree:
    from collplan.executors.mpi.launch.launcher import probe_library
    from collplan.exports.mpich import built_in_selection

    if defaults is not None:
        return built_in_selection(defaults)
    library = probe_library()
    if library.family != "mpich" or not library.library:
        raise CollplanError(
            f"--defaults: MPICH needs its own rules for what the table does not say, and mpi4py's "
            f"MPI here is {library.version}; export where it is MPICH, or give MPICH's libmpi.so "
            f"or the file src/mpi/coll/coll_selection.json of its sources"
        )
    return built_in_selection(Path(library.library))
