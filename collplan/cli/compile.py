"""``collplan compile``: compilation of a spec into a plan file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from collplan.cli.inputs import compile_warning, open_request
from collplan.cli.options import Json, Options, Spec, flag, output_file
from collplan.reports.output import (
    format_bytes,
    format_seconds,
    pick,
    print_line,
    print_result,
    print_table,
)
from collplan.reports.progress import spinner
from collplan.specs import CollplanError, PlanSpec


class CompileOptions(Options):
    """Options of ``collplan compile``."""

    source: Spec
    output: Path | None = output_file("Write the plan here.", "-o", "--output", metavar="PLAN")
    passes: bool = flag("--passes", "Show what each pass changes.")
    as_json: Json = False


def command(options: CompileOptions) -> None:
    """Compile a spec into a plan file; report its metrics beside lower bounds."""
    from collplan.planner.formats.npz import save
    from collplan.planner.machine_code.compile_time import Stopwatch
    from collplan.planner.metrics import measure

    request = open_request(options.source)
    import_module("collplan.planner.compiler.compile")  # excludes imports from the compile time
    watch = Stopwatch()
    plan = compile_warning(request)
    compile_s = watch.work_s
    document = measure(plan).to_json() | {"compile_s": compile_s}
    if options.passes:
        if not isinstance(request, PlanSpec):
            raise CollplanError(f"--passes: {options.source} is a program; compile one step's spec")
        with spinner("simulating the plan after each pass"):
            document["passes"] = trace_passes(plan.spec or request)
    document["kernels_s"] = watch.kernels_s
    if options.output is not None:
        save(plan, options.output)
        document["output"] = str(options.output)
    print_result(document, _print_report, as_json=options.as_json)


def trace_passes(spec: PlanSpec) -> list[dict[str, Any]]:
    """Return metrics and simulated times of the plan before the first pass and after each pass."""
    from collplan.api.compiling import compile_spec
    from collplan.executors.cost import cost_report, simulate
    from collplan.planner.metrics import measure

    steps = []
    for n_passes in range(len(spec.passes) + 1):
        plan = compile_spec(spec.replace(passes=spec.passes[:n_passes]), idle=[], is_proved=False)
        metrics = measure(plan)
        report = cost_report(plan, simulate(plan, spec.machine.network))
        steps.append(
            {
                "after": str(spec.passes[n_passes - 1]) if n_passes else None,
                **pick(metrics, "n_tasks n_messages bytes_sent_per_lane n_rounds"),
                **_network_use(report.get("links")),
                "makespan_s": report["makespan_s"],
            }
        )
    return steps


def _network_use(links: dict[str, Any] | None) -> dict[str, Any]:
    """Return the use of links by a plan; empty if the machine has no topology."""
    if links is None:
        return {}
    busiest = links["busiest"] or {"link": None, "busy_s": 0.0}
    return {
        "global_bytes": int(links["bytes_by_reach"]["global"]),
        "busiest_link": busiest["link"],
        "busiest_link_s": busiest["busy_s"],
    }


def _print_report(document: dict[str, Any]) -> None:
    bounds = document["bounds"] or {}
    rows = []
    for name, value in document.items():
        if name in ("bounds", "compile_s", "kernels_s", "output", "passes"):
            continue
        show = format_bytes if "bytes" in name else str
        bound = "" if bounds.get(name) is None else show(bounds[name])
        rows.append([name.replace("n_", "", 1).replace("_", " "), show(value), bound])
    print_table(["", "plan", "at least"], rows)
    if "argument" in bounds:
        print_line(f"at least: {bounds['argument']}")
    if bounds.get("lane_bytes"):
        print_line(f"the busiest lane's wire takes at least {format_seconds(bounds['time_s'])}")
    if "passes" in document:
        _print_passes(document["passes"])
    where = f", wrote {document['output']}" if "output" in document else ""
    took = format_seconds(document["compile_s"], document["kernels_s"])
    print_line(f"compiled in {took}{where}")


def _print_passes(steps: list[dict[str, Any]]) -> None:
    """Print a row per pass; on a topology, also bytes on global links and the busiest link."""
    has_topology = "global_bytes" in steps[0]
    names = ["global bytes", "busiest link"] if has_topology else []
    rows = []
    for step in steps:
        row = [step["after"] or "(no pass)", step["n_tasks"], step["n_messages"]]
        row += [format_bytes(step["bytes_sent_per_lane"])]
        if has_topology:
            row += [format_bytes(step["global_bytes"]), format_seconds(step["busiest_link_s"])]
        rows.append([*row, step["n_rounds"], format_seconds(step["makespan_s"])])
    print_table(
        ["after", "tasks", "messages", "bytes per lane", *names, "rounds", "makespan"], rows
    )
