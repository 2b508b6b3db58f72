"""Memory shared inside nodes: proved, run in any order, restricted; and what is refused."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from brute_force import find_faults
from collplan.executors.cost import cost_report, simulate
from collplan.executors.cost.critical_path import legs
from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.draw import draw
from collplan.planner.errors import (
    AlgorithmError,
    MissingContributionError,
    PlanFormatError,
    RaceError,
)
from collplan.planner.formats.goal import write_goal
from collplan.planner.formats.npz import load, save
from collplan.planner.formats.text import to_text
from collplan.planner.metrics import measure
from collplan.planner.passes.shared_memory import rewrite
from collplan.planner.passes.shared_memory.share import share
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import COLUMNS, Buffer, Op
from collplan.planner.plan.ragged import INTENT, Dependencies
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.planner.verify.order import Execution
from collplan.planner.verify.restarts import check_restarts, gated_tasks
from collplan.specs import Machine, Network
from collplan.specs.errors import CollplanError, SpecError
from collplan.specs.loading import parse_spec
from handmade import PlanBook
from judging import judge
from looping import looped, naming
from mutations import CORRUPTIONS, corrupt
from oracle import REGULAR, check_result, make_spec
from rank_programs import assert_equal
from tiers import briefly

MACHINES = {
    "one node": {"ranks_per_node": 4},
    "2x3": {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
    "3x4": {"nodes": 3, "ranks_per_node": 4, "lanes": 2},
    "1,3,2": {"nodes": 3, "ranks_per_node": [1, 3, 2]},
    "any order": {"nodes": 2, "ranks_per_node": [3, 2], "rank_order": [0, 1, 0, 0, 1]},
}
ROOTED = ("bcast", "reduce", "gather", "scatter")
KINDS = [kind for kind in REGULAR if kind != "barrier"]


def shared(kind, algorithm, machine, transport="shared", **fields):
    where = MACHINES[machine] if isinstance(machine, str) else machine
    spec = make_spec(kind, algorithm, 0, where, **fields)
    return spec.replace(transport=transport)


def calls(kind, machine):
    """Yield roots, counts and in place or not."""
    last = Machine.model_validate(MACHINES[machine]).n_ranks - 1
    for root in (0, last) if kind in ROOTED else (0,):
        for count, in_place in ((0, False), (1, True), (1, False), (7, False), (7, True)):
            yield {"root": root, "count": count, "in_place": in_place}


def check(spec, seed=0):
    """The plan is proved, right in any order, without messages inside nodes, and restricts."""
    plan = compile_plan(spec, is_proved=False)
    verify(plan)
    peer = np.where(plan.op <= Op.RECV, plan.peer, -1)
    assert not (plan.rank_node[peer] == plan.rank_node[plan.rank])[peer >= 0].any()
    if spec.collective.kind != "barrier":
        check_result(plan, order=random.Random(seed), seed=seed)
    rank = seed % plan.n_ranks
    assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))
    return plan


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
@pytest.mark.parametrize("machine", ["one node", "1,3,2"])
def test_flat(kind, machine):
    """Three of the calls of each algorithm, in turns."""
    n_ranks = Machine.model_validate(MACHINES[machine]).n_ranks
    every = list(calls(kind, machine))
    algorithms = enumerate(registry.legal(kind, n_ranks, commutative=True))
    for number, algorithm in briefly(algorithms, f"shared {kind} {machine}"):
        for i in range(3 if kind != "barrier" else 1):
            seed = (3 * number + i) % len(every)
            with naming(algorithm.name, every[seed]):
                check(shared(kind, algorithm.name, machine, **every[seed]), seed)


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
def test_decomposed(kind):
    """Four of the calls for each machine and decomposition, in turns."""
    turn = 0
    for machine, decomposition in product(
        ("2x3", "3x4", "any order"), ("hierarchical", "full_lane")
    ):
        if machine == "any order" and kind in ("scan", "exscan"):
            continue
        every = list(calls(kind, machine))
        for _ in range(4):
            seed, turn = turn % len(every), turn + 1
            with naming(machine, decomposition, every[seed]):
                check(
                    shared(kind, "auto", machine, decomposition=decomposition, **every[seed]), seed
                )


def assert_same_tasks(one: Plan, other: Plan) -> None:
    """All columns, accesses and dependencies are equal."""
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("reads", "writes", "deps"):
        for field in fields(getattr(one, name)):
            mine, theirs = (getattr(getattr(plan, name), field.name) for plan in (one, other))
            assert np.array_equal(mine, theirs), f"{name}.{field.name}"
    for name in ("patterns", "buffer_sizes", "shared_sizes", "mirrors"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_ranks_alone_on_their_nodes_have_no_memory_to_share():
    """Their plan is that of messages, with all that its tasks wait for."""
    machine = {"nodes": 4}
    plans = [
        compile_plan(shared("allreduce", "ring", machine, transport, count=9))
        for transport in ("messages", "shared")
    ]
    assert (plans[0].deps.kind == 0).any()
    assert_same_tasks(*plans)
    verify(plans[1])


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_rewritten_alike_together_and_apart(kind, monkeypatch):
    specs = [
        shared(kind, "auto", machine, decomposition=decomposition, count=7)
        for machine in ("1,3,2", "3x4")
        for decomposition in ("hierarchical", "full_lane")
    ]
    together = [compile_plan(spec) for spec in specs]
    monkeypatch.setattr(rewrite, "ROWS_AT_ONCE", 1)
    calls, rewrite_some = [], rewrite._rewrite
    monkeypatch.setattr(rewrite, "_rewrite", lambda *a: calls.append(a) or rewrite_some(*a))
    for spec, plan in zip(specs, together, strict=True):
        assert_same_tasks(plan, compile_plan(spec))
    assert len(calls) > len(specs)


SEGMENT = {"name": "segment", "max_bytes": 16}


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@looped(
    "transport, passes",
    [("shared", [SEGMENT]), ("messages", [SEGMENT, {"name": "share"}]),
     ("shared", [SEGMENT, {"name": "prioritize"}, {"name": "limit_requests", "remote": 1}])],
)  # fmt: skip
def test_with_other_passes(kind, transport, passes):
    spec = shared(kind, "auto", "2x3", transport, decomposition="full_lane", count=13, root=4,
                  passes=passes)  # fmt: skip
    assert check(spec, 4).n_tasks > compile_plan(spec.replace(passes=[])).n_tasks / 2


def test_readers_start_before_all_is_published():
    plan = compile_plan(shared("bcast", "linear", "one node", count=8, passes=[SEGMENT]))
    staged = [task for task in plan.tasks() if task.writes[0].buffer is Buffer.SHARED]
    readers = [task for task in plan.tasks() if task.reads[0].buffer is Buffer.SHARED]
    assert (len(staged), len(readers)) == (4, 12)
    assert sorted(task.after for task in readers) == sorted((task.row,) for task in staged) * 3 or (
        {task.after for task in readers} == {(task.row,) for task in staged}
    )


def copied(plan: Plan, *ops: Op) -> list[int]:
    """Return the elements each rank moves in tasks of the given kinds."""
    rows = np.isin(plan.op, ops)
    return np.bincount(plan.rank[rows], plan.elements[rows], plan.n_ranks).astype(int).tolist()


def test_everything_is_staged_once_and_read_in_place():
    """Copies of linear forms: published once, read where needed, operands in place."""
    p, c = 4, 8
    of = {
        kind: compile_plan(shared(kind, "linear", "one node", count=c))
        for kind in ("bcast", "allgather", "alltoall", "gather", "scatter")
    }
    assert copied(of["bcast"], Op.COPY) == [c] * p
    assert copied(of["allgather"], Op.COPY) == [c * (1 + p)] * p
    assert copied(of["alltoall"], Op.COPY) == [c * (2 * (p - 1) + 1)] * p
    assert copied(of["gather"], Op.COPY) == [c * p, c, c, c]
    assert copied(of["scatter"], Op.COPY) == [c * p, c, c, c]
    scattered = compile_plan(shared("reduce_scatter_block", "linear", "one node", count=c))
    assert copied(scattered, Op.COPY) == [c * (p - 1)] * p
    assert copied(scattered, Op.REDUCE) == [c * (p - 1)] * p
    allreduce = compile_plan(shared("allreduce", "linear", "one node", count=p * c))
    assert copied(allreduce, Op.REDUCE) == [c * (p - 1)] * p
    assert copied(allreduce, Op.COPY) == [c * (p - 1) + c + c * (p - 1)] * p


@pytest.mark.parametrize(("kind", "algorithm"), [("bcast", "binomial"), ("gather", "binomial")])
def test_forwarded_data_are_read_where_they_came_from(kind, algorithm):
    c = 4
    plan = compile_plan(shared(kind, algorithm, {"ranks_per_node": 8}, count=c))
    moved = [c] * 8 if kind == "bcast" else [8 * c, *[c] * 7]
    assert copied(plan, Op.COPY) == moved


def test_sends_between_nodes_read_shared_memory():
    """A leader's gathered data goes out from where its node's ranks have staged it."""
    plan = compile_plan(
        shared("gather", "auto", "2x3", decomposition="hierarchical", count=4, root=0)
    )
    out = [task for task in plan.tasks() if task.op is Op.SEND]
    assert {extent.buffer for task in out for extent in task.reads} >= {Buffer.SHARED}


@pytest.mark.quick
@pytest.mark.parametrize("kind", registry.kinds())
def test_no_plan_beats_its_bounds(kind):
    for machine, decomposition in (("one node", "flat"), ("1,3,2", "flat"), ("2x3", "full_lane")):
        if kind == "barrier":
            decomposition = "flat"
        plan = compile_plan(shared(kind, "auto", machine, decomposition=decomposition, count=12))
        metrics = measure(plan).to_json()
        for name, bound in metrics["bounds"].items():
            assert name in ("argument", "time_s") or metrics[name] >= bound, name
        assert (metrics["bounds"]["n_rounds"] > 0) == (machine != "one node")


def test_mirrors_say_where_a_callers_buffer_could_lie():
    plan = compile_plan(shared("allgather", "linear", "one node", count=5, datatype="int32"))
    assert (plan.mirrors[:, 1] == -1).all()
    for task in plan.tasks():
        if task.writes[0].buffer is Buffer.SHARED:
            assert task.writes[0].offset == plan.mirrors[task.rank, 0] + task.reads[0].offset
    assert (plan.mirrors[:, 0] * 4 % 64 == 0).all()
    in_place = compile_plan(shared("allreduce", "recursive_doubling", "one node", count=5,
                                   in_place=True))  # fmt: skip
    assert (in_place.mirrors == -1).all(), "these are overwritten after they have been staged"


def test_mirrors_hold_their_buffers_and_nothing_else():
    plan = compile_plan(shared("allgather", "linear", "one node", count=4))
    row = int(np.flatnonzero(plan.writes.buffer == Buffer.SHARED)[1])
    elsewhere = plan.mirrors.copy()
    elsewhere[1, 0] += 1
    with pytest.raises(RaceError, match=rf"#{row} rank 1: .* writes to the mirror of a buffer of"):
        verify(plan.replace(mirrors=elsewhere))
    elsewhere[1, 0] = elsewhere[0, 0] + 2
    with pytest.raises(RaceError, match="mirrors of ranks 0 and 1 overlap in shared memory"):
        verify(plan.replace(mirrors=elsewhere))
    # Recursive doubling stages what it overwrites, in slots: a mirror cannot say that.
    plan = compile_plan(shared("allreduce", "recursive_doubling", "one node", count=5))
    staged = next(task for task in plan.tasks() if task.reads[0].buffer is Buffer.RECV)
    mirrors = plan.mirrors.copy()
    mirrors[staged.rank, 1] = staged.writes[0].offset
    with pytest.raises(RaceError, match="overwrites what its rank has staged in a mirror"):
        verify(plan.replace(mirrors=mirrors))


def test_only_the_named_roles_share():
    spec = shared("allreduce", "auto", "2x3", {"node": "shared"}, decomposition="full_lane",
                  count=12)  # fmt: skip
    plan = check(spec)
    flat = shared("allreduce", "ring", "2x3", {"node": "shared"}, count=12)
    for bad, line in (
        (flat, r"transport\.node: this plan has no such role; it has none: write transport: shar"),
        (spec.replace(transport={"row": "shared"}), r"transport\.row: .* its roles are node, lane"),
    ):
        for rank in (None, 3):
            with pytest.raises(AlgorithmError, match=line):
                compile_plan(bad, rank=rank)
    messages = compile_plan(spec.replace(transport={"node": "messages"}))
    assert (messages.op == Op.SEND).sum() > (plan.op == Op.SEND).sum()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("windows", "transport: 'windows' is not a transport; use messages or shared"),
        ({"node": "fast"}, "transport: 'fast' is not a transport; use messages or shared"),
        ({"Node 1": "shared"}, "transport: 'Node 1' is not a role; use node, lane, or as node.row"),
    ],
)
def test_refused_specs(value, line):
    with pytest.raises(SpecError) as caught:
        parse_spec({"collective": {"kind": "barrier"}, "transport": value})
    assert str(caught.value) == line


def test_refused_plans():
    limits = {"name": "limit_requests", "remote": 1, "local": 1, "receives": 1}
    spec = make_spec("allreduce", "circulant", 0, MACHINES["2x3"], count=7,
                     passes=["prioritize", limits, "share"])  # fmt: skip
    with pytest.raises(AlgorithmError, match=r"passes\.share: .* put it before limit_requests"):
        compile_plan(spec)
    twice = [{"name": "share", "roles": [role]} for role in ("node.row", "node.column")]
    mesh = {"name": "full_lane", "node": {"name": "mesh", "shape": [2, 2]}}
    spec = make_spec("allreduce", "auto", 0, MACHINES["3x4"], count=24, decomposition=mesh,
                     passes=twice)  # fmt: skip
    with pytest.raises(AlgorithmError, match=r"passes\.share: the plan shares memory already"):
        compile_plan(spec)
    alone = compile_plan(spec.replace(passes=[]), rank=1)
    with pytest.raises(AlgorithmError, match=r"passes\.share: it needs all ranks of a node"):
        share(alone)
    apart = compile_plan(make_spec("bcast", "linear", 0, {"nodes": 3}, count=4))
    assert share(apart) is apart


def without_edge(plan: Plan, index: int) -> Plan:
    """Return a plan without one of its dependencies."""
    kept = np.arange(len(plan.deps)) != index
    row = int(np.searchsorted(plan.deps.indptr, index, side="right")) - 1
    indptr = np.array(plan.deps.indptr)
    indptr[row + 1 :] -= 1
    return plan.replace(deps=Dependencies(indptr, plan.deps.task[kept], plan.deps.kind[kept]))


def test_a_missing_dependency_between_ranks_is_a_race():
    """Each of them is needed: no other chain leads from one rank to another."""
    plan = compile_plan(shared("allreduce", "linear", "one node", count=8))
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    crossing = np.flatnonzero(plan.rank[after] != plan.rank[plan.deps.task])
    assert len(crossing) >= 24
    for index in crossing.tolist():
        broken = without_edge(plan, index)
        with pytest.raises(RaceError, match="nothing orders #"):
            verify(broken)
        assert "race" in find_faults(broken)


def test_without_its_gate_a_slot_is_written_too_early_in_the_next_start():
    plan = compile_plan(shared("bcast", "linear", "one node", count=8))
    execution = Execution.of(plan)
    gated = gated_tasks(plan)
    check_restarts(plan, execution, gated)
    for row in np.flatnonzero(gated):
        open_gate = gated.copy()
        open_gate[row] = False
        with pytest.raises(RaceError, match=rf"in one start and #{row} rank 0: .* in the next"):
            check_restarts(plan, execution, open_gate)


def shared_book(*tasks):
    """Return a plan on one node whose tasks are (rank, reads, writes, after)."""
    book = PlanBook([0, 0])
    for rank, reads, writes, after in tasks:
        op = Op.COPY if reads and writes else Op.COMPUTE
        book.add(op, rank, reads, writes, after)
    return book.plan().replace(shared_sizes=np.array([8]))


def test_what_is_read_before_it_is_written_may_be_of_the_start_before():
    slot, own = [(Buffer.SHARED, 0, 2)], [(Buffer.RECV, 0, 2)]
    early = shared_book((0, slot, own, []), (1, own, slot, [0]))
    with pytest.raises(
        RaceError, match=r"#1 rank 1: .* in one start and #0 rank 0: .* in the next"
    ):
        verify(early)
    assert find_faults(early) == {"race": {frozenset({0, 1})}}
    # After a task of the writer's rank the start before has been left behind.
    late = shared_book((1, [], [], []), (0, slot, own, [0]), (1, own, slot, [1]))
    verify(late)
    assert find_faults(late) == {}


def test_a_signal_is_waited_for_in_shared_memory():
    """Executors that have none can see so from any rank's program."""
    plan = compile_plan(shared("barrier", "dissemination", "one node"))
    assert not plan.shared_sizes.any()
    for rank in range(4):
        own = restrict(plan, rank)
        assert (len(own.foreign), len(own.foreign.awaited)) == (2, 2)
        assert own.reads.buffer.tolist() == [Buffer.SHARED] * 2
    crossing = without_edge(plan, int(np.argmax(plan.deps.kind == INTENT)))
    with pytest.raises(MissingContributionError, match="may leave the barrier before"):
        verify(crossing)


def test_format():
    plan = compile_plan(shared("bcast", "linear", "one node", count=8))
    own = restrict(plan, 2)
    with pytest.raises(PlanFormatError, match=r"shared\[0:8\] of rank 1, .* has 4 elements"):
        verify(plan.replace(shared_sizes=np.array([4]), mirrors=None))
    with pytest.raises(PlanFormatError, match=r"mirrors\[0\] ends at 9, the shared buffer of node"):
        verify(plan.replace(mirrors=np.where(plan.mirrors < 0, -1, 1)))
    with pytest.raises(PlanFormatError, match="foreign waits are for one rank's program"):
        check_format(own.replace(only_rank=None))
    for name, value, problem in (
        ("rank", 2, r"foreign\.rank\[0\] is 2, must be another rank of node 0, where rank 2 is"),
        ("rank", 9, r"foreign\.rank\[0\] is 9, must be 0 to 3"),
        ("task", -1, r"foreign\.task\[0\] is -1, must be at least 0"),
        ("awaited", 5, r"foreign\.awaited\[0\] is 5, must be 0 to 0"),
    ):
        with pytest.raises(PlanFormatError, match=problem):
            check_format(own.replace(foreign=replace(own.foreign, **{name: np.array([value])})))


def test_files_keep_what_programs_wait_for(tmp_path):
    plan = compile_plan(shared("allreduce", "linear", "one node", count=8))
    for original in (plan, restrict(plan, 1)):
        save(original, tmp_path / "x.plan")
        again = load(tmp_path / "x.plan")
        assert np.array_equal(again.mirrors, original.mirrors)
        if original.only_rank is not None:
            assert_equal(again, original)
            assert len(again.foreign) > 0
            assert len(again.foreign.awaited) > 0


def random_shared(rng: random.Random) -> Plan:
    """Return a small plan that shares memory; what mirrors promise is checked apart."""
    while True:
        kind = rng.choice(registry.kinds())
        n_ranks = rng.choice((2, 3, 4))
        algorithm = rng.choice(registry.legal(kind, n_ranks, commutative=True))
        machine = {"nodes": 2, "ranks_per_node": [2, 1]} if n_ranks == 3 else None
        spec = make_spec(
            kind, algorithm.name, n_ranks, machine, root=rng.randrange(n_ranks),
            count=rng.choice((1, 2, 5)), in_place=rng.random() < 0.4, datatype="uint64",
            passes=[SEGMENT] if rng.random() < 0.2 else [],
        ).replace(transport="shared")  # fmt: skip
        plan = compile_plan(spec)
        if plan.n_tasks <= 60:
            return plan.replace(mirrors=None)


@pytest.mark.many
@pytest.mark.parametrize("seed", range(4))
def test_verify_and_brute_force_agree_on_corrupted_plans(seed):
    rng = random.Random(f"shared {seed}")
    plans = [random_shared(rng) for _ in range(12)]
    verdicts = set()
    for name in [*CORRUPTIONS, *["drop_dependency", "redirect_read", "move_read"] * 5]:
        for plan in rng.sample(plans, 3):
            broken = corrupt(plan, name, rng)
            if broken is not None:
                verdicts.add(judge(broken))
    assert {"race", "harmless"} <= verdicts


def test_a_flag_takes_the_latency_of_the_link_to_be_seen():
    """Rank 0 stages 800 bytes; 1 is in its NUMA domain, 2 and 3 in the other one."""
    machine = {"ranks_per_node": 4, "numa_domains": 2}
    plan = compile_plan(shared("bcast", "linear", machine, count=100))
    default = Network()
    network = default.replace(
        numa=default.numa.replace(L_ns=70), node=default.node.replace(L_ns=300),
        copy_ns_per_byte=0.5,
    )  # fmt: skip
    for turn_bytes in (None, 64):
        timeline = simulate(plan, network.replace(turn_bytes=turn_bytes))
        assert timeline.start_ns.tolist() == [0, 470, 700, 700]
        assert timeline.makespan_ns == 1100
    (staging, reading) = legs(timeline, network)
    assert staging.parts == (("copy", 400), ("latency", 300))
    assert (reading.waited_for, reading.parts) == ("dependency", (("copy", 400),))
    cost_report(plan, timeline)


def test_shared_plans_are_shown_drawn_and_refused_by_goal(tmp_path):
    plan = compile_plan(shared("allreduce", "auto", "2x3", decomposition="full_lane", count=24))
    for view in ("task", "phase", "rank", "node"):
        assert draw(plan, tmp_path / f"{view}.dot", by=view).stat().st_size > 100
    lines = to_text(plan).splitlines()
    assert f"node 0: ranks 0 1 2, shared[{plan.shared_sizes[0]}]" in lines
    with pytest.raises(CollplanError, match="through shared memory, which GOAL cannot say"):
        write_goal(plan, tmp_path / "x.goal")
    assert measure(plan).scratch_bytes_per_node >= plan.shared_sizes[0] * plan.itemsize


def test_programs_show_what_they_wait_for_elsewhere():
    own = restrict(compile_plan(shared("bcast", "linear", "one node", count=4)), 2)
    assert to_text(own).splitlines()[-1].endswith("-> recv[0:4]  after rank 0 #0")
