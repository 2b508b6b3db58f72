"""Plans whose columns were tampered with: each gives an error of one line, or stays in its memory.

One rank: messages to itself, strided and spanning, copies, reductions, dependencies on
starts, all three buffers. Two or more: a plan that shares memory, bound but not started.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from mpi4py import MPI

import collplan
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.engine import node_memory
from collplan.planner.errors import PlanError
from collplan.planner.formats.npz import load, save
from collplan.planner.plan.plan import COLUMNS, Buffer, Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.specs.errors import CollplanError
from mpi_plans import PlanWriter, reduction

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
GUARD = 4096
SIZE = 64
ROOM = 1 << 26
"""Bytes of the largest memory that ranks share: the system takes seconds for gigabytes."""
EXTREMES = [-1, 0, 1, 7, 100, 2**15, 2**31 - 1, -(2**31), 2**47, 2**62, -(2**63), 2**63 - 1]
TABLES = ["patterns", "buffer_sizes", "shared_sizes", "mirrors"]
TABLES += ["rank_node", "rank_lane", "rank_core"]
PARTS = ["reads", "writes", "deps", "foreign"]
kept: list[object] = []
"""Buffers that incomplete plans may still write to."""


def self_plan() -> Plan:
    writer = PlanWriter([[SIZE] * 3], patterns=[[5, 3, 0, 1], [4, 2, 9, 2]])
    filled = writer.add(Op.COPY, 0, [(Buffer.SEND, 0, SIZE)], [(Buffer.SCRATCH, 0, SIZE)])
    came = writer.recv(0, 0, (Buffer.RECV, 3, 4, 2), (Buffer.SCRATCH, 40, 2), after=[filled])
    writer.send(0, 0, (Buffer.SEND, 2, 4, 2), (Buffer.SEND, 60, 2))
    again = writer.recv(0, 0, (Buffer.RECV, 40, 2, 1), tag=1, after=[(came, ON_START)])
    writer.send(0, 0, (Buffer.SEND, 0, 6), tag=1, after=[filled])
    writer.add(
        Op.REDUCE,
        0,
        [(Buffer.RECV, 0, 30), (Buffer.SCRATCH, 8, 3, 2), (Buffer.SEND, 9, 18)],
        [(Buffer.RECV, 1, 30)],
        after=[came, again],
    )
    writer.add(Op.COMPUTE, 0, duration_ns=1000)
    return writer.plan()


def shared_plan() -> Plan:
    spec = {
        "machine": {"ranks_per_node": p},
        "collective": {"kind": "allreduce", "count": 40, "datatype": "int32"},
        "transport": "shared",
    }
    return collplan.compile(collplan.parse_spec(spec), rank=rank)


def changed(array: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Give an array with one entry replaced, an extreme or a near one, where its type has it."""
    limits = np.iinfo(array.dtype)
    for value in EXTREMES:
        if not array.size or not limits.min <= value <= limits.max:
            continue
        for near in (False, True):
            other = np.array(array)
            place = int(rng.integers(other.size))
            new = int(other.flat[place]) + value if near and abs(value) < 10 else value
            other.flat[place] = max(limits.min, min(limits.max, new))
            if not np.array_equal(other, array):
                yield other


def tampered(plan: Plan, rng: np.random.Generator) -> Iterator[tuple[str, Plan]]:
    """Give plans with one entry changed, as far as a plan can be made of that at all."""
    for name in [*COLUMNS, *TABLES]:
        for values in changed(getattr(plan, name), rng):
            yield from attempt(plan, name, {name: values})
    for part in PARTS:
        table = getattr(plan, part)
        for field in fields(table):
            for values in changed(getattr(table, field.name), rng):
                other = replace(table, **{field.name: values})
                yield from attempt(plan, f"{part}.{field.name}", {part: other})
    for itemsize in (-4, 0, 1, 3, 8, 2**31, 2**62):
        yield from attempt(plan, "itemsize", {"itemsize": itemsize})
    for only_rank in (-1, 0, 1, 5, 2**40):
        yield from attempt(plan, "only_rank", {"only_rank": only_rank})


def attempt(plan: Plan, name: str, values: dict[str, object]) -> Iterator[tuple[str, Plan]]:
    try:
        yield name, replace(plan, **values)  # type: ignore[arg-type]
    except CollplanError as error:
        seen(name, error)


def seen(name: str, error: CollplanError) -> None:
    refused[name] = refused.get(name, 0) + 1
    assert "\n" not in str(error), f"{name}: {error}"


def guarded() -> tuple[np.ndarray, np.ndarray]:
    """Return memory, and the part of it that a plan may use."""
    whole = np.full(SIZE + 2 * GUARD, 77, dtype=np.int32)
    return whole, whole[GUARD : GUARD + SIZE]


def run(name: str, plan: Plan, way: str) -> None:
    """Bind, start and poll; nothing outside of the buffers may change."""
    (around_send, send), (around_recv, recv) = guarded(), guarded()
    kept.extend((around_send, around_recv))
    send[:] = np.arange(SIZE)
    before = send.copy()
    try:
        bound = bind(plan, comm, send, recv, operation=reduction(way, "max"))
    except CollplanError as error:
        seen(name, error)
        return
    bound_ones[name] = bound_ones.get(name, 0) + 1
    kept.append(bound)
    try:
        if (plan.stage == 0).any() or plan.duration_ns.max() > 10**6:
            return  # Such a start waits, for what may never come, or computes for years.
        bound.start()
        for _ in range(200):
            if bound.test():
                bound.free()
                break
    except (MPI.Exception, CollplanError):
        pass
    for around in (around_send, around_recv):
        assert (around[:GUARD] == 77).all(), name
        assert (around[GUARD + SIZE :] == 77).all(), name
    # Only what the plan says it writes: an op that was changed may write nothing to it.
    assert np.array_equal(send, before) or (plan.writes.buffer == Buffer.SEND).any(), name


def through_file(name: str, plan: Plan, folder: Path) -> Plan | None:
    """Return a plan that was saved and loaded, unless that is refused."""
    path = folder / f"{rank}.plan"
    try:
        save(plan, path)
        return load(path)
    except PlanError as error:
        seen(name, error)
        return None


def tamper_with_self_plan() -> None:
    plan, rng = self_plan(), np.random.default_rng(5)
    run("nothing", plan, "compiled")
    assert bound_ones == {"nothing": 1}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, other) in enumerate(tampered(plan, rng)):
            run(name, other, ("compiled", "python")[i % 2])
            loaded = through_file(name, other, Path(folder))
            if loaded is not None:
                run(name, loaded, ("python", "compiled")[i % 2])
    assert bound_ones["priority"] > 0


def tamper_with_shared_plan() -> None:
    """All ranks change the same; each finds out, or all hear of it."""
    plan = shared_plan()
    dtype_buffers = np.ones(40, np.int32), np.zeros(40, np.int32)
    made = list(tampered(plan, np.random.default_rng(6)))
    for i in range(comm.allreduce(len(made), MPI.MAX)):
        name, other = made[i] if i < len(made) else ("nothing", plan)
        try:
            bound = bind(other, comm, *dtype_buffers)
        except CollplanError as error:
            seen(name, error)
        else:
            bound_ones[name] = bound_ones.get(name, 0) + 1
            bound.free()


def limit_room() -> None:
    """Let this machine have little memory for the ranks of a node."""
    require_room = node_memory._require_room

    def require(n_bytes: int) -> None:
        if n_bytes > ROOM:
            raise node_memory._no_room(n_bytes, f"the test gives {ROOM}")
        require_room(n_bytes)

    node_memory._require_room = require


refused: dict[str, int] = {}
bound_ones: dict[str, int] = {}
limit_room()
if p == 1:
    tamper_with_self_plan()
else:
    tamper_with_shared_plan()
must_be_refused = {"op", "rank", "peer", "tag", "stage", "rank_node"}
must_be_refused |= {f"{part}.{name}" for part in ("reads", "writes") for name in
                    ("indptr", "buffer", "offset", "count", "pattern")}  # fmt: skip
must_be_refused |= {
    "deps.indptr",
    "patterns",
    "buffer_sizes",
    "mirrors",
    "shared_sizes",
    "itemsize",
}
if p == 1:
    must_be_refused |= {"deps.task", "deps.kind"}
else:
    must_be_refused |= {"foreign.rank", "foreign.task", "foreign.flag", "foreign.awaited"}
missing = must_be_refused - refused.keys()
assert not missing, f"nothing was refused of {missing}; refused {refused}; bound {bound_ones}"
if rank == 0:
    print(f"passed: {sum(refused.values())} refused, {sum(bound_ones.values())} bound", flush=True)
    print(refused, bound_ones, file=sys.stderr)
