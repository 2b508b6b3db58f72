"""Plans as dask graphs: the same results as in numpy under every scheduler of dask's."""

from __future__ import annotations

import os
import pickle
import random

import dask
import numpy as np
import pytest
from dask import threaded

import collplan
from collplan.executors.local import run_local
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.operations import get_operation
from collplan.planner.draw.rendering import find_renderer
from collplan.planner.errors import DeadlockError, PlanError
from collplan.planner.plan.plan import Buffer, Op
from looping import looped
from mpi_plans import PlanWriter
from oracle import filled_buffers, make_spec, with_counts
from structures import dealt, flavours, rounds
from tiers import briefly

RANKS = (1, 2, 3, 5, 8)
KINDS = registry.kinds()


def plans_of(kind, n_ranks, cases):
    """Yield a plan of every algorithm for all structures, on types in turns, and its algorithm."""
    for turn, (root, count, in_place, commutative) in enumerate(cases):
        types = list(flavours(kind, commutative))
        fields = {"root": root, "count": count, "in_place": in_place, **types[turn % len(types)]}
        for algorithm in registry.of(kind):
            if (
                algorithm.refusal(n_ranks, commutative, level="ranks" if rounds(fields) else None)
                is None
            ):
                yield compile_plan(make_spec(kind, algorithm.name, n_ranks, **fields)), algorithm


def graph_and_truth(plan):
    """Return a plan's graph, and what all ranks have received when `local` has run it."""
    sendbufs, recvbufs = filled_buffers(plan, plan.spec)
    graph = plan.to_dask(sendbufs, [buffer.copy() for buffer in recvbufs])
    run_local(plan, sendbufs, recvbufs)
    return graph, recvbufs


def assert_same(results, truth, what):
    for rank, (result, true) in enumerate(zip(results, truth, strict=True)):
        assert result.dtype == true.dtype
        assert np.array_equal(result, true), f"{what}, rank {rank}: {result}, not {true}"


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_computes_what_local_does(kind):
    """One after another for all structures, by threads for every fifth."""
    for n_ranks in briefly(RANKS, f"dask {kind}"):
        n = 0
        cases = dealt(kind, n_ranks, n_ranks, 3)
        for n, (plan, _) in enumerate(plans_of(kind, n_ranks, cases), start=1):
            graph, truth = graph_and_truth(plan)
            assert_same(dask.get(graph, graph.results), truth, plan.spec)
            if n % 5 == 1:
                assert_same(threaded.get(graph, graph.results), truth, plan.spec)
        assert n > 0


@pytest.mark.long
def test_every_collective_on_a_cluster(dask_client):
    """Two processes compute a plan of each collective, all at once."""
    found = []
    for number, kind in enumerate(KINDS):
        n_ranks = (4, 3)[number % 2]
        root, count, in_place, commutative = next(dealt(kind, n_ranks, number))
        case = (root, count or 5, in_place, commutative)
        plan, _ = random.Random(kind).choice(list(plans_of(kind, n_ranks, [case])))
        found.append((*graph_and_truth(plan), plan.spec))
    results = dask.compute(*(graph for graph, *_ in found), scheduler=dask_client)
    for result, (_, truth, spec) in zip(results, found, strict=True):
        assert_same(result, truth, spec)


COUNTS = {
    "gather": [3, 0, 1, 4],
    "scatter": [0, 2, 0, 5],
    "allgather": [1, 0, 7, 2],
    "reduce_scatter_block": [2, 1, 0, 3],
    "alltoall": [[1, 0, 2, 3], [0, 0, 0, 0], [4, 1, 1, 0], [2, 2, 2, 2]],
}


@pytest.mark.quick
@pytest.mark.parametrize("kind", COUNTS)
def test_counts_per_rank(kind):
    spec = make_spec(kind, "auto", 4, count=1, datatype="int32", op="sum")
    plan = compile_plan(with_counts(spec, COUNTS[kind]))
    graph, truth = graph_and_truth(plan)
    assert_same(dask.get(graph, graph.results), truth, plan.spec)


MESH = {"name": "mesh", "shape": [2, 4]}


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allreduce", "bcast", "alltoall", "scan"])
@looped(
    "decomposition, transport",
    [("full_lane", "shared"), ("hierarchical", "messages"), ("guideline", "shared"),
     (MESH, "messages")],
)  # fmt: skip
def test_decompositions_passes_and_memory_of_nodes(kind, decomposition, transport):
    spec = make_spec(
        kind, "auto", 8, {"nodes": 2, "ranks_per_node": 4, "lanes": 2}, count=24,
        datatype="int32", op="sum", decomposition=decomposition,
        passes=[{"name": "segment", "max_bytes": 16}, "prioritize", "limit_requests"],
    ).replace(transport=transport)  # fmt: skip
    graph, truth = graph_and_truth(compile_plan(spec))
    for get in (dask.get, threaded.get):
        assert_same(get(graph, graph.results), truth, spec)


def test_calls_of_the_library_are_written_out():
    spec = make_spec(
        "allreduce", "native", 8, {"nodes": 2, "ranks_per_node": 4}, count=13,
        datatype="float64", op="max", decomposition="full_lane",
    )  # fmt: skip
    plan = compile_plan(spec)
    assert (plan.op == Op.CALL).any()
    graph, truth = graph_and_truth(plan)
    assert_same(dask.get(graph, graph.results), truth, spec)


def ring(n_ranks=4, count=16):
    return compile_plan(
        make_spec("allreduce", "ring", n_ranks, count=count, datatype="int32", op="sum")
    )


def test_a_graph_can_be_computed_again_and_changes_no_buffer():
    plan = ring()
    sent = [np.arange(16, dtype=np.int32) + rank for rank in range(4)]
    received = [np.zeros(16, np.int32) for _ in range(4)]
    graph = plan.to_dask(sent, received)
    again = pickle.loads(pickle.dumps(graph))
    (first,), (second,) = dask.compute(graph), dask.compute(again, scheduler="sync")
    truth = sum(sent)
    for result in (*first, *second):
        assert np.array_equal(result, truth)
    assert not any(buffer.any() for buffer in received)
    first[0][:] = 7
    assert np.array_equal(dask.get(graph, graph.results[0]), truth)


def test_edges_are_data_messages_and_order():
    """Every task of the plan has a task, which waits for those that it depends on."""
    plan = ring()
    graph = collplan.to_dask(plan, *filled_buffers(plan, plan.spec))
    assert dask.is_dask_collection(graph)
    keys = {key[1]: key for key in graph if key[0].partition("-")[0] in ("send", "recv", "reduce")}
    assert sorted(keys) == list(range(plan.n_tasks))
    for task in plan.tasks():
        before = {key[1] for key in graph[keys[task.row]][1:] if key in keys.values()}
        assert set(task.after) <= before
        assert len(before - set(task.after)) == (task.op == Op.RECV)
    barrier = compile_plan(make_spec("barrier", "dissemination", 4))
    graph = barrier.to_dask([None] * 4, [None] * 4)
    result = graph[graph.results[0]]
    last = [key[1] for key in result[2:]]
    assert last, "a barrier has no data, but its end waits for its messages"
    assert [len(one) for one in dask.get(graph, graph.results)] == [0] * 4


def test_two_graphs_have_no_task_in_common():
    plan = ring()
    buffers = filled_buffers(plan, plan.spec)
    assert not set(plan.to_dask(*buffers)) & set(plan.to_dask(*buffers))


def test_operations_of_ones_own_and_plans_without_spec():
    writer = PlanWriter([[4, 4, 0]], itemsize=1)
    writer.add(Op.REDUCE, 0, [(Buffer.SEND, 0, 4), (Buffer.RECV, 0, 4)], [(Buffer.RECV, 0, 4)])
    buffers = [np.arange(4, dtype=np.uint8)], [np.full(4, 2, np.uint8)]
    graph = writer.plan().to_dask(*buffers, operation=get_operation("max"))
    assert dask.get(graph, graph.results)[0].tolist() == [2, 2, 2, 3]
    with pytest.raises(PlanError, match=r"#0 rank 0: reduce .* reduces, but there is no operation"):
        writer.plan().to_dask(*buffers)


def test_memory_that_nobody_wrote_is_zero():
    writer = PlanWriter([[0, 4, 2]], itemsize=1)
    writer.add(Op.COPY, 0, [(Buffer.SCRATCH, 0, 2)], [(Buffer.RECV, 1, 2)])
    graph = writer.plan().to_dask([None], [np.full(4, 9, np.uint8)])
    assert dask.get(graph, graph.results)[0].tolist() == [9, 0, 0, 9]


def test_mistakes_are_named():
    plan = ring()
    sent, received = filled_buffers(plan, plan.spec)
    with pytest.raises(PlanError, match="sendbufs: 3 buffers for 4 ranks"):
        plan.to_dask(sent[:3], received)
    with pytest.raises(PlanError, match=r"recvbufs\[2\] has 5 elements, the plan needs 16"):
        plan.to_dask(sent, [*received[:2], received[2][:5], received[3]])
    with pytest.raises(PlanError, match=r"sendbufs\[1\] has 0 elements"):
        plan.to_dask([sent[0], None, *sent[2:]], received)
    with pytest.raises(PlanError, match="rank 1's program alone"):
        compile_plan(plan.spec, rank=1).to_dask(sent, received)
    writer = PlanWriter([[1, 1, 0]] * 2, itemsize=1)
    for rank in (0, 1):
        came = writer.recv(rank, 1 - rank, (Buffer.RECV, 0, 1))
        writer.send(rank, 1 - rank, (Buffer.SEND, 0, 1), after=[came])
    with pytest.raises(DeadlockError):
        writer.plan().to_dask([np.zeros(1, np.uint8)] * 2, [np.zeros(1, np.uint8)] * 2)


def test_dask_draws_it(tmp_path, monkeypatch):
    """By graphviz's dot, for which the program of a wheel stands in where there is none."""
    (tmp_path / "dot").symlink_to(find_renderer())
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    plan = ring(3, 6)
    graph = plan.to_dask(*filled_buffers(plan, plan.spec))
    dask.visualize(graph, filename=str(tmp_path / "graph.svg"))
    picture = (tmp_path / "graph.svg").read_text()
    assert picture.count("<ellipse") >= plan.n_tasks
    for word in ("send", "recv", "reduce"):
        assert f">{word}</text>" in picture
