"""``collplan cost``: the price of a plan on a machine model."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collplan.options import Json, Schedule

if TYPE_CHECKING:
    from planner.plan import Plan
    from specs import Network


def command(
    source: Schedule,
    loggps: Annotated[
        str | None,
        typer.Option(
            help="Parameters of all links, in ns and bytes, instead of the machine's; "
            "GOAL schedules use LogGOPSim's own by default.",
            metavar="L=..,o=..,g=..,G=..,O=..,S=..",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Simulate a plan or a GOAL schedule; needs no MPI.

    A clock a core and a lane and direction of each node, LogGPS parameters for
    each distance between ranks.
    """
    from collplan.inputs import open_plan
    from collplan.output import print_json, show_progress
    from executors.cost import cost_report, simulate

    plan = open_plan(source)
    network = choose_network(plan, loggps)
    with show_progress(f"simulating {plan.n_tasks} tasks"):
        begin = perf_counter()
        timeline = simulate(plan, network)
        simulate_s = perf_counter() - begin
    report = cost_report(plan, timeline)
    if as_json:
        print_json(report | {"simulate_s": simulate_s})
    else:
        _print_report(plan, report)
    return 0


def choose_network(plan: Plan, loggps: str | None) -> Network:
    """Return the network to price `plan` on."""
    from collplan.loggps import loggps_network, parse_loggps
    from specs import Network

    base = plan.spec.machine.network if plan.spec is not None else Network()
    if loggps is None and plan.spec is not None:
        return base
    return loggps_network(parse_loggps(loggps or ""), base)


def _print_report(plan: Plan, report: dict[str, Any]) -> None:
    from collplan.output import format_seconds, print_line

    print_line(f"makespan {format_seconds(report['makespan_s'])}")
