"""Folded plans against plans of all ranks: the same programs, prices and counts."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import Timeline, simulate
from collplan.executors.local import run_local
from collplan.planner.algorithms import registry
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.draw.picture import picture
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.formats.goal import write_goal
from collplan.planner.formats.npz import save
from collplan.planner.formats.text import to_text
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import COLUMNS, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.rewrite.fold import fold, require_copy
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import CollplanError, PlanSpec
from looping import naming
from tiers import briefly

MACHINES = [(4, 1, 1), (3, 2, 1), (3, 2, 2), (4, 4, 2), (5, 3, 2)]
"""Nodes, ranks per node, and lanes."""
KINDS = ("allreduce", "allgather", "alltoall", "reduce_scatter_block", "barrier")


def methods(kind: str, nodes: int, per_node: int) -> list[dict[str, Any]]:
    """Return flat plans by all algorithms, and decompositions with all in the lane's role."""
    names = [algorithm.name for algorithm in registry.of(kind)]
    found: list[dict[str, Any]] = [{"algorithms": name} for name in names]
    if kind == "allreduce":
        found.append({"decomposition": "guideline", "algorithms": {"world": "ring"}})
    if kind == "barrier" or per_node == 1:
        return found
    mesh = {"name": "mesh", "shape": [nodes, per_node]}
    for decomposition, role in (("full_lane", "lane"), ("hierarchical", "lane"),
                                ({"name": "multi_leader", "leaders": 2}, "lane"),
                                (mesh, "column")):  # fmt: skip
        found += [{"decomposition": decomposition, "algorithms": {role: name}} for name in names]
    return found


def specs(kind: str, nodes: int, per_node: int, lanes: int) -> list[PlanSpec]:
    machine = {"nodes": nodes, "ranks_per_node": per_node, "lanes": lanes}
    # Integers, which all algorithms combine.
    data = {} if kind == "barrier" else {"count": nodes * per_node, "datatype": "int64"}
    collective = {"kind": kind, **data}
    found = []
    for turn, method in enumerate(methods(kind, nodes, per_node)):
        # Flat plans also in segments, and every other decomposition.
        segments: list[list[Any]] = [[], [{"name": "segment", "max_bytes": 16}]]
        for passes in segments if "decomposition" not in method else segments[turn % 2 :][:1]:
            fields = {"machine": machine, "collective": collective, "passes": passes, **method}
            found.append(PlanSpec.model_validate(fields))
    return found


def programs_of(plan: Plan, node: int) -> Plan:
    """Return the rows of one node's ranks."""
    rows = np.flatnonzero(plan.node == node)
    number = np.full(plan.n_tasks, -1)
    number[rows] = np.arange(len(rows))
    inside = np.isin(plan.deps.owner(), rows)
    indptr = np.concatenate(([0], np.cumsum(np.diff(plan.deps.indptr)[rows])))
    deps = Dependencies(indptr, number[plan.deps.task[inside]], plan.deps.kind[inside])
    assert (deps.task >= 0).all()
    return plan.replace(
        **{name: getattr(plan, name)[rows] for name in (*COLUMNS, "apart")},
        reads=plan.reads.take(rows), writes=plan.writes.take(rows), deps=deps, foreign=None,
    )  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize(("machine", "kind"), list(product(MACHINES, KINDS))[::2], ids=str)
def test_a_folded_plan_is_the_plan_of_every_node(kind: str, machine: tuple[int, int, int]) -> None:
    counts = Counter[str]()
    for spec in specs(kind, *machine):
        try:
            whole = compile_plan(spec, is_proved=False)
            folded = compile_folded(spec)
        except AsymmetricError:
            counts["differs"] += 1
            continue
        except CollplanError:
            counts["refused"] += 1
            continue
        assert folded.folding is not None
        for node in briefly(range(machine[0]), f"nodes {counts['folds']}"):
            require_copy(folded, fold(programs_of(whole, node), folded.folding))
        verify(folded)
        assert_same_price(whole, folded)
        counts["folds"] += 1
    assert counts["folds"] >= 1


def assert_same_price(whole: Plan, folded: Plan) -> None:
    assert measure(folded).to_json() == measure(whole).to_json()
    one, other = simulate(folded), simulate(whole)
    assert one.makespan_ns == other.makespan_ns
    for node in range(folded.n_copies):
        rows = np.flatnonzero(whole.node == node)
        assert ends_of(one, folded.rank) == ends_of(other, whole.rank[rows], rows)
    assert np.array_equal(other.lane_busy_ns, np.tile(one.lane_busy_ns, (folded.n_copies, 1, 1)))


def ends_of(timeline: Timeline, rank: np.ndarray, rows: np.ndarray | None = None) -> list[float]:
    """Return when tasks end, rank by rank."""
    end_ns = timeline.end_ns if rows is None else timeline.end_ns[rows]
    return end_ns[np.argsort(rank, kind="stable")].tolist()


def ring(nodes: int, count: int) -> PlanSpec:
    return PlanSpec.model_validate({
        "machine": {"nodes": nodes}, "collective": {"kind": "allreduce", "count": count},
        "algorithms": "ring",
    })  # fmt: skip


def test_a_ring_of_thousands_takes_what_its_closed_form_says() -> None:
    """LogGP: 2(p - 1)·(2o + L + (c/p - 1)·G), and a reduction after each of the first p - 1."""
    n_ranks, chunk = 4096, 16
    spec = ring(n_ranks, n_ranks * chunk)
    plan = compile_folded(spec)
    assert (plan.n_tasks, plan.n_copies) == (5 * (n_ranks - 1), n_ranks)
    network = spec.machine.network
    link, n_bytes = network.network, chunk * plan.itemsize
    message = 2 * link.o_ns + link.L_ns
    reduction = round(n_bytes * network.reduce_ns_per_byte)
    least = (n_ranks - 1) * (2 * message + reduction)
    assert least < simulate(plan).makespan_ns < 1.5 * least
    small = simulate(compile_folded(ring(64, 64 * chunk))).makespan_ns
    assert simulate(compile_plan(ring(64, 64 * chunk))).makespan_ns == small
    step = (simulate(compile_folded(ring(128, 128 * chunk))).makespan_ns - small) / 64
    assert simulate(plan).makespan_ns == pytest.approx(small + (n_ranks - 64) * step)
    verify(plan)


def test_a_message_that_returns_is_as_far_from_its_sender_as_the_other_node() -> None:
    spec = PlanSpec.model_validate({
        "machine": {"nodes": 4, "ranks_per_node": 2},
        "collective": {"kind": "alltoall", "count": 1}, "algorithms": "linear",
    })  # fmt: skip
    plan = compile_folded(spec)
    assert sorted(set(plan.apart.tolist())) == [0, 1, 2, 3]
    assert (plan.crosses == (plan.apart > 0)).all()
    assert set(plan.peer[plan.peer >= 0].tolist()) == {0, 1}


@pytest.mark.quick
@pytest.mark.parametrize(
    "use", [lambda plan, path: save(plan, path), lambda plan, path: write_goal(plan, path),
            lambda plan, path: restrict(plan, 0), lambda plan, path: run_local(plan, [], [])],
)  # fmt: skip
def test_a_folded_plan_is_refused_where_all_ranks_are_needed(use: Any, tmp_path: Path) -> None:
    with pytest.raises(AlgorithmError, match="without fold"):
        use(compile_folded(ring(4, 16)), tmp_path / "folded.plan")
    assert not list(tmp_path.iterdir())


def test_tasks_of_a_folded_plan_name_ranks_of_other_nodes() -> None:
    text = to_text(compile_folded(ring(4, 16)))
    assert "4 ranks, folded: one of 4 nodes that do the same" in text
    assert "send to 1 tag 0" in text
    assert "recv from 3 tag 0" in text
    assert "folded" in picture(compile_folded(ring(4, 16)))


PROTOCOLS: list[dict[str, Any]] = [
    {"eager_limit_bytes": 0},
    {"eager_limit_bytes": 0, "handshake": True},
    {"turn_bytes": 32},
    {"network": {"L_ns": 0, "o_ns": 100, "g_ns": 0, "G_ns_per_byte": 1}},
]


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS[:4])
def test_a_folded_plan_takes_the_same_time_on_any_network(kind: str) -> None:
    """One of the protocols for every spec, in turns."""
    passes = [{"name": "segment", "max_bytes": 64}, "prioritize", "limit_requests"]
    n_folded = dict.fromkeys(range(len(PROTOCOLS)), 0)
    for number, machine in enumerate([(5, 1, 1), (4, 4, 2), (5, 3, 2)]):
        for turn, spec in enumerate(specs(kind, *machine)[number % 2 :: 2 if number else 1]):
            chosen = spec.replace(passes=passes if turn // 4 % 2 else ())
            try:
                folded, whole = compile_folded(chosen), compile_plan(chosen, is_proved=False)
            except CollplanError:
                continue
            which = (turn + number) % len(PROTOCOLS)
            network = spec.machine.network.replace(**PROTOCOLS[which])
            one, other = simulate(folded, network), simulate(whole, network)
            with naming(chosen, PROTOCOLS[which]):
                assert one.makespan_ns == other.makespan_ns
                assert np.array_equal(
                    other.lane_busy_ns, np.tile(one.lane_busy_ns, (folded.n_copies, 1, 1))
                )
            n_folded[which] += 1
    assert min(n_folded.values()) >= 2


@pytest.mark.quick
@pytest.mark.parametrize("per_node", [1, 3])
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reduce_scatter_block"])
def test_passes_that_order_tasks_take_folded_plans(kind: str, per_node: int) -> None:
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 5, "ranks_per_node": per_node},
            "collective": {"kind": kind, "count": 60 * per_node},
            "algorithms": "ring",
            "passes": [
                {"name": "segment", "max_bytes": 64},
                "prioritize",
                {"name": "limit_requests", "remote": 1},
            ],
        }
    )
    folded, whole = compile_folded(spec), compile_plan(spec)
    verify(folded)
    assert simulate(folded).makespan_ns == simulate(whole).makespan_ns
    assert folded.n_tasks * folded.n_copies == whole.n_tasks
    # The same limits: as many edges that a pass states, each from an earlier task.
    assert (folded.deps.kind > 0).sum() * folded.n_copies == (whole.deps.kind > 0).sum()
    after, before = folded.deps.owner(), folded.deps.task
    stated = folded.deps.kind > 0
    assert (folded.priority[before] < folded.priority[after])[stated].all()
