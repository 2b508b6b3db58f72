"""Calls whose members disagree, or that wait for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import CallError, DeadlockError, PlanFormatError
from collplan.planner.plan.phases import GroupCall
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.verify import verify
from oracle import make_spec

MACHINE = {"nodes": 2, "ranks_per_node": 2}


def native(kind: str = "allreduce", **fields: Any) -> Plan:
    fields = {"count": 8, "decomposition": "full_lane"} | fields
    return compile_plan(make_spec(kind, "native", 0, MACHINE, **fields))


def changed(plan: Plan, name: str, row: int, value: int) -> Plan:
    column = getattr(plan, name).copy()
    column[row] = value
    return plan.replace(**{name: column})


def call_rows(plan: Plan, phase: int) -> list[int]:
    return np.flatnonzero((plan.op == Op.CALL) & (plan.phase == phase)).tolist()


def with_members(plan: Plan, phase: int, *members: tuple[int, ...]) -> Plan:
    phases = list(plan.phases)
    phases[phase] = replace(phases[phase], calls=tuple(map(GroupCall, members)))
    return plan.replace(phases=tuple(phases))


def test_a_call_in_a_group_that_the_rank_is_not_in_is_found() -> None:
    plan = native()
    row = call_rows(plan, 0)[1]
    with pytest.raises(CallError, match="rank 1 is in the group of ranks 0, 1, but does not call"):
        verify(changed(plan, "tag", row, 1))
    with pytest.raises(CallError, match="rank 0 has no group 0 in phase 0"):
        verify(with_members(plan, 0, (2, 3)))


def test_a_member_that_does_not_call_is_found() -> None:
    plan = with_members(native(), 0, (0, 1, 3), (2, 3))
    with pytest.raises(CallError, match="rank 3 is in the group of ranks 2, 3, but does not"):
        verify(plan)
    plan = with_members(native(), 0, (0, 1, 1), (2, 3))
    with pytest.raises(CallError, match="the group of ranks 0, 1, 1 has a rank twice"):
        verify(plan)


def test_a_member_that_calls_twice_is_found() -> None:
    plan = native()
    first = call_rows(plan, 0)[0]
    again = call_rows(plan, 2)[0]
    with pytest.raises(CallError, match="the rank calls it twice in phase 0"):
        verify(changed(changed(plan, "phase", again, 0), "tag", again, int(plan.tag[first])))


def test_members_that_name_different_roots_are_found() -> None:
    plan = native("bcast", root=1)
    row = call_rows(plan, 0)[0]
    root = int(plan.peer[row])
    other = next(rank for rank in (0, 1) if rank != root)
    with pytest.raises(CallError, match="name different roots"):
        verify(changed(plan, "peer", row, other))
    with pytest.raises(CallError, match="its root is not of the group"):
        verify(changed(plan, "peer", row, 3))
    plan = native()
    with pytest.raises(CallError, match="names a root, but reduce_scatter_block has none"):
        verify(changed(plan, "peer", call_rows(plan, 0)[0], 0))


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["bcast", "allreduce", "allgather", "alltoall"])
def test_members_that_disagree_on_sizes_are_found(kind: str) -> None:
    plan = native(kind, decomposition="flat")
    row = call_rows(plan, 0)[3]
    side = plan.writes if len(plan.writes) else plan.reads
    entry = int(side.indptr[row])
    count = side.count.copy()
    count[entry] -= 1
    with pytest.raises(CallError, match=f"{kind} with the other members' takes"):
        verify(plan.replace(writes=replace(plan.writes, count=count)))


def test_a_wrong_order_of_members_is_a_wrong_result() -> None:
    plan = native("allgather", decomposition="flat")
    with pytest.raises(Exception, match="rank 0 recv"):
        verify(with_members(changed(plan, "tag", 0, 0), 0, (0, 2, 1, 3)))


def test_a_call_of_no_collective_is_found() -> None:
    plan = native(decomposition="flat")
    phase = replace(plan.phases[0], kind="gossip")
    with pytest.raises(CallError, match="'gossip' is no collective that MPI could compute"):
        verify(plan.replace(phases=(phase,)))


def test_calls_on_crossing_groups_that_wait_for_each_other_are_a_deadlock() -> None:
    """Rank 0 calls on its node before its lane, rank 1 on its lane before its node, and so on."""
    plan = native()
    node, lane = call_rows(plan, 0), call_rows(plan, 1)
    after = plan.deps.owner()
    edges = {(int(b), int(a)) for b, a in zip(plan.deps.task, after, strict=True)}
    # On ranks 1 and 2 the node's call waits for the lane's.
    own = {row: int(plan.rank[row]) for row in (*node, *lane)}
    for rank in (1, 2):
        first = next(row for row in node if own[row] == rank)
        second = next(row for row in lane if own[row] == rank)
        copies = [row for row in range(plan.n_tasks) if plan.rank[row] == rank]
        edges -= {(b, a) for b, a in edges if a in copies and a <= second}
        edges.add((second, first))
    before, owner = map(np.array, zip(*sorted(edges, key=lambda edge: edge[1]), strict=True))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=plan.n_tasks))))
    deps = Dependencies(indptr, before, np.zeros(len(before), dtype=np.int8))
    with pytest.raises(DeadlockError, match="each call as a barrier of its group"):
        verify(plan.replace(deps=deps))


def test_a_call_reads_and_writes_one_piece_each() -> None:
    plan = native(decomposition="flat")
    buffer = plan.reads.buffer.copy()
    buffer[:] = 1
    with pytest.raises(PlanFormatError, match="call that writes what it reads"):
        verify(plan.replace(reads=replace(plan.reads, buffer=buffer)))
    with pytest.raises(PlanFormatError, match="call without a group"):
        verify(changed(plan, "tag", 0, NONE))
    patterns = np.array([[0, 1, 0, 1], [2, 2, 0, 1]])
    pattern = plan.writes.pattern.copy()
    pattern[0] = 1
    count = plan.writes.count.copy()
    count[0] = 1
    writes = replace(plan.writes, pattern=pattern, count=count)
    with pytest.raises(PlanFormatError, match="call of pieces with gaps"):
        verify(plan.replace(writes=writes, patterns=patterns))
