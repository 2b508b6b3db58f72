"""``collplan doctor``: report on installed software, its use, and problems."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from collplan.cli.options import Json, Options, launcher
from collplan.reports.output import print_json, print_table
from collplan.reports.progress import spinner

_WIDTH: Final = 100
"""Greatest width of the report, so that it can be copied into a message."""


class DoctorOptions(Options):
    """Options of ``collplan doctor``."""

    launcher: str | None = launcher()
    as_json: Json = False


def _join() -> Any:
    # Imported late, because this module cannot be imported without mpi4py.
    from collplan.executors.mpi.world import join_world

    return join_world()


def command(options: DoctorOptions) -> int:
    """Check MPI, launchers, graphviz and limits, and report problems with them.

    Under mpiexec or srun it looks at the world of the ranks that were started,
    and rank 0 reports. Exit status 1 if something does not work.
    """
    from collplan.executors.mpi.launch.doctor import diagnose
    from collplan.executors.mpi.launch.environment import launcher_rank

    with spinner("looking for MPI and graphviz"):
        findings = diagnose(_join)
    ok = all(finding.ok for finding in findings)
    if launcher_rank() > 0:
        return 0 if ok else 1
    if options.as_json:
        print_json({"ok": ok, "findings": [asdict(finding) for finding in findings]})
    else:
        print_table(
            ["", "found", "", "advice"],
            [
                [finding.name, finding.found, "ok" if finding.ok else "WRONG", finding.advice]
                for finding in findings
            ],
            most_wide=_WIDTH,
        )
    return 0 if ok else 1
