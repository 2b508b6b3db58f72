"""Passes that place progress and split trees: who runs what where and when."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError, StageError
from collplan.planner.passes import Pass, pass_registry, run_passes
from collplan.planner.passes.progress.cores import CorePlacement
from collplan.planner.passes.progress.split_tree import number_transfers
from collplan.planner.passes.progress.tree_model import (
    TreeShape,
    best_levels,
    blocking_time,
    overlappable_time,
    shape_of,
    shapes_of,
    transfers,
    tree_height,
)
from collplan.planner.plan.plan import Op, Stage
from collplan.planner.plan.ragged import INTENT, Dependencies
from collplan.planner.verify import verify
from collplan.planner.verify.order import Execution, check_stages
from collplan.specs import PassChoice, parse_spec
from handmade import binomial_bcast
from oracle import AFFINE, check_result, make_spec
from split_trees import split, tree_plan
from tiers import briefly, some

TREES = [(kind, tree.name) for kind in registry.kinds() for tree in registry.of(kind) if tree.tree]
UNEVEN = {"nodes": 3, "ranks_per_node": [3, 1, 5], "cores": 7, "numa_domains": 2, "lanes": 2}


def ends(plan: Plan) -> list[tuple[int, int, int, str, tuple[int, ...]]]:
    """Return round, destination, source, stage and cores of every transfer."""
    transfer, source, _ = number_transfers(plan)
    found = []
    for number, origin in enumerate(source.tolist()):
        rows = np.flatnonzero(transfer == number)
        heads = rows[plan.op[rows] != Op.SEND]
        (stage,), (dest,) = set(plan.stage[rows].tolist()), set(plan.rank[heads].tolist())
        cores = tuple(sorted(set(plan.core[rows].tolist())))
        found.append((int(plan.round[rows[0]]), dest, origin, Stage(stage).name, cores))
    return found


def test_a_reduce_of_16_on_18_cores_is_dealt_as_in_the_papers_figure_9():
    plan = tree_plan("reduce", "binomial", 16, split(0))
    free = CorePlacement.of(plan.spec.machine).free[0]
    assert free.tolist() == [8, 17]
    dealt = [(dest, source, cores) for rnd, dest, source, _, cores in ends(plan) if rnd == 0]
    assert dealt == [(2 * i, 2 * i + 1, (free[i % 2],)) for i in range(8)]
    levels = [[cores for rnd, *_, cores in ends(plan) if rnd == r] for r in range(4)]
    assert [len(level) for level in levels] == [8, 4, 2, 1]
    assert [level.count((8,)) for level in levels] == [4, 2, 1, 1]
    assert (plan.stage == Stage.BACKGROUND).all()


def test_two_levels_of_16_run_on_the_ranks_as_in_figure_10():
    for transport in ("messages", "shared"):
        plan = tree_plan("reduce", "binomial", 16, split(2), transport=transport)
        for rnd, dest, source, stage, cores in ends(plan):
            own = {int(plan.rank_core[rank]) for rank in (dest, source)}
            if rnd < 2:
                assert stage == "START"
                assert set(cores) <= own
            else:
                assert stage == "BACKGROUND"
                assert len(cores) == 1
                assert set(cores) <= {8, 17}


@pytest.mark.many
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("kind", ["reduce", "bcast"])
def test_every_level_is_dealt_evenly_and_has_the_models_transfers(kind, transport):
    for n_ranks in briefly(range(1, 65), f"{kind} {transport}"):
        n_free = 1 + n_ranks % 4
        plan = tree_plan(kind, "binomial", n_ranks, split(0), n_free=n_free, transport=transport)
        height = int(tree_height(n_ranks))
        found = ends(plan)
        for level in range(1, height + 1):
            rnd = level - 1 if kind == "reduce" else height - level
            cores = [cores for r, *_, cores in found if r == rnd]
            assert len(cores) == transfers(n_ranks, level)
            counts = [cores.count(core) for core in set(cores)]
            assert max(counts) == -(-len(cores) // n_free)
        assert len(found) == n_ranks - 1


@pytest.mark.many
@pytest.mark.parametrize("radix", [2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize("kind", ["reduce", "bcast", "gather", "scatter"])
def test_every_level_of_a_knomial_tree_is_dealt_evenly_and_has_the_models_transfers(kind, radix):
    shape, is_up = shape_of(kind, radix), kind in ("reduce", "gather")
    for n_ranks in briefly(range(1, 41), f"{kind} {radix}"):
        n_free = 1 + n_ranks % 4
        knomial = {"name": "knomial", "radix": radix}
        plan = tree_plan(kind, knomial, n_ranks, split(0), n_free=n_free)
        found, height = ends(plan), int(tree_height(n_ranks, radix))
        rounds = sorted({rnd for rnd, *_ in found}, reverse=not is_up)
        assert len(rounds) == height
        assert sum(transfers(n_ranks, np.arange(1, height + 1), shape)) == n_ranks - 1
        for level, own in enumerate(rounds, 1):
            cores = [cores for rnd, *_, cores in found if rnd == own]
            assert len(cores) == transfers(n_ranks, level, shape)
            counts = [cores.count(core) for core in set(cores)]
            assert max(counts) == -(-len(cores) // n_free)


@pytest.mark.many
@pytest.mark.parametrize("radix", [2, 3, 4, 7, 64, 2**62])
@pytest.mark.parametrize("kind", ["reduce", "bcast", "gather", "scatter"])
def test_closed_forms_of_knomial_trees_are_sums_over_their_levels(kind, radix):
    shape = shape_of(kind, radix)
    ranks = np.arange(1, 100)
    heights = tree_height(ranks, radix)
    for n_ranks, height in zip(ranks.tolist(), heights.tolist(), strict=True):
        counts = [int(transfers(n_ranks, level, shape)) for level in range(1, height + 2)]
        assert (sum(counts), counts[-1]) == (n_ranks - 1, 0)
        units = [radix ** ((level - 1) // (radix - 1)) for level in range(1, height + 1)]
        if kind in ("reduce", "bcast"):
            units = [1] * height
        assert blocking_time(n_ranks, shape) == sum(units)
        for levels in (0, 1, height // 2, height, height + 3):
            above = list(zip(counts, units, strict=False))[levels:]
            wanted = sum(-(-count // 3) * unit for count, unit in above)
            assert overlappable_time(n_ranks, 3, levels, shape) == wanted
    whole = overlappable_time(ranks[:, None], 3, np.arange(5), shape)
    alone = [[overlappable_time(n, 3, levels, shape) for levels in range(5)] for n in ranks]
    assert np.array_equal(whole, alone)


def test_a_tree_of_radix_2_is_the_binomial_one():
    ranks, levels = np.arange(1, 300), np.arange(12)
    assert np.array_equal(tree_height(ranks), [(n - 1).bit_length() for n in ranks.tolist()])
    for kind in ("reduce", "bcast", "gather", "scatter"):
        shape = shape_of(kind, 2)
        counts = transfers(ranks[:, None], levels + 1, shape)
        half = 2**levels
        assert np.array_equal(counts, (ranks[:, None] - 1 + half) // (2 * half))
        assert np.array_equal(best_levels(ranks, 300, shape), best_levels(
            ranks, 300, TreeShape(grows=kind in ("gather", "scatter"))
        ))  # fmt: skip


@pytest.mark.many
@pytest.mark.parametrize(("kind", "name"), TREES)
def test_leaf_levels_run_inside_start_or_wait_and_the_rest_between(kind, name):
    wanted = ("START",) if kind in ("reduce", "gather") else ("WAIT",)
    if kind in ("allreduce", "scan", "exscan"):
        wanted = ("START", "WAIT")
    # Copies out of what a root has staged have levels of their own: see the next test.
    is_other = kind == "scatter" and name in ("binomial", "bine", "knomial")
    for transport in ("messages",) if is_other else ("messages", "shared"):
        for n_ranks in (2, 6):
            whole = tree_plan(kind, name, n_ranks, split(0), transport=transport)
            rounds = sorted({rnd for rnd, *_ in ends(whole)})
            (trees,) = whole.phases[0].trees
            for n_levels in range(len(rounds) + 2):
                plan = tree_plan(kind, name, n_ranks, split(n_levels), transport=transport)
                leaves = {
                    "START": trees.up[:n_levels],
                    "WAIT": trees.down[max(0, len(trees.down) - n_levels) :],
                }
                for rnd, _, _, stage, cores in ends(plan):
                    inside = [way for way in wanted if rnd in leaves[way]]
                    assert stage == (inside[0] if inside else "BACKGROUND")
                    free = set(CorePlacement.of(plan.spec.machine).free[0].tolist())
                    assert inside or set(cores) <= free
                    assert not inside or not set(cores) & free


@pytest.mark.parametrize("kind", ["scan", "exscan"])
@pytest.mark.long
def test_split_prefixes_are_proved_on_any_number_of_ranks_with_all_levels(kind):
    for n_ranks in some(range(1, 18), f"split {kind}"):
        height = max(int(shape.height(n_ranks)) for shape in shapes_of(kind))
        for levels in (*range(height + 2), "auto"):
            for transport in ("messages", "shared"):
                passes = (split(levels), "add_compute")[: 1 + n_ranks % 2]
                plan = tree_plan(
                    kind, "binomial", n_ranks, *passes, transport=transport, n_free=3,
                    datatype="uint64", op=AFFINE,
                )  # fmt: skip
                verify(plan)
                check_result(plan, order=random.Random(n_ranks))


@pytest.mark.parametrize("kind", ["scan", "exscan"])
def test_levels_of_prefixes_are_dealt_evenly_and_have_the_models_transfers(kind):
    for n_ranks in briefly(range(2, 65), kind):
        n_free = 1 + n_ranks % 4
        plan = tree_plan(kind, "binomial", n_ranks, split(0), n_free=n_free)
        (trees,), found = plan.phases[0].trees, ends(plan)
        for shape, rounds in zip(shapes_of(kind), (trees.up, trees.down[::-1]), strict=True):
            assert len(rounds) == shape.height(n_ranks)
            for level, own in enumerate(rounds, 1):
                cores = [cores for rnd, *_, cores in found if rnd == own]
                assert len(cores) == transfers(n_ranks, level, shape)
                counts = [cores.count(core) for core in set(cores)]
                assert max(counts) == -(-len(cores) // n_free)
            assert transfers(n_ranks, len(rounds) + 1, shape) == 0


def test_auto_splits_both_trees_of_a_scan_at_the_models_level():
    for kind, n_ranks, n_free, levels in (("scan", 51, 13, 0), ("scan", 57, 7, 1),
                                          ("scan", 62, 2, 3), ("exscan", 63, 1, 4)):  # fmt: skip
        assert best_levels(n_ranks, n_ranks + n_free, *shapes_of(kind)) == levels
        found = ends(tree_plan(kind, "binomial", n_ranks, split(), n_free=n_free))
        for stage in ("START", "WAIT"):
            assert len({rnd for rnd, *_, name, _ in found if name == stage}) == levels
    # Trees that follow each other have the best level of one, if they are alike.
    for ranks in ([51, 57, 60, 62], [40, 50, 63, 1]):
        two = best_levels(ranks, 64, *shapes_of("allreduce"))
        assert two.tolist() == best_levels(ranks, 64).tolist()


def test_a_scatter_through_shared_memory_leaves_all_that_was_forwarded_to_the_leaves():
    """Inner ranks, too, read their blocks where the root has staged them."""
    for levels in range(4):
        plan = tree_plan("scatter", "binomial", 8, split(levels), transport="shared")
        found = {dest: stage for _, dest, _, stage, _ in ends(plan)}
        assert sorted(found) == list(range(1, 8))
        assert all(stage == ("WAIT" if levels else "BACKGROUND") for stage in found.values())


def test_the_send_on_to_the_root_of_a_non_commutative_reduce_is_the_last_level():
    fields = {"datatype": "uint64", "op": AFFINE, "root": 3}
    plan = tree_plan("reduce", "binomial", 6, split(3), **fields)
    assert ends(plan)[-1][:4] == (3, 3, 0, "BACKGROUND")
    plan = tree_plan("reduce", "binomial", 6, split(4), **fields)
    assert {stage for *_, stage, _ in ends(plan)} == {"START"}


def test_auto_takes_what_the_model_finds_best():
    for n_ranks, n_free, levels in ((51, 13, 0), (57, 7, 1), (60, 4, 2), (62, 2, 3)):
        assert best_levels(n_ranks, n_ranks + n_free) == levels
        plan = tree_plan("reduce", "binomial", n_ranks, split(), n_free=n_free)
        assert len({rnd for rnd, *_, stage, _ in ends(plan) if stage == "START"}) == levels
    # Fewer communication cores than are free: the model has as many.
    plan = tree_plan("bcast", "binomial", 60, split(comm_cores=2), n_free=4)
    n_waiting = len({rnd for rnd, *_, stage, _ in ends(plan) if stage == "WAIT"})
    assert n_waiting == best_levels(60, 62)
    # A k-nomial tree, too.
    for kind, stage in (("reduce", "START"), ("bcast", "WAIT"), ("scatter", "WAIT")):
        plan = tree_plan(kind, {"name": "knomial", "radix": 3}, 60, split(), n_free=2)
        n_split = len({rnd for rnd, *_, name, _ in ends(plan) if name == stage})
        assert n_split == best_levels(60, 62, shape_of(kind, 3)) > 0
    # What doubles has its own best.
    plan = tree_plan("gather", "binomial", 60, split(), n_free=4)
    n_starting = len({rnd for rnd, *_, stage, _ in ends(plan) if stage == "START"})
    assert n_starting == best_levels(60, 64, shape_of("gather"))
    with pytest.raises(AlgorithmError, match="auto knows binomial and k-nomial trees, bcast/chain"):
        tree_plan("bcast", "chain", 6, split())


def test_the_closed_forms_agree_with_the_paper_and_with_sums_written_out():
    assert best_levels(np.arange(1, 64), 64)[[50, 51, 56, 57, 60, 61]].tolist() == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    for n_ranks in range(1, 200):
        counts = [int(transfers(n_ranks, level)) for level in range(1, 9)]
        assert sum(counts) == n_ranks - 1
        assert int(tree_height(n_ranks)) == (n_ranks - 1).bit_length()
        assert blocking_time(n_ranks, shape_of("gather")) == 2 ** (n_ranks - 1).bit_length() - 1


def test_communication_cores_can_be_fewer_than_are_free():
    plan = tree_plan("bcast", "binomial", 12, split(0, comm_cores=2), n_free=4)
    free = CorePlacement.of(plan.spec.machine).free[0]
    assert sorted(set(plan.core.tolist())) == [free[0], free[2]]
    for wrong in (0, 5, True, "all"):
        with pytest.raises(AlgorithmError, match=r"comm_cores: .* has 4 free cores; use 1 to 4"):
            tree_plan("bcast", "binomial", 12, split(0, comm_cores=wrong), n_free=4)
    with pytest.raises(AlgorithmError, match=r"no core is free: raise machine.cores"):
        tree_plan("bcast", "binomial", 12, split(0, comm_cores=1), n_free=0)


def test_without_free_cores_all_stays_with_the_ranks():
    for passes in ([split(1)], ["place_progress"], [split()]):
        plan = tree_plan("reduce", "binomial", 8, *passes, n_free=0)
        assert (plan.core == plan.rank_core[plan.rank]).all()
        assert plan.rank_core.tolist() == list(range(8))
    assert (plan.stage == Stage.BACKGROUND).all()
    assert tree_plan("reduce", "binomial", 8, split(1), n_free=0).stage.min() == Stage.START
    plain = tree_plan("reduce", "binomial", 8, n_free=0)
    assert run_passes(plain, [PassChoice(name="place_progress")]) is plain


@pytest.mark.quick
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("policy", ["bind", "numa", "odd_even"])
def test_a_scans_progress_is_placed_by_policy(policy, transport):
    machine = {"nodes": 2, "ranks_per_node": [6, 7], "cores": 8, "numa_domains": 2}
    placed = {"name": "place_progress", "policy": policy}
    plan = tree_plan("scan", "chain", 13, placed, machine=machine, transport=transport)
    placement = CorePlacement.of(plan.spec.machine)
    assert plan.rank_core.tolist() == placement.application.tolist()
    assert plan.core.tolist() == placement.progress(policy)[plan.rank].tolist()
    verify(plan)
    check_result(plan)


def test_placing_a_split_tree_keeps_its_leaves_with_the_ranks():
    plan = tree_plan("reduce", "binomial", 8, split(1), "place_progress")
    own = plan.stage == Stage.START
    assert own.any()
    assert (plan.core[own] == plan.rank_core[plan.rank[own]]).all()
    progress = CorePlacement.of(plan.spec.machine).progress("odd_even")
    assert (plan.core[~own] == progress[plan.rank[~own]]).all()


@pytest.fixture
def backwards(monkeypatch):
    """A pass that makes the root's first send wait for its last."""

    def rewrite(plan: Plan) -> Plan:
        first, last = np.flatnonzero((plan.op == Op.SEND) & (plan.rank == 0))[[0, -1]]
        indptr = plan.deps.indptr + (np.arange(plan.n_tasks + 1) > first)
        at = plan.deps.indptr[first + 1]
        task, kind = np.insert(plan.deps.task, at, last), np.insert(plan.deps.kind, at, INTENT)
        return plan.replace(deps=Dependencies(indptr, task, kind))

    monkeypatch.setitem(pass_registry, "backwards", Pass("backwards", rewrite, "plan", "global"))


@pytest.mark.usefixtures("backwards")
def test_what_cannot_be_split_is_refused_with_the_way_out():
    for wrong in (-1, 1.0, True, "all", None):
        with pytest.raises(AlgorithmError, match=r"levels: .* is not a number of at least 0; or"):
            tree_plan("bcast", "binomial", 4, split(wrong))
    for kind, name in (("allreduce", "ring"), ("reduce", "rabenseifner"), ("scan", "chain")):
        with pytest.raises(
            AlgorithmError, match=f"{kind}/{name} is not a tree; it splits .*gather"
        ):
            tree_plan(kind, name, 4, split(1))
    with pytest.raises(AlgorithmError, match="put split_tree before it"):
        tree_plan("bcast", "binomial", 4, "add_compute", split(1))
    with pytest.raises(AlgorithmError, match="put split_tree before limit_requests"):
        tree_plan("bcast", "binomial", 4, "backwards", split(1))
    spec = tree_plan("bcast", "binomial", 4).spec
    with pytest.raises(AlgorithmError, match="split_tree: it needs the plan of all ranks"):
        run_passes(compile_plan(spec, rank=1), [PassChoice(name="split_tree")])
    for name in ("split_tree", "place_progress"):
        imported = compile_plan(spec).replace(spec=None)
        with pytest.raises(AlgorithmError, match=f"{name}: an imported schedule has no machine"):
            run_passes(imported, [PassChoice(name=name)])


def test_segments_of_a_transfer_stay_together_whichever_pass_comes_first():
    segment = {"name": "segment", "max_bytes": 8}
    for transport in ("messages", "shared"):
        for kind, name in (("reduce", "binomial"), ("bcast", "linear"), ("reduce", "linear")):
            places = []
            for passes in ((split(1), segment), (segment, split(1)), (split(1),)):
                plan = tree_plan(kind, name, 6, *passes, transport=transport)
                verify(plan)
                check_result(plan, order=random.Random(1))
                places.append(ends(plan))
            assert places[0] == places[1] == places[2]


@pytest.mark.quick
@pytest.mark.parametrize("passes", [
    (split(1), "prioritize", "limit_requests"),
    ("prioritize", split(2)),
    (split(1), "share"),
    ("place_progress", split(1), {"name": "segment", "max_bytes": 8}, "add_compute"),
])  # fmt: skip
def test_other_passes_combine(passes):
    for kind, name in (("allreduce", "reduce_bcast"), ("scatter", "binomial"), ("gather", "chain")):
        plan = tree_plan(kind, name, 6, *passes, op="sum")
        verify(plan)
        check_result(plan, order=random.Random(2))
        assert len(set(plan.stage.tolist())) > 1


@pytest.mark.many
@pytest.mark.parametrize(("decomposition", "transport"), [
    ("hierarchical", "messages"),
    ("hierarchical", "shared"),
    ("hierarchical", {"node": "shared"}),
    ({"name": "mesh", "shape": [3, 3]}, "messages"),
    ({"name": "mesh", "shape": [3, 3]}, "shared"),
])  # fmt: skip
def test_decompositions_split_the_first_or_the_last_phase(decomposition, transport):
    algorithms = {"node": "binomial"} if decomposition == "hierarchical" else {"row": "binomial"}
    for kind in ("reduce", "bcast", "gather", "scatter"):
        for levels in (0, 1, 5, "auto"):
            spec = make_spec(
                kind, algorithms, 9, UNEVEN, root=4, count=11, decomposition=decomposition,
                passes=[split(levels)],
            ).replace(transport=transport)  # fmt: skip
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)
            split_off = plan.phase[plan.stage != Stage.BACKGROUND]
            assert {plan.phases[phase].role for phase in split_off} <= set(algorithms)
            inside = Stage.START if kind in ("reduce", "gather") else Stage.WAIT
            assert set(plan.stage.tolist()) <= {inside, Stage.BACKGROUND}
            assert (inside in plan.stage) == (levels != 0) or levels == "auto"


def test_an_allreduce_of_leaders_is_split_at_both_ends():
    spec = make_spec(
        "allreduce", {"node": "binomial"}, 9, UNEVEN, count=11, decomposition="hierarchical",
        passes=[split(1)],
    )  # fmt: skip
    plan = compile_plan(spec)
    stages = {
        str(plan.phases[number]).split("/")[0]: {
            Stage(s).name for s in plan.stage[plan.phase == number]
        }
        for number in range(len(plan.phases))
    }
    assert stages == {
        "node reduce": {"START", "BACKGROUND"},
        "lane allreduce": {"BACKGROUND"},
        "node bcast": {"BACKGROUND", "WAIT"},
    }
    # Of three ranks as of five it is the last round of their own that are leaves.
    for node in (0, 2):
        mine = (plan.node == node) & (plan.stage == Stage.WAIT)
        assert len(set(plan.round[mine].tolist())) == 1


def test_a_message_between_nodes_runs_on_a_core_of_each():
    plan = tree_plan("bcast", "binomial", 9, split(0), machine=UNEVEN)
    placement = CorePlacement.of(plan.spec.machine)
    for node, free in enumerate(placement.free):
        mine = plan.core[plan.node == node]
        assert set(mine.tolist()) <= set(free.tolist())
    # Level by level, each node deals what begins or ends on it.
    for rnd in set(plan.round.tolist()):
        for node, free in enumerate(placement.free):
            rows = np.flatnonzero((plan.round == rnd) & (plan.node == node))
            transfer = number_transfers(plan)[0][rows]
            core_of = dict(zip(transfer.tolist(), plan.core[rows].tolist(), strict=True))
            counts = np.bincount([free.tolist().index(core) for core in core_of.values()])
            assert not len(counts) or counts.max() == -(-len(core_of) // len(free))


def test_passes_leave_their_input_alone_and_change_nothing_twice():
    plain = tree_plan("reduce", "binomial", 6)
    once = run_passes(plain, [PassChoice(name="split_tree", options={"levels": 1})])
    assert (plain.stage == Stage.BACKGROUND).all()
    assert (plain.core == plain.rank_core[plain.rank]).all()
    assert run_passes(once, [PassChoice(name="split_tree", options={"levels": 1})]) is once
    placed = run_passes(plain, [PassChoice(name="place_progress")])
    assert run_passes(placed, [PassChoice(name="place_progress")]) is placed


def staged(plan: Plan, *rows: int, stage: Stage) -> Plan:
    changed = plan.stage.copy()
    changed[list(rows)] = stage
    return plan.replace(stage=changed)


def test_a_start_waits_for_nothing_that_runs_later():
    plan = tree_plan("reduce", "binomial", 4, split(1))
    reductions = np.flatnonzero((plan.op == Op.REDUCE) & (plan.stage == Stage.BACKGROUND))
    with pytest.raises(StageError, match=r"inside start, but waits for .* in the background"):
        verify(staged(plan, reductions[-1], stage=Stage.START))
    receive = np.flatnonzero((plan.op == Op.RECV) & (plan.stage == Stage.BACKGROUND))[0]
    with pytest.raises(StageError, match=r"inside start, but is one message with .*background"):
        verify(staged(plan, receive, stage=Stage.START))


def test_messages_of_plans_without_dependencies_have_their_stages_checked():
    plan = binomial_bcast([0, 0])
    assert not len(plan.deps.task)
    check_stages(plan, Execution.of(plan))
    for op in (Op.SEND, Op.RECV):
        mixed = staged(plan, *np.flatnonzero(plan.op == op), stage=Stage.WAIT)
        with pytest.raises(StageError, match=r"is one message with .* inside wait"):
            check_stages(mixed, Execution.of(mixed))


def test_a_start_waits_for_no_background_task_of_another_rank_in_shared_memory():
    plan = tree_plan("bcast", "linear", 3, split(0), transport="shared")
    reader = np.flatnonzero(plan.rank == 1)
    with pytest.raises(StageError, match=r"rank 1.* inside start, but waits for .*rank 0"):
        verify(staged(plan, *reader, stage=Stage.START))
    verify(staged(plan, *range(plan.n_tasks), stage=Stage.START))


def test_only_a_wait_waits_for_a_wait():
    plan = tree_plan("bcast", "binomial", 4, split(0))
    first = np.flatnonzero(plan.op == Op.RECV)[0]
    with pytest.raises(StageError, match=r"in the background, but .* runs inside wait"):
        verify(staged(plan, first, stage=Stage.WAIT))
    shared = tree_plan("bcast", "linear", 3, split(0), transport="shared")
    staging = np.flatnonzero(shared.rank == 0)
    with pytest.raises(StageError, match=r"in the background, but waits for .* inside wait"):
        verify(staged(shared, *staging, stage=Stage.WAIT))
    verify(staged(plan, *range(plan.n_tasks), stage=Stage.WAIT))


def test_specs_say_it_in_yaml():
    spec = parse_spec(
        {
            "machine": {"ranks_per_node": 62, "cores": 64},
            "collective": {"kind": "scan", "count": 64},
            "algorithms": "chain",
            "passes": [{"name": "place_progress", "policy": "numa"}],
        }
    )
    assert sorted(set(compile_plan(spec).core.tolist())) == [31, 63]
