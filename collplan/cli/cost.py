"""``collplan cost``: simulated time of a plan on a machine model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from collplan.cli.inputs import choose_network, open_plan
from collplan.cli.options import Json, Options, argument, flag, option, trace_file
from collplan.reports.output import print_line, print_result
from collplan.reports.progress import spinner
from collplan.specs import Network

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline


class CostOptions(Options):
    """Options of ``collplan cost``."""

    source: Path = argument("SPEC|PLAN|FILE.goal", "A spec, a plan file or a GOAL schedule.")
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
    """Simulate a plan or a GOAL schedule; needs no MPI.

    The model has one clock per core, and one per lane and direction of each node, with LogGPS
    parameters for each distance between ranks. Over a topology, messages share the links of their
    routes by max-min fair rates.
    """
    from collplan.executors.cost import cost_report, simulate
    from collplan.planner.machine_code.compile_time import Stopwatch
    from collplan.reports.cost import print_cost

    watch = Stopwatch()
    plan = open_plan(options.source, folds=options.trace is None)
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
