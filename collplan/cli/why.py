"""``collplan why``: causes of the time that a program spends in collectives."""

from __future__ import annotations

from typing import Any, Final

from collplan.cli.native_runs import run_as_rank, run_natively
from collplan.cli.options import Json, Options, argument, launcher, n_ranks, option
from collplan.cli.ranks import ranks_to_start
from collplan.reports.output import Document, format_seconds, print_line, print_result, print_table
from collplan.specs.errors import CollplanError

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""Settings that leave all arguments after the program to the program."""
_MOST_SITES: Final = 10
_MOST_CAUSES: Final = 3


class WhyOptions(Options):
    """Options of ``collplan why``."""

    program: list[str] = argument("APP ARGS...", "The program and its arguments.")
    ranks: int | None = n_ranks()
    module: bool = option(
        None, "APP is a module's name, as for python -m.", "-m", "--module", default=False
    )
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
    from collplan.executors.mpi.launch.environment import is_under_mpi
    from collplan.specs.loading import load_machine, machine_at_hand

    if is_under_mpi():
        return run_as_rank("why", options.program, options.ranks, module=options.module)
    n = ranks_to_start(options.ranks, 4)
    machine = machine_at_hand() if options.machine is None else load_machine(options.machine)
    run = run_natively(n, options.timeout, options.program[0])
    if run.trace is None or run.statistics is None:
        if run.status == 0:
            raise CollplanError(f"why: {run.why_no_trace}")
        return run.status
    print_result(_document(run, n, machine), _print, as_json=options.as_json)
    return run.status


class _Sites(dict[str, Any]):
    """Causes for JSON, with the table of call sites for people."""

    sites: list[list[str]]
    summary: str


def _document(run: Any, n: int, machine: Any) -> Document:
    from collplan.tune.gains import gains_of
    from collplan.watch.causes import algorithm_causes, causes_of, meetings_of, waiting_by_row

    meetings = meetings_of(run.trace)
    rows = run.statistics["rows"]
    gains = gains_of(rows, n, None, machine, waiting_by_row(meetings))
    causes = [*causes_of(meetings), *algorithm_causes(meetings, gains, n)]
    causes.sort(key=lambda cause: -cause.seconds)
    document = _Sites(causes=[one.as_dict() for one in causes])
    document.sites = _site_rows(meetings)
    seconds, waiting_s = (sum(getattr(one, name) for one in meetings)
                          for name in ("seconds", "waiting_s"))  # fmt: skip
    document.summary = (
        f"{n} ranks: {len(meetings)} blocking collectives of more than one rank, "
        f"{format_seconds(seconds)} per rank, of which {format_seconds(waiting_s)} are waiting "
        "for late ranks"
    )
    if run.trace.n_lost:
        document.summary += f"; {run.trace.n_lost} further calls have no times"
    return document


def _site_rows(meetings: Any) -> list[list[str]]:
    from collplan.watch.sentences import call_name

    sites: dict[tuple[str, str, int], list[Any]] = {}
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


def _print(document: Document) -> None:
    assert isinstance(document, _Sites)
    print_table(
        ["collective", "called in", "ranks", "calls", "per rank", "waiting", "transfer"],
        document.sites,
    )
    print_line(document.summary)
    if not document["causes"]:
        print_line("no cause was found that a change would help")
    for number, one in enumerate(document["causes"][:_MOST_CAUSES], 1):
        print_line(
            f"{number}. {one['kind']}, {format_seconds(one['seconds'])} in {one['site']}: "
            f"{one['remedy']}; gains about {format_seconds(one['gain_s'])}"
        )
