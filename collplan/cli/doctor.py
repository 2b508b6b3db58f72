"""``collplan doctor``: what is installed, what would be used, what is wrong."""

from __future__ import annotations

from dataclasses import asdict

from collplan.cli.options import Json, Options
from collplan.reports.output import print_json, print_table
from collplan.reports.progress import spinner


class DoctorOptions(Options):
    """Options of ``collplan doctor``."""

    as_json: Json = False


def command(options: DoctorOptions) -> int:
    """Check MPI, mpiexec and graphviz, and report problems with them.

    Exit status 1 if something does not work.
    """
    from collplan.executors.mpi.launch.doctor import diagnose

    with spinner("looking for MPI and graphviz"):
        findings = diagnose()
    ok = all(finding.ok for finding in findings)
    if options.as_json:
        print_json({"ok": ok, "findings": [asdict(finding) for finding in findings]})
    else:
        print_table(
            ["", "found", "", "advice"],
            [
                [finding.name, finding.found, "ok" if finding.ok else "WRONG", finding.advice]
                for finding in findings
            ],
        )
    return 0 if ok else 1
