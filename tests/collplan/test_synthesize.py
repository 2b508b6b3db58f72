"""Searched schedules: published optima, bounds, files that are algorithms, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from collplan import compile as compile_plan
from collplan import parse_spec, verify
from collplan.executors.local import run_local
from collplan.planner.collective.bounds import lower_bounds
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op, Plan
from collplan.synthesize.bounds import least_chunk_times, least_rounds
from collplan.synthesize.combining import ElementModel
from collplan.synthesize.graph import RankGraph, link_graph, machine_graph
from collplan.synthesize.links import read_links
from collplan.synthesize.problem import KINDS, ROOTED, state_problem, turned_around
from collplan.synthesize.search import (
    Found,
    SearchProblem,
    count_bytes,
    search,
    search_composed,
)
from command_line import CommandLine
from synthesizing import Synthesis, registered

pytest.importorskip("ortools")


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.fixture
def synthesis(collplan: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Synthesis:
    monkeypatch.setenv("COLLPLAN_IMPORT", "")
    return Synthesis(collplan)


def dgx1() -> RankGraph:
    return link_graph("dgx1", read_links("dgx1"), 8, None)


def messages(plan: Plan) -> Counter[tuple[int, int]]:
    """Count the messages between ranks."""
    sends = np.flatnonzero(plan.op == Op.SEND)
    return Counter(zip(plan.rank[sends].tolist(), plan.peer[sends].tolist(), strict=True))


SHAPES = [
    ({"ranks_per_node": 5}, 1, 1),
    ({"ranks_per_node": 4}, 2, 2),
    ({"nodes": 3}, 1, 3),
    ({"nodes": 2, "ranks_per_node": 3, "lanes": 2}, 1, 2),
]
"""A machine, its ports, and chunks."""


@pytest.mark.many
@pytest.mark.parametrize(
    ("kind", "machine", "ports", "chunks"),
    [
        (kind, *SHAPES[(i + j) % len(SHAPES)])
        for i, kind in enumerate(KINDS)
        for j in (0, 2 + i // 4)
    ],
)
def test_schedules_of_all_collectives_are_proved(
    kind: str, machine: dict[str, Any], ports: int, chunks: int, synthesis: Synthesis
) -> None:
    collective = {"kind": kind, "count": 13, "datatype": "int32"}
    words = ["--ports", ports, "--chunks", 1 if kind == "alltoall" else chunks, "--time-limit", 20]
    found = synthesis.search(machine, collective, *words)
    n_ranks = found["n_ranks"]
    reach = next(n for n in range(9) if (ports + 1) ** n >= n_ranks)
    assert reach <= found["least_rounds"] <= found["n_rounds"]
    assert found["n_rounds"] == reach or (kind == "allreduce")
    shifts = machine.get("ranks_per_node", 1) == n_ranks or machine.get("nodes") == n_ranks
    with registered(synthesis.path):
        for count in (0, 1, 2, 3, 13):
            synthesis.plan(count=count)
        for root in range(1, n_ranks) if kind in ROOTED and shifts else ():
            synthesis.plan(root=root)
        if ports == 1:
            assert measure(synthesis.plan()).n_rounds <= found["n_rounds"]


def test_results_are_those_of_numpy(synthesis: Synthesis) -> None:
    machine, collective = {"ranks_per_node": 4}, {"kind": "allreduce", "count": 10}
    synthesis.search(machine, collective | {"datatype": "int64"}, "--chunks", 2)
    with registered(synthesis.path):
        inputs = [np.arange(10) * (rank + 1) for rank in range(4)]
        results = [np.zeros(10, dtype=np.int64) for _ in range(4)]
        run_local(synthesis.plan(), inputs, results)
        for result in results:
            np.testing.assert_array_equal(result, sum(inputs))


@pytest.mark.parametrize(
    ("chunks", "steps", "rounds"), [(1, 2, 2), (2, 2, 3), (3, 4, 4), (6, 3, 7)]
)
def test_published_allgathers_on_a_dgx1_are_met(
    chunks: int, steps: int, rounds: int, synthesis: Synthesis
) -> None:
    collective = {"kind": "allgather", "count": 6 * chunks, "datatype": "int8"}
    words = ["--links", "dgx1", "--chunks", chunks, "--rounds", steps]
    found = synthesis.search({"ranks_per_node": 8}, collective, *words)
    assert (found["n_rounds"], found["chunk_times"]) == (steps, rounds)
    assert found["bytes_over_bound"] == 1
    with registered(synthesis.path):
        plan = synthesis.plan()
        assert set(messages(plan)) <= set(read_links("dgx1"))
        loads: Counter[tuple[int, int]] = Counter()
        for send in np.flatnonzero(plan.op == Op.SEND):
            loads[int(plan.rank[send]), int(plan.peer[send])] += int(plan.elements[send]) // 6
        assert max(n / read_links("dgx1")[pair] for pair, n in loads.items()) <= rounds


def test_fewer_rounds_than_published_are_impossible(synthesis: Synthesis) -> None:
    collective = {"kind": "allgather", "count": 6, "datatype": "int8"}
    words = ["--links", "dgx1", "--chunks", 6, "--within", 1]
    found = synthesis.search({"ranks_per_node": 8}, collective, *words)
    assert (found["n_rounds"], found["least_rounds"], found["chunk_times"]) == (3, 3, 7)
    assert "the fewest of all schedules of 6 parts (2 rounds are not enough" in found["rounds"]


@pytest.mark.long
def test_an_allreduce_on_two_lanes_has_the_fewest_bytes_in_five_rounds(
    synthesis: Synthesis,
) -> None:
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    collective = {"kind": "allreduce", "count": 4000, "datatype": "int32"}
    found = synthesis.search(machine, collective, "--chunks", 4, "--within", 1.02)
    assert found["n_rounds"] == found["least_rounds"] == 5
    assert found["rounds"].startswith("5 rounds, the fewest possible (4 rounds are not enough")
    with registered(synthesis.path):
        metrics = measure(synthesis.plan())
        assert metrics.n_rounds == 5
        bounds = metrics.bounds
        assert bounds is not None
        assert metrics.bytes_sent_per_rank <= 1.02 * bounds.bytes_sent_per_rank
        assert metrics.bytes_received_per_rank <= 1.02 * bounds.bytes_received_per_rank
        assert metrics.lane_bytes <= 1.02 * bounds.lane_bytes


@pytest.mark.parametrize("ports", [1, 2, 3])
@pytest.mark.parametrize("kind", ["allgather", "bcast"])
def test_rounds_are_optimal_for_any_number_of_ports(kind: str, ports: int) -> None:
    for n_ranks in range(2, 10):
        spec = parse_spec({
            "machine": {"nodes": n_ranks},
            "collective": {"kind": kind, "count": 1, "datatype": "int8"},
        })  # fmt: skip
        graph = machine_graph(spec.machine, ports, lower_bounds(spec))
        found = search(SearchProblem(state_problem(kind, n_ranks, 1, 0), graph, None, None, 10))
        assert (ports + 1) ** found.n_rounds >= n_ranks
        assert (ports + 1) ** (found.n_rounds - 1) < n_ranks
        for sent in found.rounds:
            for end in (0, 1):
                assert max(Counter(message[end] for message in sent).values()) <= ports


def test_an_allreduce_may_be_composed(synthesis: Synthesis) -> None:
    collective = {"kind": "allreduce", "count": 48, "datatype": "int32"}
    words = ["--links", "dgx1", "--chunks", 48, "--within", 1, "--compose"]
    found = synthesis.search({"ranks_per_node": 8}, collective, *words)
    assert (found["n_rounds"], found["chunk_times"]) == (6, 14)
    assert "of all schedules made of these two halves" in found["rounds"]
    with registered(synthesis.path):
        assert set(messages(synthesis.plan())) <= set(read_links("dgx1"))


def test_a_composed_allreduce_on_a_machine_is_compared_with_its_halves(
    synthesis: Synthesis,
) -> None:
    machine = {"nodes": 2, "ranks_per_node": 2}
    collective = {"kind": "allreduce", "count": 12, "datatype": "int32"}
    found = synthesis.search(machine, collective, "--chunks", 4, "--compose")
    assert (found["n_rounds"], found["least_rounds"]) == (4, 4)
    with registered(synthesis.path):
        metrics = measure(synthesis.plan())
        assert metrics.bounds is not None
        assert found["busiest"] == {"rank": 6, "lane": metrics.lane_bytes // 12}
        assert metrics.bytes_sent_per_rank == metrics.bounds.bytes_sent_per_rank
        assert found["bytes_over_bound"] == metrics.lane_bytes / metrics.bounds.lane_bytes == 1


def test_each_half_of_a_composed_allreduce_gets_half_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = []

    def timed(question: SearchProblem) -> Found:
        seconds.append(question.seconds)
        return search(question)

    monkeypatch.setattr("collplan.synthesize.search.search", timed)
    graph = link_graph("one way", {(a, (a + 1) % 4): 1 for a in range(4)}, 4, None)
    found = search_composed(
        SearchProblem(state_problem("allgather", 4, 1, 0), graph, None, None, 600)
    )
    assert len(found.rounds) == 6
    assert seconds == [300, 300]


def test_the_relaxation_to_an_element_allows_what_is_known_to_be_possible() -> None:
    """Census takes ⌈log₂ p⌉ rounds for any p, and tripling with two ports ⌈log₃ p⌉."""
    for n_ranks, ports, n_rounds in ((5, 1, 3), (6, 1, 3), (9, 2, 2)):
        spec = parse_spec({
            "machine": {"nodes": n_ranks},
            "collective": {"kind": "allreduce", "count": 1, "datatype": "int8"},
        })  # fmt: skip
        graph = machine_graph(spec.machine, ports, lower_bounds(spec))
        assert ElementModel(1, graph, n_rounds, None).solve(20).status == "found"
        assert ElementModel(1, graph, n_rounds - 1, None).solve(20).status == "impossible"


def test_the_relaxation_limits_the_mean_of_all_messages() -> None:
    """A limit of bytes that suffices for one part of the vector is too small for more parts."""
    spec = parse_spec({
        "machine": {"nodes": 4},
        "collective": {"kind": "allreduce", "count": 4, "datatype": "int8"},
    })  # fmt: skip
    graph = machine_graph(spec.machine, 1, lower_bounds(spec))
    least = {
        n_parts: next(
            most
            for most in range(1, 10)
            if ElementModel(n_parts, graph, 3, most).solve(20).status == "found"
        )
        for n_parts in (1, 2, 4)
    }
    assert least == {1: 2, 2: 3, 4: 6}


def ring(n_ranks: int) -> dict[tuple[int, int], int]:
    return {(a, (a + step) % n_ranks): 1 for a in range(n_ranks) for step in (1, n_ranks - 1)}


def test_bounds_of_a_ring_are_met() -> None:
    for n_ranks in (4, 5, 6):
        graph = link_graph("ring", ring(n_ranks), n_ranks, None)
        problem = state_problem("allgather", n_ranks, 1, 0)
        assert graph.is_rotational
        assert least_rounds(problem, graph)[0] == n_ranks // 2
        assert least_chunk_times(problem, graph) == n_ranks // 2
        found = search(SearchProblem(problem, graph, None, None, 10))
        assert (found.n_rounds, found.n_bytes) == (n_ranks // 2, n_ranks // 2)
        assert found.is_rotational


def test_cuts_count_what_must_enter_a_set_of_ranks() -> None:
    """Two triangles with one link between them: three blocks pass it, whatever its direction."""
    pairs = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)]
    widths = {pair: 1 for a, b in pairs for pair in ((a, b), (b, a))}
    graph = link_graph("triangles", widths, 6, None)
    assert least_chunk_times(state_problem("allgather", 6, 2, 0), graph) == 6
    assert least_chunk_times(state_problem("alltoall", 6, 1, 0), graph) == 9
    assert least_chunk_times(state_problem("bcast", 6, 4, 0), graph) == 4
    found = search(SearchProblem(state_problem("alltoall", 6, 1, 0), graph, None, None, 20))
    assert found.n_bytes >= 9


def test_a_reversed_schedule_is_one_on_the_reversed_graph() -> None:
    one_way = {(a, (a + 1) % 4): 1 for a in range(4)}
    graph = link_graph("one way", one_way, 4, None)
    found = search(
        SearchProblem(state_problem("reduce", 4, 1, 2), graph.reversed(), None, None, 10)
    )
    assert {(a, b) for sent in found.rounds for a, b, _ in sent} <= set(one_way)
    assert found.n_rounds == 3
    assert count_bytes(turned_around(found.rounds), graph.reversed()) == found.n_bytes


def test_the_same_search_writes_the_same_file(synthesis: Synthesis) -> None:
    collective, texts = {"kind": "alltoall", "count": 3}, []
    for _ in range(2):
        synthesis.search({"nodes": 2, "ranks_per_node": 2}, collective)
        texts.append(synthesis.path.read_text())
    assert texts[0] == texts[1]
    assert "Chunk 4*a + b is the block of rank a for rank b." in texts[0]


def test_a_schedule_is_a_component_of_decompositions(synthesis: Synthesis) -> None:
    synthesis.search({"ranks_per_node": 4}, {"kind": "allgather", "count": 8})
    document = {
        "machine": {"nodes": 3, "ranks_per_node": 4, "lanes": 2},
        "collective": {"kind": "allgather", "count": 10},
        "decomposition": "full_lane",
        "algorithms": {"node": "searched", "lane": "ring"},
    }
    with registered(synthesis.path):
        plan = compile_plan(parse_spec(document), is_proved=False)
        verify(plan)
        assert any("searched" in str(phase) for phase in plan.phases)


def test_a_schedule_refuses_what_it_is_not_made_for(synthesis: Synthesis) -> None:
    machine = {"nodes": 2, "ranks_per_node": 2}
    synthesis.search(machine, {"kind": "bcast", "count": 8, "root": 1}, "--chunks", 2)
    with registered(synthesis.path):
        synthesis.plan()
        with pytest.raises(AlgorithmError, match="is for root 1, not for root 0; synthesize one"):
            synthesis.plan(root=0)
        synthesis.machine = {"ranks_per_node": 5}
        with pytest.raises(AlgorithmError, match="5 ranks are not the 4 that it was made for; use"):
            synthesis.plan()
        document = {
            "machine": machine,
            "collective": synthesis.collective,
            "algorithms": {"name": "searched", "blocks": 3},
        }
        with pytest.raises(AlgorithmError, match=r"blocks: 3 parts, the schedule has 2"):
            compile_plan(parse_spec(document))
        listed = synthesis.collplan("algorithms", "bcast", "--json").json()
        (own,) = [one for one in listed["algorithms"] if one["name"] == "searched"]
        assert own["needs"] == ["4 ranks"]


def test_operations_that_do_not_commute_are_refused(
    collplan: CommandLine, synthesis: Synthesis
) -> None:
    synthesis.search({"ranks_per_node": 3}, {"kind": "reduce", "count": 4})
    op = {"name": "sum", "commutative": False}
    with registered(synthesis.path), pytest.raises(AlgorithmError, match="not commutative"):
        synthesis.plan(op=op)


def test_people_read_what_is_proved(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 4}, algorithms="auto")
    outcome = collplan("synthesize", spec, "-o", collplan.folder / "short.py")
    assert outcome.status == 0
    assert outcome.out.splitlines()[:3] == [
        "allreduce on 4 ranks on 4 nodes with 1 lane, 1 port",
        "2 rounds, the fewest possible (2 times as many ranks per round know of a rank).",
        "The busiest rank carries 2 chunks and the busiest lane 2 (a chunk is the vector); the "
        "fewest possible in 2 rounds (what must enter or leave ranks).",
    ]


@pytest.mark.parametrize(
    ("changes", "words", "complaint"),
    [
        ({"machine": {"nodes": 17}}, [], "machine: 17 ranks; the search is for 2 to 16, as of"),
        ({"machine": {"nodes": 1}}, [], "machine: 1 ranks; the search is for 2 to 16"),
        ({"collective": {"kind": "scan", "count": 1}}, [], "scan is not searched; use one of"),
        ({}, ["--links", "dgx2"], "'dgx2' is not a known machine; did you mean 'dgx1'? valid"),
        ({}, ["--links", "dgx1"], "has a link of rank 7, the spec's machine has 4 ranks; give"),
        ({}, ["--rounds", 1], "--rounds: 1 rounds are too few, as 2 times as many ranks"),
        ({}, ["--within", "0.5"], "--within: '0.5' is not a factor; give 1 or more, as in 1.02"),
        ({}, ["--within", "half"], "--within: 'half' is not a factor; give 1 or more, as in 1.02"),
        (
            {},
            ["--within", "1", "--rounds", 2, "--chunks", 4],
            "--rounds: no schedule has 2 rounds; give more, or",
        ),
        ({"machine": {"nodes": 16}}, ["--chunks", 256], "ways, more than the 1000000 that are"),
        ({}, ["--compose"], "--compose: 1 chunks are not a multiple of the 4 ranks; give"),
        ({}, ["--compose", "--chunks", 4, "--rounds", 3], "3 rounds are not two halves"),
        ({}, ["--name", "ring"], "--name: ring is an algorithm already; give another name"),
        ({}, ["--name", "a-b"], "--name: 'a-b' is not a name of a Python function; use letters"),
        ({"collective": {"kind": "bcast", "count": 1}}, ["--compose"], "is for allreduce, not"),
        (
            {"collective": {"kind": "alltoall", "count": 1}},
            ["--chunks", 2],
            "--chunks: blocks of alltoall move whole; leave --chunks out",
        ),
        (
            {"collective": {"kind": "allgatherv", "counts": [1, 2, 3, 4]}},
            [],
            "counts that differ per rank, the search takes blocks of one size; use allgather",
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    changes: dict[str, Any], words: list[object], complaint: str, collplan: CommandLine
) -> None:
    spec = collplan.write_spec(algorithms="auto", **changes)
    output = collplan.folder / "out.py"
    error = collplan("synthesize", spec, "-o", output, *words).error()
    assert complaint in error
    assert not output.exists()


def test_an_output_that_is_no_python_file_is_refused(collplan: CommandLine) -> None:
    outcome = collplan("synthesize", collplan.write_spec(), "-o", collplan.folder / "out.txt")
    assert "is not a Python file; give one that ends in .py" in outcome.error()


@pytest.mark.long
def test_a_search_that_ends_without_a_schedule_says_so(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"ranks_per_node": 11}, algorithms="auto")
    words = ["--chunks", 11, "--time-limit", 1, "--within", 1]
    error = collplan("synthesize", spec, "-o", collplan.folder / "out.py", *words).error()
    assert "--time-limit: no schedule was found in 1 s; give more time, fewer --chunks" in error


def test_without_a_solver_the_way_to_get_one_is_named(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import PackageNotFoundError

    from collplan.synthesize import solver

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(solver, "version", missing)
    error = collplan("synthesize", collplan.write_spec(), "-o", collplan.folder / "a.py").error()
    assert error.endswith("run: pip install 'collplan[synthesize]'")


def test_links_are_read_from_yaml_json_and_graphml(tmp_path: Path) -> None:
    expected = {(0, 1): 2, (1, 0): 2, (1, 2): 1}
    (tmp_path / "a.yaml").write_text("both_ways: [[0, 1, 2]]\none_way: [[1, 2]]\n")
    document = {"both_ways": [[0, 1, 2]], "one_way": [[1, 2, 1]]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    graph = nx.DiGraph()
    for (a, b), width in expected.items():
        graph.add_edge(f"gpu{a}", f"gpu{b}", width=width)
    nx.write_graphml(graph, tmp_path / "a.graphml")
    for name in ("a.yaml", "a.json", "a.graphml"):
        assert read_links(str(tmp_path / name)) == expected, name


WIDTH = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="w" for="edge" attr.name="width" attr.type="double"/><graph edgedefault="undirected">
<node id="a"/><node id="b"/><edge source="a" target="b"><data key="w">WIDTH</data></edge></graph>
</graphml>"""


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.yaml", "[1, 2]", "is not a file of links; give lists of [rank, rank] or"),
        ("a.yaml", "both_ways: 3", "both_ways: 3 is not a list of links"),
        ("a.yaml", "both_ways: [[0]]", "[0] is not a link; write [rank, rank] or"),
        ("a.yaml", "both_ways: [[0, 0]]", "[0, 0] is not a link of two ranks; number them"),
        ("a.yaml", "both_ways: [[0, 1, 0]]", "has the width 0; give 1 to 64"),
        ("a.yaml", "both_ways: [[0, 1], [1, 0]]", "the link from 1 to 0 is there twice"),
        ("a.yaml", "both_ways: []", "has no links; give at least one"),
        ("a.yaml", "both_ways: [[0, 1], [2, 3]]", "has no way from rank 0 to rank 2; add"),
        ("a.graphml", "<graphml", "is no GraphML that can be read ("),
        ("a.graphml", WIDTH.replace("WIDTH", "NaN"), "[0, 1, nan] is not a link; write"),
        ("a.graphml", WIDTH.replace("WIDTH", "INF"), "[0, 1, inf] is not a link; write"),
        ("a.graphml", WIDTH.replace("WIDTH", "1.5"), "[0, 1, 1.5] is not a link; write"),
        ("b.yaml", None, "no such file; give the path of a file of links"),
    ],
)
def test_wrong_links_are_refused_in_one_line(
    name: str, text: str | None, complaint: str, collplan: CommandLine
) -> None:
    path = collplan.folder / name
    if text is not None:
        path.write_text(text)
    words = ["-o", collplan.folder / "out.py", "--links", path]
    assert complaint in collplan("synthesize", collplan.write_spec(), *words).error()


def test_chunks_turn_with_ranks() -> None:
    for kind, by in product(("allgather", "alltoall"), range(5)):
        problem = state_problem(kind, 5, 1, 0)
        turned = {problem.turn(chunk, by) for chunk in problem.chunks}
        assert turned == set(problem.chunks)
