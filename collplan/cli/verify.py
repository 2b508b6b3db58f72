"""``collplan verify``: proof of a plan, or a counter-example."""

from __future__ import annotations

from collplan.cli.inputs import open_plan
from collplan.cli.options import Json, Options, SpecOrPlan
from collplan.planner.errors import PlanError
from collplan.reports.output import format_seconds, print_result
from collplan.reports.progress import spinner


class VerifyOptions(Options):
    """Options of ``collplan verify``."""

    source: SpecOrPlan
    as_json: Json = False


def command(options: VerifyOptions) -> int:
    """Prove that a plan computes its collective, without race or deadlock.

    If its operation rounds, the strongest level of `reproducible` that holds is also printed.
    Exit status 1 if the plan is wrong; the counter-example names the tasks.
    """
    from collplan.api.examining import level_of
    from collplan.planner.machine_code.compile_time import Stopwatch

    source, as_json = options.source, options.as_json
    whole = Stopwatch()
    plan = open_plan(source, folds=True, is_proved=False)
    proof = Stopwatch()
    try:
        with spinner(f"proving {plan.n_tasks} tasks"):
            level = level_of(plan)
    except PlanError as error:
        refuted = {"ok": False, "error": str(error), "kind": error.kind}
        print_result(refuted, f"{source}: {error.kind}: {error}", as_json=as_json)
        return 1
    verify_s, kernels_s = proof.work_s, whole.kernels_s
    n_tasks, n_ranks = plan.n_tasks * plan.n_copies, plan.n_ranks * plan.n_copies
    document = {"ok": True, "n_tasks": n_tasks, "n_ranks": n_ranks, "n_copies": plan.n_copies}
    equal = "" if level is None else f", reproducible: {level}"
    folded = f", folded to one of {plan.n_copies} nodes" if plan.n_copies > 1 else ""
    print_result(
        document | {"reproducible": level, "verify_s": verify_s, "kernels_s": kernels_s},
        f"{source}: proved: {n_tasks} tasks on {n_ranks} ranks{folded} "
        f"in {format_seconds(verify_s, kernels_s)}{equal}",
        as_json=as_json,
    )
    return 0
