import networkx as nx
import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import UnmatchedSendError
from collplan.planner.formats.networkx import to_networkx
from collplan.planner.plan.plan import Buffer, Op
from collplan.specs import parse_spec
from handmade import PlanBook, binomial_bcast, ring_allreduce


def edges_of_kind(graph, kind):
    return [(tail, head) for tail, head, edge in graph.edges(data=True) if edge["kind"] == kind]


def test_a_node_a_row_with_its_attributes():
    plan = ring_allreduce([0, 0, 1, 1], n_lanes=2)
    graph = to_networkx(plan)
    assert list(graph.nodes) == list(range(plan.n_tasks))
    assert graph.nodes[5] == {
        "op": "reduce",
        "rank": 1,
        "peer": -1,
        "tag": -1,
        "phase": 0,
        "round": 0,
        "node": 0,
        "lane": -1,
        "core": 0,
        "bytes": 16,
        "label": str(plan.task(5)),
    }


def test_messages_join_sends_to_their_receives():
    plan = ring_allreduce([0, 0, 1, 1])
    graph = to_networkx(plan)
    messages = edges_of_kind(graph, "message")
    assert len(messages) == 24
    for send, recv in messages:
        assert plan.op[send] == Op.SEND
        assert plan.peer[send] == plan.rank[recv]
        assert graph.edges[send, recv]["bytes"] == 16


def test_dependencies_keep_their_kind():
    graph = to_networkx(binomial_bcast([0] * 4))
    assert edges_of_kind(graph, "intent") == [(0, 2)]
    assert graph.edges[0, 2]["on_start"] is True
    assert edges_of_kind(graph, "hazard") == [(1, 4)]
    assert graph.edges[1, 4]["on_start"] is False


def test_every_rank_hears_from_the_root():
    graph = to_networkx(binomial_bcast([0] * 8))
    assert nx.is_directed_acyclic_graph(graph)
    reached = {graph.nodes[row]["rank"] for row in nx.descendants(graph, 0)}
    assert reached == set(range(8))


def test_one_rank_has_no_messages():
    spec = {"machine": {"ranks_per_node": 4}, "collective": {"kind": "barrier"}}
    plan = compile_plan(parse_spec(spec | {"algorithms": "dissemination"}), rank=1)
    graph = to_networkx(plan)
    assert len(graph) == plan.n_tasks > 0
    assert edges_of_kind(graph, "message") == []


def test_a_lost_message_is_named():
    book = PlanBook([0, 0])
    book.add(Op.SEND, 0, [(Buffer.SEND, 0, 1)], [], peer=1)
    with pytest.raises(UnmatchedSendError, match="rank 1 has no receive for it"):
        to_networkx(book.plan())
