"""``collplan verify``: the proof, or the counter-example."""

from __future__ import annotations

from time import perf_counter

from collplan.options import Json, SpecOrPlan


def command(source: SpecOrPlan, as_json: Json = False) -> int:
    """Prove that a plan computes its collective, without race or deadlock.

    Exit status 1 where it does not; the counter-example names the tasks.
    """
    from collplan.inputs import open_plan
    from collplan.output import format_seconds, print_json, print_line, show_progress
    from planner.errors import PlanError

    plan = open_plan(source)
    begin = perf_counter()
    try:
        with show_progress(f"proving {plan.n_tasks} tasks"):
            plan.verify()
    except PlanError as error:
        if as_json:
            print_json({"ok": False, "error": str(error), "kind": error.kind})
        else:
            print_line(f"{source}: {error.kind}: {error}")
        return 1
    verify_s = perf_counter() - begin
    if as_json:
        document = {"ok": True, "n_tasks": plan.n_tasks, "n_ranks": plan.n_ranks}
        print_json(document | {"verify_s": verify_s})
    else:
        print_line(
            f"{source}: proved: {plan.n_tasks} tasks on {plan.n_ranks} ranks "
            f"in {format_seconds(verify_s)}"
        )
    return 0
