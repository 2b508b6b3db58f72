"""``collplan cost``: simulated time of a plan on a machine model, or of messages on a platform."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.cli.inputs import choose_network, open_priced
from collplan.cli.options import Json, Options, argument, flag, option, trace_file
from collplan.reports.output import format_seconds, print_line, print_result
from collplan.reports.progress import spinner
from collplan.specs import Network
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline
    from collplan.planner.arrays.compile_time import Stopwatch
    from collplan.planner.formats.message_graph import MessageGraph
    from collplan.planner.plan.plan import Plan


class CostOptions(Options):
    """Options of ``collplan cost``."""

    source: Path = argument(
        "SPEC|PLAN|FILE.goal|CASE",
        "A spec, a plan file, a GOAL schedule, or a message graph as JSON.",
    )
    platform: Path | None = option(
        "FILE",
        "Platform of a message graph; by default the one that it names, in ../platforms beside it.",
    )
    loggps: str | None = option(
        "L=..,o=..,g=..,G=..,O=..,S=..",
        "Parameters of all links, in ns and bytes, instead of the machine's; GOAL "
        "schedules use LogGOPSim's own by default.",
    )
    trace: Path | None = trace_file("Also write the timeline")
    allocated: bool = flag(
        "--allocated",
        "Buffers as a bound plan's allocate() provides them: copies that only stage "
        "them for other ranks take no time.",
    )
    as_json: Json = False


def command(options: CostOptions) -> None:
    """Simulate a plan, a GOAL schedule or a message graph; needs no MPI.

    The model of plans and schedules has one clock per core, and one per lane and direction of each
    node, with LogGPS parameters for each distance between ranks. The messages of a graph share the
    links of their routes by max-min fair rates.
    """
    from collplan.planner.arrays.compile_time import Stopwatch
    from collplan.planner.formats.message_graph import MessageGraph

    watch = Stopwatch()
    source = open_priced(options.source, folds=options.trace is None)
    if isinstance(source, MessageGraph):
        _price_messages(source, options, watch)
    else:
        _price_plan(source, options, watch)


def _price_messages(graph: MessageGraph, options: CostOptions, watch: Stopwatch) -> None:
    """Simulate a message graph, and print its makespan; JSON has the arrival of each message."""
    from collplan.executors.cost.fluid import simulate_messages
    from collplan.planner.formats.message_graph import find_platform, read_platform

    of_plans = {"loggps": options.loggps, "trace": options.trace, "allocated": options.allocated}
    for name, value in of_plans.items():
        if value:
            raise CollplanError(f"--{name}: {graph.name} is a message graph; leave --{name} out")
    platform = read_platform(options.platform or find_platform(graph))
    with spinner(f"simulating {len(graph.source)} messages"):
        found = simulate_messages(graph, platform)
    report = {
        "makespan_s": found.makespan_s,
        "arrivals_s": found.arrivals_s.tolist(),
        "n_messages": len(graph.source),
        "platform": platform.name,
        "simulate_s": found.simulate_s,
        "kernels_s": watch.kernels_s,
    }
    print_result(report, _print_messages, as_json=options.as_json)


def _print_messages(report: dict[str, Any]) -> None:
    print_line(
        f"makespan {format_seconds(report['makespan_s'])}: {report['n_messages']} messages on "
        f"{report['platform']} simulated in "
        f"{format_seconds(report['simulate_s'], report['kernels_s'])}"
    )


def _price_plan(plan: Plan, options: CostOptions, watch: Stopwatch) -> None:
    """Simulate a plan or schedule and print its report."""
    from collplan.executors.cost import cost_report, simulate
    from collplan.reports.cost import print_cost

    if options.platform is not None:
        raise CollplanError(
            f"--platform: {options.source} is not a message graph; leave --platform out"
        )
    trace = options.trace
    network = choose_network(plan, options.loggps)
    with spinner(f"simulating {plan.n_tasks} tasks"):
        timeline = simulate(plan, network, options.allocated)
        report = cost_report(plan, timeline, network)
    report["kernels_s"] = watch.kernels_s
    if trace is not None:
        _write_trace(trace, timeline, network)
        report["trace"] = str(trace)
    print_result(report, print_cost, as_json=options.as_json)
    if trace is not None and not options.as_json:
        print_line(f"wrote {trace}")


def _write_trace(path: Path, timeline: Timeline, network: Network) -> None:
    from collplan.executors.cost.traces import MANY_TASKS, simulated_layer, write_trace

    n_tasks = timeline.plan.n_tasks
    if n_tasks > MANY_TASKS:
        sys.stderr.write(
            f"collplan: warning: {path}: a trace of {n_tasks} tasks is hundreds of megabytes, "
            f"more than a viewer may open; trace fewer ranks or larger segments\n"
        )
    with spinner(f"writing {path}"):
        write_trace(path, [simulated_layer(timeline, network)])
