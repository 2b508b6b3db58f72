"""``collplan draw``: a picture of the task graph."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from collplan.cli.inputs import choose_network, open_plan, to_simulate
from collplan.cli.options import Json, Options, Schedule, flag, option, output_file
from collplan.reports.output import print_result
from collplan.reports.progress import spinner
from collplan.specs.errors import CollplanError


class By(StrEnum):
    """Unit that a node of the picture stands for."""

    auto = "auto"
    task = "task"
    phase = "phase"
    rank = "rank"
    node = "node"
    network = "network"
    step = "step"


class DrawOptions(Options):
    """Options of ``collplan draw``."""

    source: Schedule
    output: Path = output_file("An SVG, PNG, PDF or dot file.", "-o", "--output", default=...)
    by: By = option(None, "What becomes a box; auto collapses large graphs.", default=By.auto)
    timeline: bool = flag(
        "--timeline",
        "Draw when tasks run on the machine model: cores and lanes down, time across.",
    )
    beside: Path | None = option(
        "SPEC|PLAN", "With --timeline: another plan, drawn below on the same time axis."
    )
    as_json: Json = False


def command(options: DrawOptions) -> None:
    """Draw the task graph: ranks side by side, rounds top to bottom, width by bytes.

    With --timeline, draw its simulation instead, and with --timeline --by step that of a program
    with a row for each step; with --by network, the links between nodes and
    how busy they are, where the machine has a topology.
    """
    from collplan.planner.draw import draw

    if options.timeline:
        _draw_timelines(options)
        return
    if options.by == By.step:
        raise CollplanError("--by: step is for timelines of programs; add --timeline")
    if options.beside is not None:
        raise CollplanError("--beside: draws a second timeline; give --timeline, too")
    if options.by == By.network:
        _draw_network(options)
        return
    plan = open_plan(options.source, folds=True)
    with spinner(f"drawing {plan.n_tasks} tasks"):
        path = draw(plan, options.output, by=options.by.value)
    document = {"output": str(path), "n_tasks": plan.n_tasks * plan.n_copies}
    print_result(document, f"wrote {path}", as_json=options.as_json)


def _draw_network(options: DrawOptions) -> None:
    from collplan.executors.cost import simulate
    from collplan.executors.cost.link_use import LinkUse
    from collplan.planner.formats.text import headline
    from collplan.reports.networks import plot_network
    from collplan.reports.plots import check_plot_path

    check_plot_path(options.output, "-o")
    plan = open_plan(options.source)
    with spinner(f"simulating {plan.n_tasks} tasks"):
        timeline = simulate(plan, choose_network(plan, None))
    if timeline.routes is None:
        raise CollplanError(
            f"--by network: {options.source} has no machine.network.topology; state one"
        )
    plot_network(options.output, LinkUse(timeline.routes), timeline.makespan_ns, headline(plan))
    document = {"output": str(options.output), "n_tasks": plan.n_tasks}
    print_result(document, f"wrote {options.output}", as_json=options.as_json)


def _draw_timelines(options: DrawOptions) -> None:
    from collplan.executors.cost import simulate
    from collplan.reports.plots import check_plot_path
    from collplan.reports.timelines import Simulated, plot_timelines

    if options.by == By.step:
        _draw_steps(options)
        return
    if options.by != By.auto:
        raise CollplanError(f"--by: {options.by} is for graphs; leave it out with --timeline")
    check_plot_path(options.output, "-o")
    shown, n_tasks = [], 0
    for source in filter(None, (options.source, options.beside)):
        plan = to_simulate(open_plan(source))
        network = choose_network(plan, None)
        with spinner(f"simulating {plan.n_tasks} tasks"):
            shown.append(Simulated(source.stem, simulate(plan, network), network))
        n_tasks += plan.n_tasks
    with spinner(f"drawing {n_tasks} tasks"):
        plot_timelines(options.output, shown)
    document = {"output": str(options.output), "n_tasks": n_tasks}
    print_result(document, f"wrote {options.output}", as_json=options.as_json)


def _draw_steps(options: DrawOptions) -> None:
    """Draw the simulation of a program with a row for each step."""
    from collplan.executors.cost import simulate
    from collplan.reports.plots import check_plot_path
    from collplan.reports.step_plot import plot_steps

    if options.beside is not None:
        raise CollplanError("--beside: draws cores and lanes; leave out --by step")
    check_plot_path(options.output, "-o")
    plan = to_simulate(open_plan(options.source))
    if plan.program is None:
        raise CollplanError(f"--by: {options.source} is no program, and has no steps; leave it out")
    network = choose_network(plan, None)
    with spinner(f"simulating {plan.n_tasks} tasks"):
        timeline = simulate(plan, network)
    plot_steps(options.output, timeline, network, options.source.stem)
    document = {"output": str(options.output), "n_tasks": plan.n_tasks}
    print_result(document, f"wrote {options.output}", as_json=options.as_json)
