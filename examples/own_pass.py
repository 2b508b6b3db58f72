"""Add a pass that limits the sends of a rank in flight.

Registers it, names it in a spec, and shows what it changes. The compiler
verifies the plan after the pass. Needs no MPI.

    python examples/own_pass.py
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from collplan import Plan, compile, parse_spec, simulate
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan.plan import Op
from collplan.planner.plan.ragged import INTENT, Dependencies


@register_pass("window_sends", level="plan", locality="rank")
def window_sends(plan: Plan, width: Annotated[int, Field(ge=1)] = 1) -> Plan:
    """Let a send start when the one `width` before it on its rank has completed."""
    sends = np.flatnonzero(plan.op == Op.SEND)
    sends = sends[np.argsort(plan.rank[sends], kind="stable")]
    before, after = sends[:-width], sends[width:]
    own = plan.rank[before] == plan.rank[after]
    before, after = before[own], after[own]
    if not len(before):
        return plan
    old = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    task = np.concatenate((old, after))
    order = np.argsort(task, kind="stable")
    return plan.replace(
        deps=Dependencies(
            indptr=np.searchsorted(task[order], np.arange(plan.n_tasks + 1)),
            task=np.concatenate((plan.deps.task, before))[order],
            kind=np.concatenate((plan.deps.kind, np.full(len(before), INTENT)))[order],
        )
    )


def main() -> None:
    """Show what the pass changes, and what it gains."""
    document = {
        "machine": {"nodes": 4, "ranks_per_node": 4},
        "collective": {"kind": "allreduce", "count": 100_000},
        "algorithms": "linear",
    }
    for passes in ([], [{"name": "window_sends", "width": 2}]):
        plan = compile(parse_spec({**document, "passes": passes}))
        sends = [task for task in plan.tasks() if task.rank == 0 and task.op == Op.SEND]
        print(f"passes {passes}: makespan {simulate(plan).makespan_s * 1e6:.1f} µs")
        print(*(f"  {task}" for task in sends[:3]), sep="\n")


if __name__ == "__main__":
    main()
