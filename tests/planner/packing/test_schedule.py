"""Tests of schedules of groups."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.errors import AlgorithmError
from collplan.planner.packing.schedule import KINDS, Demand, pack
from linked_machines import boxes, machine_on, torus


def packed(machine, kind, indptr=None, roots=None, n_bytes=1e6, n_parts=None):
    indptr = np.array([0, machine.n_ranks] if indptr is None else indptr)
    roots = np.zeros(len(indptr) - 1, np.int64) if roots is None else np.array(roots)
    return pack(machine, Demand(kind, np.arange(indptr[-1]), indptr, roots, n_bytes), n_parts)


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
def test_positions_send_chunks_that_they_received_in_earlier_rounds(kind):
    (schedule,) = packed(
        torus(3, 3), kind, roots=[4], n_parts=1 if kind == "alltoall" else 2
    ).groups
    n_chunks = int(schedule.chunk.max()) + 1
    has = np.zeros((9, n_chunks), dtype=bool)
    if kind == "bcast" or kind == "scatter":
        has[4] = True
    elif kind == "alltoall":
        has[np.arange(n_chunks) // 9, np.arange(n_chunks)] = True
    elif kind in ("allgather", "gather"):
        has[np.arange(n_chunks) % 9, np.arange(n_chunks)] = True
    else:
        has[:] = True  # Every position has operands of all chunks.
    for rows in schedule.rounds():
        source, dest, chunk = schedule.source[rows], schedule.dest[rows], schedule.chunk[rows]
        assert has[source, chunk].all()
        assert len(set(zip(dest.tolist(), chunk.tolist(), strict=True))) == len(chunk)
        has[dest, chunk] = True


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter_block"])
def test_a_reduction_is_the_schedule_backwards(kind):
    packing = packed(torus(3, 3), kind, n_parts=2)
    assert packing.ns == packed(torus(3, 3), "allgather", n_parts=2).ns
    (schedule,) = packing.groups
    assert schedule.n_combining == (kind != "allgather") * (len(schedule.begin) - 1)


def test_parts_are_chosen_by_the_shortest_time():
    few = packed(torus(4, 6), "allgather")
    assert few.n_parts > 1
    assert few.ns <= packed(torus(4, 6), "allgather", n_parts=1).ns
    slow = {"kind": "torus", "dimensions": [4, 6], "bandwidth": "1GB/s", "latency_ns": 1e7}
    assert packed(machine_on(slow), "allgather").n_parts == 1


def test_small_messages_are_not_cut_into_eager_ones():
    assert packed(torus(4, 6), "allgather", n_bytes=20000).n_parts == 1


def test_groups_share_links():
    # Two groups on the same ring: each alone would use all links.
    ring = torus(8)
    both = packed(ring, "allgather", [0, 8], n_parts=1)
    halves = packed(ring, "allgather", [0, 4, 8], n_parts=1)
    assert len(halves.groups) == 2
    assert len(both.groups) == 1
    assert {len(one.chunk) for one in halves.groups} == {12}


def test_all_groups_have_as_many_rounds():
    tree = {"kind": "fat_tree", "down": [4, 4], "oversubscription": 4, "bandwidth": "1GB/s"}
    ranks, indptr = np.arange(16).reshape(4, 4).T.ravel(), np.arange(0, 17, 4)
    for kind in ("allreduce", "allgather"):
        demand = Demand(kind, ranks, indptr, np.zeros(4, dtype=np.int64), 65536.0)
        for n_parts in (1, 2):
            packing = pack(machine_on(tree), demand, n_parts)
            assert len({len(one.begin) for one in packing.groups}) == 1
            assert all(one.begin[-1] == len(one.chunk) for one in packing.groups)


def test_groups_of_one_rank_send_nothing():
    packing = packed(torus(4), "allgather", [0, 1, 4])
    assert [len(one.chunk) for one in packing.groups] == [0, 6]


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_demand_gives_the_same_schedule(kind):
    # Each rank makes the schedule by itself.
    made = []
    for count in (1e6, 1e6 + 1):
        (schedule,) = packed(boxes(2, 3), kind, n_bytes=count, n_parts=1).groups
        made.append(schedule)
    assert made[0] is not made[1]
    assert repr(made[0]) == repr(made[1])


def test_ranks_on_one_node_are_refused():
    machine = machine_on({"kind": "torus", "dimensions": [2], "bandwidth": "1GB/s"},
                         ranks_per_node=2)  # fmt: skip
    with pytest.raises(AlgorithmError, match="two ranks of a group are on one node"):
        packed(machine, "bcast")


def test_huge_schedules_are_refused():
    with pytest.raises(AlgorithmError, match="messages or more, of at most"):
        packed(torus(48, 48), "allgather")
