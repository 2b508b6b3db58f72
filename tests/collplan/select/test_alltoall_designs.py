"""OHIO's designs and those it is compared with: right, and as frugal as its tables say."""

from __future__ import annotations

import random
import re
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import yaml

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.ranks import compile_node
from collplan.planner.decompose import draft
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import count_node, measure
from collplan.planner.plan.plan import Op
from collplan.planner.verify import verify
from collplan.select.alltoall_designs import DESIGNS, find_design, node_counts
from collplan.select.estimate import estimate
from collplan.specs import PlanSpec
from collplan.specs.loading import parse_spec
from command_line import CommandLine
from folders import ROOT
from oracle import check_result
from staged_alltoalls import DECOMPOSITIONS, MACHINES
from staged_alltoalls import alltoall as staged

SIZES = [(4, 4, 3), (3, 5, 1), (5, 2, 7), (6, 3, 2), (8, 4, 1), (2, 7, 4), (4, 1, 2), (1, 4, 2)]
"""Nodes, ranks per node and elements per block, of four bytes; powers of two and not."""


def alltoall(machine, count=3, **fields):
    collective = {"kind": "alltoall", "count": count, "datatype": "int32"} | fields
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.many
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_design_is_right_on_every_machine(machine, design):
    for count, in_place in ((3, False), (2, True), (0, False)):
        spec = DESIGNS[design].of(alltoall(MACHINES[machine], count, in_place=in_place))
        plan = compile_plan(spec, is_proved=False)
        verify(plan)
        check_result(plan, order=random.Random(count), seed=count)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size[:2])))
def test_plans_need_what_the_tables_say(size, design):
    nodes, ranks, count = size
    spec = alltoall({"nodes": nodes, "ranks_per_node": ranks}, count)
    found, paper = (
        measure(compile_plan(DESIGNS[design].of(spec))),
        node_counts(design, nodes, ranks, 4 * count),
    )
    if paper is None:
        assert design in ("full_lane", "node_aware")
        return
    counts = (found.queue_pairs_per_node, found.posted_sends_per_node)
    if paper.is_estimate:
        assert max(counts) <= ceil(paper.queue_pairs)
        assert paper.posted_sends == paper.queue_pairs
    else:
        assert counts == (paper.queue_pairs, paper.posted_sends)
    if paper.memory_bytes is not None:
        assert found.scratch_bytes_per_node <= paper.memory_bytes


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [3, 4, 6])
def test_memory_is_what_the_designs_describe(nodes):
    """A send buffer, and a block for every peer or, in V3, two: none for a node's own."""
    ranks, block_bytes = 3, 4 * 5
    spec = alltoall({"nodes": nodes, "ranks_per_node": ranks}, 5)
    sent, block = block_bytes * nodes * ranks**2, block_bytes * ranks**2
    for design, n_blocks in (("ohio_v1", nodes - 1), ("ohio_v2", nodes - 1), ("ohio_v3", 2)):
        found = measure(compile_plan(DESIGNS[design].of(spec)))
        assert found.scratch_bytes_per_node == sent + n_blocks * block
        assert found.scratch_bytes_per_rank == 0
    assert node_counts("ohio_v3", nodes, ranks, block_bytes).memory_bytes == sent + 2 * block


@pytest.mark.long
def test_bruck_counts_less_than_its_estimate():
    """Exactly 11 for 16 at 4 x 4, 287 for 549 at 16 x 56."""
    for (nodes, ranks), exact, upper in (((4, 4), 11, 16), ((16, 56), 287, 549)):
        spec = DESIGNS["bruck"].of(alltoall({"nodes": nodes, "ranks_per_node": ranks}, 1))
        assert measure(compile_plan(spec)).queue_pairs_per_node == exact
        assert int(node_counts("bruck", nodes, ranks, 4).queue_pairs) == upper


@pytest.mark.quick
@pytest.mark.parametrize("leaders", [1, 2, 3, 4])
def test_leaders_that_share_peers_keep_one_connection_a_peer(leaders):
    """With m leaders that share destinations there are m; shared peers need one each."""
    machine = {"nodes": 5, "ranks_per_node": 4}
    for form, n in (("node_aware", 1), ("staged", leaders)):
        chosen = {"name": "multi_leader", "leaders": leaders, "form": form}
        spec = DESIGNS["ohio_v2"].of(alltoall(machine)).replace(decomposition=chosen)
        found = measure(compile_plan(spec))
        assert found.queue_pairs_per_node == found.posted_sends_per_node == 4 * n
        plan = compile_plan(spec)
        talking = {int(rank) for rank, op in zip(plan.rank, plan.op, strict=True) if op == 0}
        assert len(talking) == 5 * min(leaders, 4)


def test_one_program_of_7168_ranks_needs_no_table_of_all_pairs():
    """The leader of node 1 and the rank after it, compiled alone."""
    spec = DESIGNS["ohio_v3"].of(alltoall({"preset": "ohio-a", "nodes": 128}, 1))
    leader, other = (compile_plan(spec, rank=rank) for rank in (56, 57))
    assert [(leader.op == op).sum() for op in (Op.SEND, Op.RECV, Op.COPY)] == [127, 127, 129]
    assert [(other.op == op).sum() for op in (Op.SEND, Op.RECV, Op.COPY)] == [0, 0, 129]
    assert leader.shared_sizes[1] == 56 * 56 * (128 + 2)
    # A receive waits for all 56 ranks of its node to have copied the block two before.
    waits = np.diff(leader.foreign.indptr)[leader.op == Op.RECV]
    assert waits.tolist() == [0, 0] + [55] * 125


@pytest.mark.quick
@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("machine", ["3,1,2", "4x3", "one node", "cyclic"])
def test_messages_are_known_beforehand(machine, decomposition):
    spec = staged(machine, decomposition=DECOMPOSITIONS[decomposition])
    exchange = draft(spec).exchange
    assert exchange.n_messages == (compile_plan(spec).op == Op.SEND).sum()
    least = estimate(spec, max_tasks=max(0, 2 * exchange.n_messages - 1))[0]
    assert least.n_tasks == 2 * exchange.n_messages or not exchange.n_messages


def test_coalesced_messages_are_estimated_as_one():
    for design in ("ohio_v2", "ohio_v3", "khorassani", "node_aware"):
        spec = DESIGNS[design].of(alltoall({"nodes": 4, "ranks_per_node": 4, "lanes": 2}, 3))
        plan, found = compile_plan(spec), estimate(spec)[0]
        assert found.n_tasks == plan.n_tasks
        assert 0 < found.bound_s <= simulate(plan, spec.machine.network).makespan_s


@pytest.mark.parametrize("block_bytes", [64, 512])
def test_the_papers_order_on_its_cluster(block_bytes):
    """Simulated on 4 x 56 ranks: V3 before Chochia's, Träff's and Bruck's, V1 behind V2.

    But where the wire takes most of the time, V1 is as fast: its first message
    waits for one rank only.
    """
    spec = alltoall({"preset": "ohio-a", "nodes": 4}, block_bytes, datatype="uint8")
    names = ("ohio_v1", "ohio_v2", "ohio_v3", "chochia", "traeff_rougier", "bruck")
    time_s = {}
    for name in names:
        chosen = DESIGNS[name].of(spec)
        time_s[name] = simulate(compile_plan(chosen), chosen.machine.network).makespan_s
    for other in ("chochia", "traeff_rougier", "bruck"):
        assert time_s["ohio_v3"] < 0.97 * time_s[other]
    assert time_s["ohio_v2"] < (0.8 if block_bytes < 512 else 1.05) * time_s["ohio_v1"]
    assert time_s["ohio_v3"] < 1.05 * time_s["ohio_v2"]


def test_other_collectives_and_names_are_refused():
    spec = PlanSpec.model_validate({"collective": {"kind": "bcast", "count": 3}})
    with pytest.raises(
        AlgorithmError, match=r"kind: ohio_v3 is a design of alltoall, not of bcast"
    ):
        find_design("ohio_v3").of(spec)
    with pytest.raises(AlgorithmError, match="no 'ohio_v4'; use one of bruck, "):
        find_design("ohio_v4")


ALLTOALL = {"kind": "alltoall", "count": 64, "datatype": "int32"}


def write_spec(collplan, ranks_per_node=4):
    machine = {"nodes": 3, "ranks_per_node": ranks_per_node}
    return collplan.write_spec(machine=machine, collective=ALLTOALL, algorithms="auto")


def test_compare_prints_both(collplan):
    rows = collplan("compare", write_spec(collplan), "--metrics", "--json").json()["metrics"]
    assert [row["design"] for row in rows] == list(DESIGNS)
    for row in rows:
        if row["paper"] and not row["paper"]["is_estimate"]:
            for key in ("queue_pairs_per_node", "posted_sends_per_node"):
                assert row[key] == row["paper"][key]
    last = rows[-1]
    assert last["scratch_bytes_per_node"] == last["paper"]["scratch_bytes_per_node"] == 256 * 5 * 16


def test_patterns_choose_designs(collplan):
    words = ("compare", write_spec(collplan), "--metrics", "--candidates", "ohio*,bruck", "--json")
    names = [row["design"] for row in collplan(*words).json()["metrics"]]
    assert names == [name for name in DESIGNS if name == "bruck" or name.startswith("ohio")]


def test_compare_predicts_what_adapters_read(collplan):
    """Six queue pairs fit: a flat exchange of 3 x 3 ranks uses 18 a node, each once."""
    nic = {"connections": 6, "miss_ns": 500, "warm": True}
    machine = {"nodes": 3, "ranks_per_node": 3, "network": {"nic": nic}}
    path = collplan.write_spec(machine=machine, collective=ALLTOALL, algorithms="auto")
    rows = collplan("compare", path, "--metrics", "--json").json()["metrics"]
    reads = {row["design"]: row["pcie_reads"] for row in rows}
    assert reads["pairwise"] == 18
    assert reads["ohio_v3"] == reads["traeff_rougier"] == reads["khorassani"] == 0
    assert "PCIe reads" in collplan("compare", path, "--metrics").out
    rows = collplan("compare", path, "--metrics", "--json", "--max-tasks", 60).json()["metrics"]
    least = {row["design"]: (row["pcie_reads"], row["are_reads_least"]) for row in rows}
    assert least["pairwise"] == (18 - 6, True)
    assert least["ohio_v3"] == (0, False)
    text = collplan("compare", path, "--metrics", "--max-tasks", 60).out
    assert "≥ 12" in text
    assert "≥: not simulated" in text


def test_compare_says_what_it_leaves_out(collplan):
    path = write_spec(collplan, [4, 2, 3])
    text = collplan("compare", path, "--metrics", "--max-tasks", 100, "--sizes", "8,64").out
    assert "blocks of 8 B" in text
    assert "blocks of 64 B" in text
    assert "too large: scatter_destination, pairwise" in text
    assert "nodes differ: formulas are of the fullest" in text


def test_compare_counts_in_one_nodes_program_what_is_too_large(collplan):
    path = write_spec(collplan)
    whole, one = (
        collplan("compare", path, "--metrics", "--json", "--max-tasks", most).json()["metrics"]
        for most in (10_000, 50)
    )
    alone = [row["design"] for row in one if row["is_one_node"]]
    assert {"chochia", "ohio_v1", "khorassani"} <= set(alone)
    for row, other in zip(whole, one, strict=True):
        if row["design"] in alone:
            assert {**row, "n_tasks": 0, "is_one_node": True} == {**other, "n_tasks": 0}
    text = collplan("compare", path, "--metrics", "--max-tasks", 50).out
    assert f"counted in one node's program, as all nodes are alike: {', '.join(alone)}" in text


@pytest.mark.quick
@pytest.mark.parametrize("design", ["traeff_rougier", "chochia", "ohio_v3"])
def test_one_nodes_program_is_its_part_of_the_plan(design):
    spec = DESIGNS[design].of(alltoall({"nodes": 3, "ranks_per_node": [3, 1, 2]}))
    plan = compile_plan(spec)
    for node in range(3):
        own = compile_node(spec, node)
        assert own.n_tasks == (plan.rank_node[plan.rank] == node).sum()
        assert count_node(own, node) == count_node(plan, node)
        assert set(plan.rank_node[own.rank]) == {node}
    with pytest.raises(AlgorithmError, match=r"no rank is on node 3; use \[0, 1, 2\]"):
        compile_node(spec, 3)
    with pytest.raises(AlgorithmError, match=r"passes\.prioritize: it needs all ranks"):
        compile_node(spec.replace(passes=["prioritize"]), 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--candidates", "ohio_v4"], "no design is called ohio_v4; use bruck, "),
        (["--plot", "designs.svg"], "there are no times to plot; leave --plot out"),
    ],
)
def test_compare_refuses(collplan, arguments, reason):
    assert reason in collplan("compare", write_spec(collplan), "--metrics", *arguments).error()


def test_the_page_has_every_designs_spec():
    """Under its name, and it is what the design is."""
    page = (ROOT / "docs" / "alltoall.md").read_text()
    section = page.partition("## Specs of all designs")[2]
    common = re.findall(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    found = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", section, re.MULTILINE))
    assert list(found) == list(DESIGNS)
    for name, text in found.items():
        spec = parse_spec(yaml.safe_load(common) | yaml.safe_load(f"{{{text}}}"))
        assert DESIGNS[name].of(spec) == spec
