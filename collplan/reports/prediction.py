"""Beside what a run took, what the model says it should have taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline
    from collplan.measure.task_times import TaskTimes
    from collplan.planner.plan.plan import Plan

Report = dict[str, Any]


def check_trace(path: Path | None, is_predicting: bool) -> None:
    """Raise `CollplanError` where no trace can be written into `path`."""
    if path is None:
        return
    from collplan.executors.cost.traces import check_trace_path

    if not is_predicting:
        raise CollplanError("--trace: shows what --predict finds; add --predict")
    check_trace_path(path)
    if not path.parent.is_dir():
        raise CollplanError(f"--trace: there is no folder {path.parent}; make it first")


def simulate_on_own_machine(plan: Plan) -> Timeline | None:
    """Return what the model says of a plan on its spec's machine, None where it has no spec."""
    from collplan.executors.cost import simulate

    return None if plan.spec is None else simulate(plan, plan.spec.machine.network)


def prediction_report(timeline: Timeline, times: TaskTimes) -> Report:
    """Return simulated and measured times of the whole plan and of its phases."""
    from collplan.measure.phases import PhaseTimes, compare_phases

    simulated = (timeline.start_ns, timeline.end_ns)
    measured = (times.start_ns, times.end_ns)
    measured_s = float(times.end_ns.max(initial=0.0)) / 1e9
    whole = PhaseTimes("whole", (0.0, measured_s), (0.0, timeline.makespan_s))
    return {
        "predicted_s": timeline.makespan_s,
        "measured_s": measured_s,
        "prediction_error": whole.error,
        "phases": [phase.to_json() for phase in compare_phases(timeline.plan, measured, simulated)],
        "recorded_makespans_s": times.makespans_s.tolist(),
        "clock_error_s": times.clock_error_s,
    }


def write_both(path: Path, timeline: Timeline, times: TaskTimes) -> None:
    """Write the timeline of `simulate_on_own_machine` and the measured one into one trace."""
    from collplan.executors.cost.traces import Layer, simulated_layer, write_trace

    plan = timeline.plan
    assert plan.spec is not None
    measured = Layer("measured", plan, times.start_ns, times.end_ns)
    write_trace(path, [simulated_layer(timeline, plan.spec.machine.network), measured])


def print_prediction(report: Report) -> None:
    """Print the phases' times and errors, and the whole plan's."""
    from collplan.measure.phases import PhaseTimes
    from collplan.reports.output import format_seconds, print_line, print_table

    whole = PhaseTimes("whole", (0.0, report["measured_s"]), (0.0, report["predicted_s"]))
    print_table(
        ["phase", "measured", "takes", "simulated", "takes", "error"],
        [
            [
                row["name"],
                *(
                    text
                    for kind in ("measured", "simulated")
                    for text in (
                        f"{format_seconds(row[f'{kind}_begin_s'])} to "
                        f"{format_seconds(row[f'{kind}_end_s'])}",
                        format_seconds(row[f"{kind}_s"]),
                    )
                ),
                "" if row["error"] is None else f"{row['error']:+.1%}",
            ]
            for row in (*report["phases"], whole.to_json())
        ],
        plain=True,
    )
    count = len(report["recorded_makespans_s"])
    print_line(f"measured: of {count} recorded starts the one of median makespan")
    if report["clock_error_s"]:
        print_line(f"clocks of hosts agree within {format_seconds(report['clock_error_s'])}")
