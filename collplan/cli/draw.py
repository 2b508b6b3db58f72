"""``collplan draw``: a picture of the task graph."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from collplan.cli.inputs import open_plan
from collplan.cli.options import Json, Options, Schedule, option, output_file
from collplan.reports.output import print_result
from collplan.reports.progress import spinner


class By(StrEnum):
    """Unit that becomes a node of the picture."""

    auto = "auto"
    task = "task"
    phase = "phase"
    rank = "rank"
    node = "node"


class DrawOptions(Options):
    """Options of ``collplan draw``."""

    source: Schedule
    output: Path = output_file("An SVG, PNG, PDF or dot file.", "-o", "--output", default=...)
    by: By = option(None, "What becomes a box; auto collapses large graphs.", default=By.auto)
    as_json: Json = False


def command(options: DrawOptions) -> None:
    """Draw the task graph: ranks side by side, rounds top to bottom, width by bytes."""
    from collplan.planner.draw import draw

    plan = open_plan(options.source, folds=True)
    with spinner(f"drawing {plan.n_tasks} tasks"):
        path = draw(plan, options.output, by=options.by.value)
    document = {"output": str(path), "n_tasks": plan.n_tasks * plan.n_copies}
    print_result(document, f"wrote {path}", as_json=options.as_json)
