"""Times of the steps of a program: alone, one after another, and together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from collplan.executors.cost import Timeline
from collplan.planner.plan.plan import Op
from collplan.planner.programs.compose import step_rows
from collplan.reports.output import format_seconds, print_line, print_table
from collplan.select.joint import choose_jointly, has_auto, step_times
from collplan.specs import Method
from collplan.specs.programs.program import ProgramSpec

Report = dict[str, Any]


def program_report(given: ProgramSpec, timeline: Timeline, path: list[Report]) -> Report:
    """Return the times of a program and of its steps.

    Parameters
    ----------
    given : ProgramSpec
        The program as the user states it.
    timeline : Timeline
        Simulation of the program's plan.
    path : list of dict
        Critical path, as in the report of `cost_report`.

    Returns
    -------
    dict
        - `steps_best_s`: sum of the makespans of all steps of the given program in seconds, each
          alone, with its named method or the best one for it alone.
        - `native_s`: the same with the calls of the MPI library, priced by MPICH's algorithms.
        - `steps`: a list of ``{step, kind, method, start_s, end_s, alone_s, exposed_s,
          hidden_s}`` in the order of the plan. `start_s` is the time of its first task that is no
          receive. `alone_s` is the makespan of the step alone,
          `exposed_s` the time for which the critical path passes through its tasks, and
          `hidden_s` the difference, if it is positive.
    """
    plan = timeline.plan
    program = plan.program
    assert program is not None
    best_s = choose_jointly(given).steps_best_s if has_auto(given) else sum(step_times(given))
    alone, makespan_ns = step_times(program), timeline.makespan_ns
    exposed: dict[str, float] = defaultdict(float)
    for task in path:
        exposed[plan.phases[int(plan.phase[task["row"]])].step] += task["takes_s"]
    steps = []
    for one in step_rows(plan):
        step, rows = program.steps[one.number], slice(one.first, one.end)
        alone_s, exposed_s = alone[one.number], exposed[step.name]
        # Receives are posted early, before anything of the step happens.
        begins = timeline.start_ns[rows][plan.op[rows] != Op.RECV]
        steps.append(
            {
                "step": step.name,
                "kind": "compute" if step.collective is None else step.collective.kind,
                "method": None if step.collective is None else _label(step.method),
                "start_s": float(begins.min(initial=makespan_ns)) / 1e9,
                "end_s": float(np.max(timeline.end_ns[rows], initial=0.0)) / 1e9,
                "alone_s": alone_s,
                "exposed_s": exposed_s,
                "hidden_s": max(0.0, round(alone_s - exposed_s, 12)),
            }
        )
    natively = sum(step_times(given, natively=True))
    return {"steps_best_s": best_s, "native_s": natively, "steps": steps}


def _label(method: Method) -> str:
    return method.label or str(method.decomposition)


def print_program(report: Report) -> None:
    """Print what `program_report` has returned, with the makespan of the program."""
    makespan = report["makespan_s"]
    rows = [("this program", format_seconds(makespan), "")]
    for name, key in (
        ("steps one after another, the best plan of each", "steps_best_s"),
        ("steps one after another, MPI's own collectives", "native_s"),
    ):
        ratio = f"{report[key] / makespan:.3g} times as long" if makespan else ""
        rows.append((name, format_seconds(report[key]), ratio))
    print_table(("", "takes", ""), rows)
    if report["steps"]:
        print_line(
            "exposed: the critical path passes through the step; hidden: other steps cover it"
        )
    print_table(
        ("step", "from", "to", "alone", "exposed", "hidden", "method"),
        [
            (
                one["step"],
                *(format_seconds(one[f"{key}_s"]) for key in _TIMES),
                one["method"] or one["kind"],
            )
            for one in report["steps"]
        ],
    )


_TIMES = ("start", "end", "alone", "exposed", "hidden")
