"""``collplan show``: a plan as text."""

from __future__ import annotations

from collplan.cli.inputs import open_plan
from collplan.cli.options import Json, Options, Schedule, option
from collplan.reports.output import print_line, print_result


class ShowOptions(Options):
    """Options of ``collplan show``."""

    source: Schedule
    rank: int | None = option("RANK", "Only this rank's tasks.")
    as_json: Json = False


def command(options: ShowOptions) -> None:
    """Print a plan as text, a line per task, grouped by rank."""
    from collplan.planner.formats.text import to_text, where_and_when

    rank = options.rank
    plan = open_plan(options.source, rank=rank)
    if rank is None and not options.as_json:
        print_line(to_text(plan).rstrip("\n"))
        return
    rows = range(plan.n_tasks) if rank is None else (plan.rank == rank).nonzero()[0].tolist()
    tasks = [" ".join((str(task), *where_and_when(plan, task))) for task in map(plan.task, rows)]
    document = {"n_ranks": plan.n_ranks, "n_tasks": plan.n_tasks, "tasks": tasks}
    print_result(document, "\n".join(tasks), as_json=options.as_json)
