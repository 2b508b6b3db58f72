"""``collplan cost``: simulated time of a plan on a machine model."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collplan.api.sources import is_plan_file
from collplan.cli.inputs import choose_network, open_plan, open_request, to_simulate
from collplan.cli.options import Json, Options, argument, flag, option, trace_file
from collplan.reports.output import Document, print_line, print_result
from collplan.reports.progress import spinner
from collplan.specs import Network, PlanSpec

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
    has_path: bool = flag(
        "--path", "Also show the critical path, all kinds of time, and the use of all resources."
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

    watch = Stopwatch()
    plan = to_simulate(open_plan(options.source, folds=options.trace is None))
    trace = options.trace
    network = choose_network(plan, options.loggps)
    with spinner(f"simulating {plan.n_tasks} tasks"):
        timeline = simulate(plan, network, options.allocated)
        report = cost_report(plan, timeline, network)
    if plan.program is not None:
        report |= _of_program(options.source, timeline, report["critical_path"])
    report["kernels_s"] = watch.kernels_s
    if trace is not None:
        _write_trace(trace, timeline, network)
        report["trace"] = str(trace)
    show = partial(_print_report, has_path=options.has_path)
    print_result(report, show, as_json=options.as_json)
    if trace is not None and not options.as_json:
        print_line(f"wrote {trace}")


def _print_report(report: Document, *, has_path: bool) -> None:
    from collplan.reports.cost import print_cost

    if "steps" in report:
        from collplan.reports.programs import print_program

        print_program(report)
    print_cost(report, has_path=has_path)


def _of_program(source: Path, timeline: Timeline, path: list[Document]) -> Document:
    """Return the times of a program's steps, alone and together."""
    from collplan.reports.programs import program_report

    program = timeline.plan.program
    if not is_plan_file(source):
        given = open_request(source)
        program = None if isinstance(given, PlanSpec) else given
    assert program is not None
    with spinner("simulating each step alone"):
        return program_report(program, timeline, path)


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
