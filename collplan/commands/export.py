"""``collplan export``: a plan in another project's format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from collplan.options import Json, SpecOrPlan


class To(StrEnum):
    """The formats."""

    goal = "goal"


def command(
    source: SpecOrPlan,
    output: Annotated[Path, typer.Option("-o", "--output", help="Write here.", metavar="FILE")],
    to: Annotated[To, typer.Option("--to", help="goal: LogGOPSim's and ATLAHS's schedules.")],
    as_json: Json = False,
) -> int:
    """Write a plan in another project's format."""
    from collplan.inputs import open_plan
    from collplan.output import print_json, print_line
    from planner.formats.goal import write_goal

    plan = open_plan(source)
    write_goal(plan, output)
    if as_json:
        print_json({"output": str(output), "to": to.value, "n_tasks": plan.n_tasks})
    else:
        print_line(f"wrote {output}")
    return 0
