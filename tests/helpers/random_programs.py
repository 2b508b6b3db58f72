"""Random programs, and their execution in numpy beside the steps one after another."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from collplan.executors.local import run_local
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.reference import (
    Array,
    allocate_buffers,
    apply_steps,
    buffers_in,
    fill_buffers,
)
from collplan.specs import ProgramSpec

KINDS = (
    *("bcast", "allreduce", "allgather", "alltoall", "reduce_scatter_block", "scan", "exscan"),
    *("gather", "scatter", "reduce", "barrier"),
)


def random_program(seed: int) -> ProgramSpec:
    """Return a program of up to 12 steps on up to 12 ranks."""
    rng = random.Random(seed)
    nodes, local = rng.randint(1, 3), rng.randint(1, 4)
    size = nodes * local
    groups: list[tuple[Any, int]] = [
        ("all", size),
        ("node", local),
        ("lane", nodes),
        ({"rows": [nodes, local]}, local),
        ({"columns": [nodes, local]}, nodes),
        ({"every": nodes}, local),
        ({"ranks": [size - 1, 0] if size > 1 else [0]}, min(2, size)),
    ]
    steps: list[dict[str, Any]] = []
    for i in range(rng.randint(1, 12)):
        step = _computation(rng) if rng.random() < 0.2 else _collective(rng, *rng.choice(groups))
        step["name"] = f"step {i}"
        if i and rng.random() < 0.2:
            step["after"] = f"step {rng.randrange(i)}"
        steps.append(step)
    buffers = {
        name: {"count": 24 * size, "datatype": datatype}
        for name, datatype in (("x", "int32"), ("y", "int32"), ("z", "int64"))
    }
    machine = {"nodes": nodes, "ranks_per_node": local, "lanes": rng.randint(1, 2)}
    return ProgramSpec.model_validate({"machine": machine, "buffers": buffers, "steps": steps})


def _computation(rng: random.Random) -> dict[str, Any]:
    return {
        "compute": {"seconds": rng.random() * 1e-4},
        "reads": f"{rng.choice('xyz')}[0/2]",
        "writes": rng.choice("xyz"),
    }


def _collective(rng: random.Random, group: Any, size: int) -> dict[str, Any]:
    kind, n = rng.choice(KINDS), rng.randint(0, 12)
    one, other = rng.sample("xy", 2)
    step: dict[str, Any] = {"collective": {"kind": kind}, "group": group}
    if kind == "barrier":
        return step
    step["decomposition"] = rng.choice(["flat", "flat", "full_lane", "hierarchical"])
    step["transport"] = rng.choice(["messages", "shared"])
    if kind in ("bcast", "reduce", "gather", "scatter"):
        step["collective"]["root"] = rng.randrange(size)
    n_sent = n * (size if kind in ("alltoall", "scatter", "reduce_scatter_block") else 1)
    n_received = n * (size if kind in ("alltoall", "gather", "allgather") else 1)
    step["receive"] = f"{other}[3:{3 + n_received}]"
    may_be_in_place = kind in ("allreduce", "reduce", "scan", "exscan", "alltoall")
    if kind != "bcast" and not (may_be_in_place and rng.random() < 0.4):
        step["send"] = f"{one}[2:{2 + n_sent}]"
    return step


def differing_ranks(plan: Plan, seed: int) -> list[int]:
    """Return the ranks whose buffers differ from what the steps leave, in a random legal order."""
    program = plan.program
    assert program is not None
    memory: list[Array] = [allocate_buffers(program) for _ in range(plan.n_ranks)]
    for rank, one in enumerate(memory):
        fill_buffers(program, one, rank, seed)
    expected = [one.copy() for one in memory]
    apply_steps(program, [buffers_in(program, one) for one in expected])
    run_local(plan, [None] * plan.n_ranks, memory, order=random.Random(seed))
    return [
        rank
        for rank, (got, wanted) in enumerate(zip(memory, expected, strict=True))
        if not np.array_equal(got, wanted)
    ]
