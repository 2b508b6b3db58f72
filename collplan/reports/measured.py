"""Tables and plots of measurements by runs and benchmarks, and of the model's predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.executors.mpi.launch.environment import say_shared
from collplan.reports.output import format_bytes, format_seconds, print_line, print_table
from collplan.reports.plots import Series, plot_times

if TYPE_CHECKING:
    from collplan.executors.cost import Timeline
    from collplan.measure.task_times import TaskTimes

Report = dict[str, Any]


def prediction_report(timeline: Timeline, times: TaskTimes) -> Report:
    """Return the simulated and measured times of the whole plan and of its phases."""
    from collplan.measure.phases import compare_phases, phase_times

    simulated = (timeline.start_ns, timeline.end_ns)
    measured = (times.start_ns, times.end_ns)
    measured_s = float(times.end_ns.max(initial=0.0)) / 1e9
    whole = phase_times("whole", (0.0, measured_s), (0.0, timeline.makespan_s))
    return {
        "predicted_s": timeline.makespan_s,
        "measured_s": measured_s,
        "prediction_error": whole["error"],
        "phases": compare_phases(timeline.plan, measured, simulated),
        "recorded_makespans_s": times.makespans_s.tolist(),
        "clock_error_s": times.clock_error_s,
    }


def write_both(path: Path, timeline: Timeline, times: TaskTimes) -> None:
    """Write the simulated and the measured timeline of a plan into one trace file."""
    from collplan.executors.cost.traces import Layer, simulated_layer, write_trace

    plan = timeline.plan
    assert plan.spec is not None
    measured = Layer("measured", plan, times.start_ns, times.end_ns)
    write_trace(path, [simulated_layer(timeline, plan.spec.machine.network), measured])


def print_prediction(report: Report) -> None:
    """Print the times and errors of all phases and of the whole plan."""
    from collplan.measure.phases import phase_times

    whole = phase_times("whole", (0.0, report["measured_s"]), (0.0, report["predicted_s"]))
    print_table(
        ["phase", "measured", "takes", "simulated", "takes", "error"],
        [
            [
                row["name"],
                _span(row["measured_begin_s"], row["measured_end_s"]),
                format_seconds(row["measured_s"]),
                _span(row["simulated_begin_s"], row["simulated_end_s"]),
                format_seconds(row["simulated_s"]),
                "" if row["error"] is None else f"{row['error']:+.1%}",
            ]
            for row in (*report["phases"], whole)
        ],
    )
    count = len(report["recorded_makespans_s"])
    print_line(f"measured: of {count} recorded starts the one of median makespan")
    if report["clock_error_s"]:
        print_line(f"clocks of hosts agree within {format_seconds(report['clock_error_s'])}")


def _span(*ends: float) -> str:
    return " to ".join(map(format_seconds, ends))


def print_run(report: dict[str, Any]) -> None:
    """Print the check of a run's results, its times and native ones, and the prediction if any."""
    from collplan.measure.run import WrongElement

    if report["correct"] is None:
        verdict = "not checked"
    elif report["correct"]:
        verdict = f"correct, checked against {report['checked_against']}"
    else:
        verdict = f"WRONG: {WrongElement(**report['first_wrong'])}"
    print_line(
        f"{report['ranks']} ranks, {format_bytes(report['bytes'])}, {report['library']}: {verdict}"
    )
    _print_times(report, {"plan": "", "native": "native_"})
    print_line(
        f"ratio {report['ratio']:.3g}, quartiles "
        f"{' to '.join(f'{ratio:.3g}' for ratio in report['ratio_quartiles'])}, "
        f"over {report['repetitions']} repetitions; the slowest rank of each counts"
    )
    shared = say_shared(report.get("ranks_per_core", 1))
    if shared:
        print_line(shared)
    if "phases" in report:
        print_prediction(report)


def print_program_run(report: dict[str, Any]) -> None:
    """Print the check of a program's run, and its times beside those of its steps."""
    from collplan.measure.program_run import WrongBuffer

    verdict = "not checked"
    if report["correct"] is not None:
        verdict = "correct, checked against numpy"
    if report["correct"] is False:
        verdict = f"WRONG: {WrongBuffer(**report['first_wrong'])}"
    print_line(f"{report['ranks']} ranks, {report['library']}: {verdict}")
    _print_times(
        report,
        {
            "this program": "",
            "steps one after another, the best plan of each": "steps_",
            "steps one after another, MPI's own collectives": "native_",
        },
    )
    print_line(
        f"ratio {report['ratio_to_steps']:.3g} to the plans of the steps, {report['ratio']:.3g} to "
        f"MPI's own collectives, over {report['repetitions']} repetitions; the slowest rank counts"
    )


def _print_times(report: Report, prefixes: Mapping[str, str]) -> None:
    """Print the times whose keys begin with prefixes, which are given by the names of rows."""
    print_table(
        ["", "median", "quartiles", "least"],
        [
            [
                name,
                format_seconds(report[f"{prefix}median_s"]),
                _span(*report[f"{prefix}quartiles_s"]),
                format_seconds(report[f"{prefix}min_s"]),
            ]
            for name, prefix in prefixes.items()
        ],
    )


def print_statistics(
    size: int,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    more: Mapping[str, Callable[[Mapping[str, Any]], str]],
) -> None:
    """Print the times of one size as a table.

    Parameters
    ----------
    size : int
        Size in bytes.
    rows : sequence of mapping
        Rows of all sizes.
    names : sequence of str
        Name of each row.
    more : mapping of str to callable
        Further columns by title, each with a function from a row to the text of its cell.
    """
    print_table(
        [format_bytes(size), "median", "mean", "95 % of the median", "least", *more],
        [
            [
                name,
                format_seconds(row["median_s"]),
                format_seconds(row["mean_s"]),
                _span(*row["ci95_s"]),
                format_seconds(row["min_s"]),
                *(cell(row) for cell in more.values()),
            ]
            for name, row in zip(names, rows, strict=True)
            if row["bytes"] == size
        ],
    )


def plot_rows(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    *,
    title: str,
    size_label: str,
) -> None:
    """Plot the medians of rows and their intervals against sizes, one line for each name.

    Parameters
    ----------
    path : Path
        File to write; its suffix gives the file type.
    rows : sequence of mapping
        Rows with ``bytes``, ``median_s`` and ``ci95_s``, ascending in bytes.
    names : sequence of str
        Name of the line to which each row belongs.
    title, size_label : str
        As for `collplan.reports.plots.plot_times`.
    """
    series = []
    for name in dict.fromkeys(names):
        own = [row for row, other in zip(rows, names, strict=True) if other == name]
        sizes, times, intervals = (
            [row[key] for row in own] for key in ("bytes", "median_s", "ci95_s")
        )
        series.append(Series(name, sizes, times, intervals))
    plot_times(path, series, title=title, size_label=size_label)
