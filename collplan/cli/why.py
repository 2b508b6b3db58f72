"""``collplan why``: causes of the time that a program spends in collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.exec import CONTEXT_SETTINGS as CONTEXT_SETTINGS
from collplan.cli.native_runs import NativeRun, ProgramOptions, ranks_of, run_natively
from collplan.cli.options import Json, launcher, option
from collplan.reports.output import Document, format_seconds, print_line, print_result, print_table
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.watch.causes import Meeting

_MOST_SITES: Final = 10
_MOST_CAUSES: Final = 3


class WhyOptions(ProgramOptions):
    """Options of ``collplan why``."""

    machine: str | None = option(
        "FILE|PRESET", "Machine of the model; by default one node that is not calibrated."
    )
    timeout: float | None = option("SECONDS", "Give up after this long.", min=1)
    launcher: str | None = launcher()
    as_json: Json = False


def command(options: WhyOptions) -> int:
    """Run an MPI program; say why its collectives take their time, and what would help.

    All collectives stay the MPI library's own. The program may be one of mpi4py, or in
    C, C++ or Fortran, as for collplan exec, and runs on one host. The times of its
    blocking calls on all ranks are split into waiting for late ranks and the rest.
    With --json, the last line is {"causes": [...]}, costliest first. Exit status:
    the program's.
    """
    from collplan.specs.loading import load_machine, machine_at_hand
    from collplan.watch.causes import meetings_of

    n = ranks_of("why", options)
    if n == 1:
        raise CollplanError("-n: 1 rank has nobody to wait for; start at least 2, as -n 4")
    machine = machine_at_hand() if options.machine is None else load_machine(options.machine)
    run = run_natively(n, options.timeout, options.program[0])
    if run.trace is None or run.statistics is None:
        if run.status == 0:
            raise CollplanError(f"why: {run.why_no_trace}")
        return run.status
    meetings = meetings_of(run.trace)
    summary = _summary(meetings, n, run.trace.n_lost)
    show = partial(_print, _site_rows(meetings), summary)
    print_result(_causes(run, meetings, n, machine), show, as_json=options.as_json)
    return run.status


def _causes(run: NativeRun, meetings: Sequence[Meeting], n: int, machine: Any) -> Document:
    """Return the causes as values for JSON."""
    from collplan.deciding.gains import gains_of
    from collplan.executors.mpi.host.processes import affinity
    from collplan.watch.causes import (
        algorithm_causes,
        causes_of,
        placement_causes,
        waiting_by_row,
    )

    assert run.statistics is not None
    assert run.trace is not None
    gains = gains_of(run.statistics["rows"], n, None, machine, waiting_by_row(meetings))
    causes = [*causes_of(meetings), *algorithm_causes(meetings, gains, n)]
    causes += placement_causes(meetings, run.trace, affinity())
    causes.sort(key=lambda cause: -cause.seconds)
    return {"causes": [asdict(one) for one in causes]}


def _summary(meetings: Sequence[Meeting], n: int, n_lost: int) -> str:
    seconds = format_seconds(sum(one.seconds for one in meetings))
    waiting = format_seconds(sum(one.waiting_s for one in meetings))
    lost = f"; {n_lost} further calls have no times" if n_lost else ""
    return (
        f"{n} ranks: {len(meetings)} blocking collectives of more than one rank, {seconds} per "
        f"rank, of which {waiting} are waiting for late ranks{lost}"
    )


def _site_rows(meetings: Sequence[Meeting]) -> list[list[str]]:
    """Return the rows of the costliest call sites."""
    from collplan.watch.sentences import call_name

    sites: dict[tuple[str, str, int], list[Meeting]] = {}
    for one in meetings:
        key = call_name(one.first.name), one.first.site, one.first.size
        sites.setdefault(key, []).append(one)
    costly = sorted(sites.items(), key=lambda item: -sum(one.seconds for one in item[1]))
    return [
        [
            name,
            site,
            str(size),
            str(len(alike)),
            format_seconds(sum(one.seconds for one in alike)),
            format_seconds(sum(one.waiting_s for one in alike)),
            format_seconds(sum(one.transfer_s for one in alike)),
        ]
        for (name, site, size), alike in costly[:_MOST_SITES]
    ]


def _print(sites: list[list[str]], summary: str, document: Document) -> None:
    """Print the costliest call sites, and the three costliest causes."""
    print_table(
        ["collective", "called in", "ranks", "calls", "per rank", "waiting", "transfer"],
        sites,
    )
    print_line(summary)
    if not document["causes"]:
        print_line("no cause was found that a change would help")
    for number, one in enumerate(document["causes"][:_MOST_CAUSES], 1):
        print_line(
            f"{number}. {one['kind']}, {format_seconds(one['seconds'])} in {one['site']}: "
            f"{one['remedy']}; gains about {format_seconds(one['gain_s'])}"
        )
