"""Plans as text, for readers and for expected results of tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.arrays import csr
from collplan.planner.plan.assembly import usual_priority
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan, Stage, Task
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.specs.syntax.calling import explains_calls


@explains_calls("to_text")
def to_text(plan: Plan) -> str:
    """Return `plan` as text: a header, then a line per task, grouped by rank.

    Parameters
    ----------
    plan : Plan
        Any plan, of all ranks or of one rank.

    Returns
    -------
    str
        Text that ends with a newline; the same plan gives the same text, and `from_text` reads
        it. The line of
        a task has its row, its round, its operation, the extents that it reads and
        writes, its lane if it is a message between nodes, and the tasks that it waits
        for. It waits for their completion, or for their start if ``start of`` precedes
        them. ``(intent)`` marks stated dependencies; all others are derived hazards.
    """
    tasks = list(plan.tasks())
    cells = [
        (f"#{task.row}", f"round {task.round}", _action(task), _extents(task)) for task in tasks
    ]
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(4)]
    by_rank, bounds = csr.group_by(plan.rank, plan.n_ranks)
    lines = list(_header(plan))
    for rank in range(plan.n_ranks):
        rows = by_rank[bounds[rank] : bounds[rank + 1]]
        if plan.only_rank in (None, rank):
            lines += ["", _rank_line(plan, rank)]
        phase = None
        for row in map(int, rows):
            if tasks[row].phase != phase:
                phase = tasks[row].phase
                if len(plan.phases) > 1:
                    lines.append(f"  phase {phase} {plan.phases[phase].name}".rstrip())
            columns = [cell.ljust(width) for cell, width in zip(cells[row], widths, strict=True)]
            line = "  " + "  ".join(columns + list(_remarks(plan, tasks[row])))
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def headline(plan: Plan) -> str:
    """Return a short description of what the plan computes.

    Returns
    -------
    str
        Text such as ``ring allreduce of 16 int32, sum, 4 ranks``, or ``a plan of 4
        ranks`` for a plan without a spec.
    """
    n_ranks = plan.n_ranks * plan.n_copies
    ranks = f"{n_ranks} rank{'s' * (n_ranks != 1)}"
    if plan.only_rank is not None:
        ranks += f", rank {plan.only_rank} only"
    if plan.folding is not None:
        ranks += f", folded: one of {plan.n_copies} nodes that do the same"
    if plan.program is not None:
        n_steps = len(plan.program.steps)
        return f"a program of {n_steps} step{'s' * (n_steps != 1)}, {ranks}"
    if plan.spec is None:
        return f"a plan of {ranks}"
    collective = plan.spec.collective
    # The only phase of a flat plan names the algorithm, also if `auto` has chosen it.
    words: str = collective.kind
    if len(plan.phases) == 1:
        phase = plan.phases[0]
        words = f"{phase.algorithm} {words}" if phase.kind == words and not phase.role else words
    if collective.has_data:
        words += f" of {collective.count} {collective.datatype}"
    parts = [words]
    if collective.op is not None:
        parts.append(collective.op.name)
    if collective.root is not None:
        parts.append(f"root {collective.root}")
    if collective.in_place:
        parts.append("in place")
    return ", ".join([*parts, ranks])


def where_and_when(plan: Plan, task: Task) -> Iterator[str]:
    """Generate the core of a task unless it is its rank's core, and its stage unless background.

    Yields
    ------
    str
        Texts such as ``core 9`` and ``stage start``.
    """
    if task.core != plan.rank_core[task.rank]:
        yield f"core {task.core}"
    if task.stage is not Stage.BACKGROUND:
        yield f"stage {task.stage.name.lower()}"


def _header(plan: Plan) -> Iterator[str]:
    yield headline(plan)
    n_messages = int((plan.op == Op.SEND).sum())
    rounds = np.unique(np.stack((plan.phase, plan.round)), axis=1).shape[1] if plan.n_tasks else 0
    yield (
        f"{plan.n_tasks} tasks, {n_messages} sends, {rounds} rounds, "
        f"{plan.itemsize} bytes per element"
    )
    for node in range(plan.n_nodes):
        ranks = " ".join(map(str, np.flatnonzero(plan.rank_node == node)))
        shared = f", shared[{plan.shared_sizes[node]}]" if plan.shared_sizes[node] else ""
        yield f"node {node}: ranks {ranks}{shared}"


def _rank_line(plan: Plan, rank: int) -> str:
    sizes = (
        f"{buffer.name.lower()}[{size}]"
        for buffer, size in zip(Buffer, plan.buffer_sizes[rank], strict=False)
        if size
    )
    where = f"node {plan.rank_node[rank]}, core {plan.rank_core[rank]}"
    if plan.rank_lane[rank] >= 0:
        where += f", lane {plan.rank_lane[rank]}"
    return f"rank {rank} ({', '.join((where, *sizes))})"


def _action(task: Task) -> str:
    objects = {
        Op.SEND: f" to {task.peer} tag {task.tag}",
        Op.RECV: f" from {task.peer} tag {task.tag}",
        Op.COMPUTE: f" {task.duration_ns} ns",
        Op.CALL: f" in the rank's group {task.tag}"
        + (f", root {task.peer}" if task.peer >= 0 else ""),
    }
    return task.op.name.lower() + objects.get(task.op, "")


def _extents(task: Task) -> str:
    reads, writes = (" + ".join(map(str, extents)) for extents in (task.reads, task.writes))
    return f"{reads} -> {writes}" if reads and writes else reads or (writes and f"-> {writes}")


def _remarks(plan: Plan, task: Task) -> Iterator[str]:
    """Generate columns that do not have their usual values, then the dependencies."""
    if task.lane >= 0:
        yield f"lane {task.lane}"
    if task.stream != NONE:
        yield f"stream {task.stream}"
    if task.priority != usual_priority(plan.crosses[task.row]):
        yield f"priority {task.priority}"
    yield from where_and_when(plan, task)
    begin, end = plan.deps.indptr[task.row : task.row + 2].tolist()
    waits = (
        ("start of " if kind & ON_START else "")
        + f"#{before}"
        + (" (intent)" if kind & INTENT else "")
        for before, kind in zip(task.after, plan.deps.kind[begin:end].tolist(), strict=True)
    )
    foreign = plan.foreign
    elsewhere = (
        f"rank {foreign.rank[i]} #{foreign.task[i]}"
        for i in range(foreign.indptr[task.row], foreign.indptr[task.row + 1])
    )
    text = ", ".join((*waits, *elsewhere))
    if text:
        yield f"after {text}"
