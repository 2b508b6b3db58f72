"""Write the programs of all ranks as JSON, for interpreters of other projects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from collplan.planner.formats.output_files import write_text
from collplan.planner.memory import require_memory
from collplan.planner.plan.fold import require_all_ranks
from collplan.planner.plan.plan import NONE, Buffer, Extent, Op, Plan, Task
from collplan.planner.plan.ragged import ON_START
from collplan.planner.verify.agreed_calls import without_calls

FORMAT: Final = "collplan-programs"
VERSION: Final = 1
BYTES_PER_ROW: Final = 2000
"""Peak memory of writing, in bytes per task."""


def write_programs(plan: Plan, path: str | Path) -> None:
    """Write the programs of all ranks of a plan as a JSON document.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks. Calls of the MPI library are written out as messages.
    path : str or Path
        File to write.

    Raises
    ------
    PlanError
        If the plan has the tasks of one rank or node only.
    MemoryLimitError
        If the document takes more memory than is available.
    """
    write_text(Path(path), json.dumps(programs(plan), separators=(",", ":")) + "\n")


def programs(plan: Plan) -> dict[str, Any]:
    """Return the programs of all ranks of a plan, as values for JSON.

    Returns
    -------
    dict
        Document, whose fields are described on the page on interchange.

    Raises
    ------
    PlanError, MemoryLimitError
        As in `write_programs`.
    """
    require_all_ranks(plan, "written as programs")
    plan = without_calls(plan)
    require_memory(plan.n_tasks * BYTES_PER_ROW, "the programs", "write", "use fewer ranks")
    collective = None if plan.spec is None else plan.spec.collective.model_dump(mode="json")
    tasks: list[list[dict[str, Any]]] = [[] for _ in range(plan.n_ranks)]
    for task in plan.tasks():
        tasks[task.rank].append(_task(plan, task))
    names = ("send", "recv", "scratch")
    ranks = [
        {
            "rank": rank,
            "node": int(plan.rank_node[rank]),
            "core": int(plan.rank_core[rank]),
            "lane": int(plan.rank_lane[rank]),
            "buffers": dict(zip(names, plan.buffer_sizes[rank].tolist(), strict=True)),
            "tasks": own,
        }
        for rank, own in enumerate(tasks)
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "collective": collective,
        "itemsize": plan.itemsize,
        "shared": plan.shared_sizes.tolist(),
        "ranks": ranks,
    }


def _task(plan: Plan, task: Task) -> dict[str, Any]:
    """Return a task, without fields that do not apply to it."""
    found: dict[str, Any] = {"id": task.row, "op": task.op.name.lower()}
    if task.op in (Op.SEND, Op.RECV):
        found |= {"peer": task.peer, "tag": task.tag}
        if task.lane != NONE:
            found["lane"] = task.lane
    for name, extents in (("reads", task.reads), ("writes", task.writes)):
        blocks = [block for extent in extents for block in _blocks(extent)]
        if blocks:
            found[name] = blocks
    if task.op == Op.COMPUTE and task.duration_ns:
        found["ns"] = task.duration_ns
    own = slice(plan.deps.indptr[task.row], plan.deps.indptr[task.row + 1])
    for name, is_wanted in (("after", False), ("after_start", True)):
        rows = [
            before
            for before, kind in zip(plan.deps.task[own], plan.deps.kind[own], strict=True)
            if bool(kind & ON_START) is is_wanted
        ]
        if rows:
            found[name] = [int(row) for row in rows]
    return found


def _blocks(extent: Extent) -> Iterator[list[Any]]:
    """Yield buffer, offset and count of every contiguous block of an extent."""
    name = Buffer(extent.buffer).name.lower()
    for low, high in extent.blocks():
        yield [name, int(low), int(high - low)]
