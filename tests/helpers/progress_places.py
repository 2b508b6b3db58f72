"""Placement of threads with background tasks, and reasons for none."""

from __future__ import annotations

import os
import time

import numpy as np

from collplan.executors.mpi.binding import background
from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.processes import affinity
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Op, Plan
from mpi_plans import InPython, PlanWriter, refuses
from oracle import make_spec
from progress_plans import PROCESSORS, bind_placed, comm, p, placed, processors_of, rank, threads

MOST_STARTS = 50
"""Starts of a plan until this rank has seen the thread on each of its processors."""


def goes_to_its_cores() -> None:
    """The thread runs on the processors of its tasks' cores, one after the other."""
    writer = PlanWriter([[1, 1, 0]] * p)
    wanted: list[int] = []
    for r in range(p):
        before: list[int] = []
        for core in (p, p + 1, p):
            # Copies, which are no messages: each on its core, in order.
            place = [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)]
            before = [writer.add(Op.COPY, r, *place, after=before, core=core)]
            before = [writer.add(Op.COMPUTE, r, duration_ns=30_000_000, after=before, core=core)]
    cores = processors_of(p + 2)
    wanted = _changes([cores[p], cores[p + 1], cores[p]])
    one = np.zeros(1, np.int32)
    with bind_placed(writer.plan(), one, one.copy(), progress="thread") as bound:
        (thread,) = threads()
        assert thread.native_id is not None
        for _ in range(MOST_STARTS):
            visited = _visited(bound, thread.native_id)
            # A busy machine may keep this rank from looking while the thread is on one of them.
            remaining = iter(wanted)
            assert all(at in remaining for at in visited), (visited, wanted)
            if visited == wanted:
                break
        assert visited == wanted
        assert os.sched_getaffinity(0) == affinity()


def _visited(bound: BoundPlan, thread: int) -> list[int]:
    """Start a plan and return the single processors on which its thread was seen."""
    bound.start()
    seen = []
    while not bound.test():
        seen.append(os.sched_getaffinity(thread))
        time.sleep(1e-3)
    return _changes([min(where) for where in seen if len(where) == 1])


def _changes(values: list[int]) -> list[int]:
    """Return values without those that equal the one before."""
    return [value for i, value in enumerate(values) if i == 0 or values[i - 1] != value]


def degrades() -> None:
    """Without a thread the caller runs everything, and the plan says why."""
    plan, vector = placed("bcast", 8), np.zeros(8, np.int32)
    none = make_spec("bcast", "auto", p, count=8, datatype="int32", root=p - 1)
    wide = {"ranks_per_node": p, "cores": 5000}
    way = {"count": 8, "datatype": "int32", "root": p - 1}
    passes = [{"name": "place_progress"}]
    huge = compile_plan(make_spec("bcast", "auto", p, wide, **way, passes=passes))
    reducing = placed("allreduce", 8, algorithm="ring")
    own = InPython("max")
    cases: list[tuple[str, Plan, dict[str, object]]] = [
        ("it was asked for", plan, {"progress": "caller"}),
        ("has no compiled form, and Python cannot run beside", reducing, {"operation": own}),
        ("are on cores that hold ranks, as core", compile_plan(none), {}),
        (f"has 5000 cores, its ranks may use {len(PROCESSORS)} processors", huge, {"cores": None}),
        ("cannot be used by rank", plan, {"cores": [9999] * (p + 2)}),
    ]
    for words, each, options in cases:
        sent = np.zeros(8, np.int32) if each is reducing else None
        with bind_placed(each, sent, vector, **options) as bound:
            assert bound.progress == "caller"
            assert words in bound.why_caller, bound.why_caller
            assert not threads()
            vector[:] = 3 if rank == p - 1 else -1
            if sent is not None:
                sent[:] = vector
            bound()
            assert (vector == 3).all()
        if options.get("progress") is None:
            insisting = {**options, "progress": "thread"}
            refuses(
                BindError, words, lambda e=each, s=sent, o=insisting: bind_placed(e, s, vector, **o)
            )
    refusals = (
        ("progress is 'later'; use one of auto, caller, thread", {"progress": "later"}),
        (f"cores names 1 processors, the plan's node has {p + 2} cores", {"cores": [0]}),
        ("cores[1] is -1; use the number of a processor", {"cores": [0, -1, 1, 1, 1]}),
        ("cores is 'abcdefgh'; give a list of processors", {"cores": "abcdefgh"}),
    )
    for words, options in refusals:
        refuses(BindError, words, lambda o=options: bind_placed(plan, None, vector, **o))
    # One rank's wish is enough for all to be told.
    only = {"progress": "thread"} if rank == p - 1 else {}
    words = "progress is thread, but"
    refuses(BindError, words, lambda: bind_placed(compile_plan(none), None, vector, **only))


def nodes_and_hosts() -> None:
    """Nodes of one host take their processors in turn; a node on two hosts has none."""
    if p < 2:
        return
    two = {"nodes": 2, "ranks_per_node": [1, p - 1], "cores": p}
    fields = {"count": 8, "datatype": "int32", "passes": [{"name": "place_progress"}]}
    plan = compile_plan(make_spec("bcast", "auto", p, two, **fields))
    vector = np.zeros(8, np.int32)
    background.affinity, keep = (lambda: set(range(2 * p)) | affinity()), background.affinity
    kept_check = background._require_pinning
    background._require_pinning = lambda rank, processors: None
    seen: list[list[int]] = []
    kept_crowd = background._crowd
    background._crowd = lambda facts, offers, rank: seen.append(offers[rank].processors) or 0.5
    try:
        with bind(plan, comm, None, vector) as bound:
            assert bound.progress == "thread", bound.why_caller
        offset = p if rank else 0
        assert all(offset < processor < offset + p for processor in seen[0]), seen
        background.host = lambda: f"host {rank}"
        with bind(placed("bcast", 8), comm, None, vector) as bound:
            assert "of the same node of the plan on" in bound.why_caller, bound.why_caller
    finally:
        from collplan.executors.mpi.host.cores import host

        background.affinity, background.host = keep, host
        background._require_pinning, background._crowd = kept_check, kept_crowd


def crowds() -> None:
    """Ranks know that they share a processor with other threads."""
    fact = lambda *usable: background._Fact("h", "h", usable, 0, 4)  # noqa: E731
    offer = lambda *at: background._Offer(True, False, None, at)  # noqa: E731
    alone = background._crowd([fact(0, 1, 2, 3)] * 2, [offer(2), offer(3)], 0)
    assert alone == 1
    assert background._crowd([fact(0, 1, 2, 3)] * 3, [offer(3)] * 3, 1) == 3
    assert background._crowd([fact(0, 1, 2, 3)] * 3, [offer(1), offer(3), offer(3)], 0) == 1.5
    assert background._crowd([fact(0), fact(1)], [offer(1), offer(1)], 0) == 3
    away = background._Fact("other", "other", (0,), 1, 4)
    assert background._crowd([fact(0, 1), away], [offer(1), offer(1)], 0) == 1
