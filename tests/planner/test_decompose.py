"""Every decomposition of every collective, on regular and irregular machines: proved and run."""

from __future__ import annotations

import random
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from collplan.api.compiling import compile_spec
from collplan.planner.decompose.guideline import FORMS
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.topology.levels import rank_places
from collplan.planner.verify import verify
from collplan.specs import CollplanError, Decomposition, Machine, parse_spec
from collplan.specs.collectives.collective import COLLECTIVES
from covering import pairs
from folders import ROOT
from looping import looped, naming
from oracle import (
    AFFINE,
    REGULAR,
    check_result,
    drawn_counts,
    gaps,
    make_spec,
    random_counts,
    with_counts,
)
from rank_programs import assert_equal
from structures import dealt, flavours
from tiers import briefly, some

KINDS = [kind for kind in REGULAR if kind != "barrier"]
SCANS = ("scan", "exscan")
BLOCKS = ("gather", "scatter", "allgather", "reduce_scatter_block", "alltoall")
RANDOM_ORDER = [0, 0, 1, 0, 1, 1, 0]
MACHINES = {
    "2x3": {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
    "3x4": {"nodes": 3, "ranks_per_node": 4, "lanes": 2},
    "1,3,2": {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2},
    "5,5,2": {"nodes": 3, "ranks_per_node": [5, 5, 2], "lanes": 3},
    "cyclic": {"nodes": 2, "ranks_per_node": 3, "rank_order": "cyclic"},
    "any order": {"nodes": 2, "ranks_per_node": [4, 3], "rank_order": RANDOM_ORDER, "lanes": 2},
    "one node": {"ranks_per_node": 5},
    "one rank per node": {"nodes": 4},
    "one rank": {},
    "numa": {"nodes": 2, "ranks_per_node": 4, "numa_domains": 2, "lanes": 2},
}
DRAGONFLY = {"kind": "dragonfly", "groups": 3, "routers": 2, "hosts": 3}
ON_NETWORKS: dict[str, dict[str, Any]] = {
    "scattered": {
        "nodes": 7, "ranks_per_node": 2, "lanes": 2, "placement": {"random": 5},
        "network": {"topology": DRAGONFLY},
    },
    "any hosts": {
        "nodes": 5, "ranks_per_node": [1, 3, 2, 1, 2], "placement": [9, 8, 0, 1, 16],
        "network": {"topology": DRAGONFLY},
    },
    "tree": {
        "nodes": 8, "lanes": 2,
        "network": {"topology": {"kind": "fat_tree", "down": [2, 2, 2]}},
    },
}  # fmt: skip
BY_NETWORK: list[dict[str, Any]] = [
    {"name": "hierarchical", "by": "group"},
    {"name": "full_lane", "by": "switch"},
    {"name": "multi_leader", "leaders": 2, "by": "group"},
    {"name": "full_lane", "by": "group", "node": {"name": "hierarchical", "by": "switch"}},
    {"name": "hierarchical", "by": "switch", "lane": {"name": "full_lane", "by": "group"}},
    {"name": "hierarchical", "by": "group", "node": {"name": "mesh", "by": "node"}},
]
LANES_OF_RATES = {
    "rates 3,1": {"nodes": 2, "ranks_per_node": 4, "lanes": ["30Gbit", "10Gbit"]},
    "domains": {"nodes": 2, "ranks_per_node": 6, "numa_domains": 3, "lanes": ["30Gbit", "10Gbit"]},
    "rates 3,1,2": {
        "nodes": 3,
        "ranks_per_node": [4, 2, 7],
        "lanes": ["30Gbit", "10Gbit", "20Gbit"],
    },
}
EVERYWHERE = {
    **MACHINES,
    **ON_NETWORKS,
    **LANES_OF_RATES,
    **{f"2x{size}": {"nodes": 2, "ranks_per_node": size} for size in (4, 6)},
}
NESTED = [
    {"name": "full_lane", "node": {"name": "full_lane", "by": "numa"}},
    {"name": "full_lane", "node": {"name": "mesh", "shape": [2, 2]}, "lane": "guideline"},
    {"name": "hierarchical", "by": "numa", "lane": "full_lane"},
    {"name": "hierarchical", "node": {"name": "full_lane", "by": "numa"}},
    {"name": "hierarchical", "node": "guideline", "lane": {"name": "mesh", "shape": [2, 1]}},
    {"name": "multi_leader", "leaders": 2, "node": {"name": "hierarchical", "by": "numa"}},
]  # fmt: skip


def factorizations(size, n_factors):
    """Yield the extents of every mesh of `n_factors` dimensions."""
    if n_factors == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if size % first == 0:
            for rest in factorizations(size // first, n_factors - 1):
                yield (first, *rest)


def through_leaders():
    for name, machine in MACHINES.items():
        fullest = max(Machine.model_validate(machine).node_to_n_ranks)
        yield name, "hierarchical"
        yield name, "full_lane"
        for leaders in range(1, fullest + 1):
            yield name, {"name": "multi_leader", "leaders": leaders}
    for nested in NESTED:
        yield "numa", nested


def by_network():
    """Yield machines with decompositions by levels of their topologies."""
    for name in ON_NETWORKS:
        for decomposition in BY_NETWORK:
            # Rows of a mesh are of one length.
            if name == "tree" or "mesh" not in str(decomposition):
                yield name, decomposition
    for level in ("switch", "group"):
        yield "tree", {"name": "mesh", "by": level}
        yield "scattered", {"name": "full_lane", "by": level, "shares": "balanced"}


def balanced():
    """Yield machines with decompositions in which leaders carry what their lanes can."""
    for name, decomposition in through_leaders():
        chosen = Decomposition.model_validate(decomposition)
        if chosen.name != "hierarchical" and chosen.node is None:
            yield name, chosen.replace(shares="balanced").model_dump()
    nested = {"name": "full_lane", "node": {"name": "full_lane", "by": "numa"}}
    yield "numa", nested | {"shares": "balanced"}
    yield "numa", {"name": "full_lane", "by": "numa", "shares": "balanced"}
    both = {"name": "multi_leader", "leaders": 2, "shares": "balanced"}
    yield "domains", {"name": "full_lane", "by": "numa", "lane": both, "shares": "balanced"}
    for name in ("rates 3,1", "rates 3,1,2"):
        yield name, {"name": "full_lane", "shares": "balanced"}
        for leaders in (2, 3):
            yield name, {"name": "multi_leader", "leaders": leaders, "shares": "balanced"}


def in_form(form, cases):
    """Yield machines and decompositions, the latter in another form."""
    for name, decomposition in cases:
        fields = Decomposition.model_validate(decomposition).model_dump()
        fields = {"name": fields} if isinstance(fields, str) else fields
        yield name, fields | {"form": form}


TRANSPOSED = list(in_form("transpose", through_leaders()))
GATHERED = list(in_form("gather", [*through_leaders(), *balanced()]))


def meshes(size):
    """Yield the extents of every mesh of two dimensions, and of three without extents of 1."""
    yield from factorizations(size, 2)
    yield from (shape for shape in factorizations(size, 3) if shape.count(1) < 2)


def is_refused(machine, decomposition, kind, commutative):
    """Return whether order matters, and the ranks of a node are never neighbors."""
    name = Decomposition.model_validate(decomposition).name
    if name in ("mesh", "guideline") or machine.get("rank_order") != "cyclic":
        return False
    combines = kind in ("reduce", "allreduce", "reduce_scatter_block")
    return kind in SCANS or (combines and not commutative)


def check_structures(cases, kinds, n=1):
    """Prove and run cases of (machine, decomposition) for all kinds, with `n` structures each."""
    for turn, (machine, decomposition) in some(list(enumerate(cases)), f"{cases} {kinds}"):
        fields = EVERYWHERE[machine]
        p = Machine.model_validate(fields).n_ranks
        for number, kind in briefly(enumerate(kinds), f"{machine} {decomposition}"):
            for structure in dealt(kind, p, turn + number, n):
                with naming(machine, decomposition, kind, structure):
                    check_structure(fields, decomposition, kind, *structure, turn)


def check_structure(machine, decomposition, kind, root, count, in_place, commutative, turn):
    """Prove and run one case, with one of the types in turn."""
    flavour = list(flavours(kind, commutative))
    spec = make_spec(
        kind, "auto", 0, machine, decomposition=decomposition, root=root, count=count,
        in_place=in_place, **flavour[turn % len(flavour)],
    )  # fmt: skip
    if count and is_refused(machine, decomposition, kind, commutative):
        with pytest.raises(AlgorithmError, match=rf"decomposition: .* {kind} .*; use"):
            compile_spec(spec)
        return
    plan = compile_spec(spec, is_proved=False)
    verify(plan)
    check_result(plan)


def by_machine(cases):
    """Parametrize a test with the cases of each machine."""
    cases = sorted(cases, key=lambda case: case[0])
    grouped = [(name, list(some)) for name, some in groupby(cases, lambda case: case[0])]
    return pytest.mark.parametrize("cases", [pytest.param(some, id=name) for name, some in grouped])


@pytest.mark.many
@by_machine(through_leaders())
def test_through_leaders(cases):
    check_structures(cases, KINDS)


@by_machine(by_network())
def test_by_levels_of_a_network(cases):
    check_structures(cases, KINDS)


def test_by_a_level_every_place_talks_to_others_through_its_leaders():
    machine = ON_NETWORKS["scattered"]
    group = rank_places(Machine.model_validate(machine), "group")
    for decomposition, n_leaders in ((BY_NETWORK[0], 1), (BY_NETWORK[2], 2)):
        spec = make_spec("allreduce", "auto", 0, machine, decomposition=decomposition, count=8)
        plan = compile_spec(spec)
        crosses = (plan.op == Op.SEND) & (group[plan.rank] != group[plan.peer])
        talking = {int(place): set() for place in np.unique(group)}
        for rank in plan.rank[crosses].tolist():
            talking[int(group[rank])].add(rank)
        assert {len(ranks) for ranks in talking.values()} == {n_leaders}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("machine", "decomposition", "complaint"),
    [
        ("2x3", {"name": "full_lane", "by": "switch"},
         "decomposition.by: switch, but machine.network has no topology; give one, or use node or"),
        ("2x3", {"name": "full_lane", "lane": {"name": "hierarchical", "by": "group"}},
         "decomposition.by: group, but machine.network has no topology"),
        ("scattered", {"name": "mesh", "by": "group"},
         "decomposition.by: a mesh has rows of one length, and a group has 4 to 6 of the ranks"),
        ("scattered", {"name": "multi_leader", "leaders": 7, "by": "group"},
         "decomposition.leaders: 7 leaders, no group has more than 6 of the ranks; use 1 to 6"),
        ("any hosts", {"name": "hierarchical", "by": "floor"}, "decomposition.by: 'floor'"),
    ],
)  # fmt: skip
def test_a_level_that_is_not_there_is_refused(machine, decomposition, complaint):
    fields = EVERYWHERE[machine]
    collective = {"kind": "bcast", "count": 8}
    fields = {"machine": fields, "collective": collective, "decomposition": decomposition}
    with pytest.raises(CollplanError) as caught:
        compile_spec(parse_spec(fields))
    assert complaint in str(caught.value)


def test_a_rack_is_the_hosts_of_a_switch():
    rack, switch = (
        make_spec("bcast", "auto", 0, ON_NETWORKS["tree"], count=8,
                  decomposition={"name": "full_lane", "by": by})
        for by in ("rack", "switch")
    )  # fmt: skip
    assert rack == switch


@pytest.mark.many
@by_machine(balanced())
def test_balanced_shares(cases):
    split = [case for case in cases if "lane" in case[1]]
    for machine, decomposition in split:
        fields = EVERYWHERE[machine]
        with pytest.raises(AlgorithmError, match="shares: balanced cuts the blocks of an alltoall"):
            compile_spec(make_spec("alltoall", "auto", 0, fields, decomposition=decomposition,
                                   count=5))  # fmt: skip
    check_structures(split, [kind for kind in KINDS if kind != "alltoall"])
    check_structures([case for case in cases if case not in split], KINDS)


@pytest.mark.parametrize("machine", ["5,5,2", "any order"])
def test_balanced_scans_by_transposing(machine):
    form = {"name": "full_lane", "form": "transpose", "shares": "balanced"}
    check_structures([(machine, form)], SCANS, n=10)


@pytest.mark.many
@by_machine(TRANSPOSED)
def test_scans_by_transposing(cases):
    check_structures(cases, SCANS)


@pytest.mark.many
@by_machine(GATHERED)
def test_reduces_by_gathering(cases):
    check_structures(cases, ["reduce"], n=2)


@pytest.mark.many
@pytest.mark.parametrize("size", range(1, 10))
def test_reduces_by_gathering_on_few_ranks(size):
    """All roots of few ranks, on nodes as even as can be, the longer ones first and last."""
    for n_nodes in range(1, size + 1):
        per_node = [size // n_nodes + (i < size % n_nodes) for i in range(n_nodes)]
        machine = {"nodes": n_nodes, "ranks_per_node": per_node[:: (-1) ** n_nodes], "lanes": 2}
        forms: list[dict[str, Any]] = [{"name": "hierarchical"}, {"name": "full_lane"}]
        if per_node[0] > 2:
            forms.append({"name": "multi_leader", "leaders": 2})
        for number, form in enumerate(forms):
            roots = range(size) if size < 6 else {0, n_nodes - 1, size // 2, size - 1}
            for root in briefly(roots, f"{per_node} {form}"):
                turn = root + number + n_nodes
                _, count, in_place, commutative = next(dealt("reduce", size, turn))
                with naming(per_node, form, root, count, in_place, commutative):
                    check_structure(machine, form | {"form": "gather"}, "reduce", root, count,
                                    in_place, commutative, turn)  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("size", [6, 8, 12])
def test_over_meshes(size):
    shapes = [{"name": "mesh", "shape": list(shape)} for shape in meshes(size)]
    check_structures([(f"2x{size // 2}", mesh) for mesh in shapes], KINDS)


@pytest.mark.many
@pytest.mark.parametrize("machine", ["2x3", "1,3,2", "cyclic", "one node", "one rank"])
def test_guidelines(machine):
    for kind in KINDS:
        forms = [{"name": "guideline", "form": form} for form in FORMS[kind]]
        check_structures([(machine, form) for form in forms], [kind], n=4)


SELECTION = [
    ("1,3,2", "hierarchical"),
    ("5,5,2", "full_lane"),
    ("any order", {"name": "multi_leader", "leaders": 2}),
    ("3x4", {"name": "mesh", "shape": [2, 3, 2]}),
    ("2x3", "guideline"),
    ("numa", NESTED[0]),
    ("2x3", {"name": "full_lane", "shares": "balanced"}),
    ("5,5,2", {"name": "full_lane", "shares": "balanced"}),
    ("1,3,2", {"name": "multi_leader", "leaders": 2, "shares": "balanced"}),
    ("scattered", BY_NETWORK[3]),
    ("any hosts", BY_NETWORK[2]),
]
REDUCES = [
    ("5,5,2", {"name": "full_lane", "form": "gather"}),
    ("1,3,2", {"name": "full_lane", "form": "gather", "shares": "balanced"}),
    ("numa", {"name": "hierarchical", "form": "gather"}),
]
CHOSEN = [
    *((machine, decomposition, KINDS) for machine, decomposition in SELECTION),
    *((machine, decomposition, ["reduce"]) for machine, decomposition in REDUCES),
]
SELECTED = pytest.mark.parametrize(
    ("machine", "decomposition", "kinds"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{len(case[2])} kinds") for case in CHOSEN],
)


def selected(kind, machine, decomposition, **fields):
    """Return a spec with the last rank but one as root, in place where that is possible."""
    fields_of_machine = EVERYWHERE[machine]
    n_ranks = Machine.model_validate(fields_of_machine).n_ranks
    combines = COLLECTIVES[kind].has_op and kind not in SCANS
    defaults = {"root": n_ranks - 2, "count": 2 * n_ranks + 3, "in_place": True}
    return make_spec(
        kind, "auto", 0, fields_of_machine, decomposition=decomposition,
        **next(flavours(kind, not combines)), **defaults | fields,
    )  # fmt: skip


@pytest.mark.many
@SELECTED
def test_any_legal_order_gives_the_result(machine, decomposition, kinds):
    for kind in kinds:
        plan = compile_spec(selected(kind, machine, decomposition))
        for seed in range(3):
            with naming(kind, seed):
                check_result(plan, order=random.Random(seed), seed=seed)


PASSES = (
    {"name": "segment", "max_bytes": 16},
    {"name": "prioritize"},
    {"name": "limit_requests", "remote": 1, "local": 2, "receives": 2},
)


@pytest.mark.many
@SELECTED
def test_passes_keep_what_is_computed(machine, decomposition, kinds):
    for kind in briefly(kinds, f"passes {machine}"):
        with naming(kind):
            plan = compile_spec(selected(kind, machine, decomposition), is_proved=False)
            rewritten = compile_spec(
                selected(kind, machine, decomposition, passes=PASSES), is_proved=False
            )
            verify(rewritten)
            assert rewritten.n_tasks > plan.n_tasks
            assert rewritten.elements.sum() == plan.elements.sum()
            check_result(rewritten, order=random.Random(kind))


@pytest.mark.many
@SELECTED
def test_one_ranks_program_is_the_plans_restriction(machine, decomposition, kinds):
    """Every fourth rank of each kind, so that all ranks have their turn."""
    for turn, kind in briefly(enumerate(kinds), f"restricted {machine}"):
        spec = selected(kind, machine, decomposition, passes=PASSES[:1])
        plan = compile_spec(spec, is_proved=False)
        for rank in range(turn % 4, plan.n_ranks, 4):
            with naming(kind, rank):
                assert_equal(restrict(plan, rank), compile_spec(spec, rank=rank))


@pytest.mark.parametrize("name", ["hierarchical", "full_lane"])
@pytest.mark.parametrize("machine", ["3x4", "1,3,2", "cyclic"])
def test_gathered_reduces_in_any_order_keep_to_their_plan(machine, name):
    """With passes, rank by rank, and in any legal order."""
    spec = make_spec(
        "reduce", "auto", 0, MACHINES[machine], decomposition={"name": name, "form": "gather"},
        root=4, count=17, in_place=True, datatype="int32", op="sum", passes=PASSES,
    )  # fmt: skip
    plan = compile_spec(spec, is_proved=False)
    verify(plan)
    for seed in range(6):
        check_result(plan, order=random.Random(seed), seed=seed)
    plan = compile_spec(spec.replace(passes=()))
    for rank in range(plan.n_ranks):
        assert_equal(restrict(plan, rank), compile_spec(spec.replace(passes=()), rank=rank))


@pytest.mark.many
@pytest.mark.parametrize(("machine", "decomposition"), SELECTION, ids=str)
def test_blocks_of_any_size(machine, decomposition):
    for kind in BLOCKS:
        rng = random.Random(f"{machine}{kind}")
        for turn in range(3):
            in_place = turn < 2
            spec = selected(kind, machine, decomposition, count=1, in_place=in_place)
            counts = random_counts(rng, kind, spec.machine.n_ranks, in_place)
            fields = gaps(rng, kind, counts, in_place) if turn else {}
            with naming(kind, counts):
                plan = compile_spec(with_counts(spec, counts, **fields), is_proved=False)
                verify(plan)
                check_result(plan)


ELSEWHERE: list[tuple[str, Any]] = [
    *through_leaders(),
    ("3x4", {"name": "mesh", "shape": [4, 3]}),
    ("5,5,2", {"name": "mesh", "shape": [2, 3, 2]}),
    *((name, "guideline") for name in ("2x3", "1,3,2", "cyclic", "one rank")),
]
DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")


@pytest.mark.many
@by_machine(ELSEWHERE)
def test_blocks_of_any_distribution(cases):
    """Three kinds for each in turns, with one distribution, root, way and layout."""
    for number, (machine, decomposition) in enumerate(cases):
        for turn in range(3 * number, 3 * number + 3):
            kind = BLOCKS[turn % len(BLOCKS)]
            with naming(machine, decomposition, kind):
                check_distribution(EVERYWHERE[machine], decomposition, kind)


def check_distribution(machine, decomposition, kind):
    turn = crc32(f"{machine}{decomposition}{kind}".encode())
    rng = random.Random(turn)
    n_ranks, in_place = Machine.model_validate(machine).n_ranks, turn % 2 == 1
    counts = drawn_counts(DISTRIBUTIONS[turn // 2 % 5], kind, n_ranks, turn, in_place)
    spec = make_spec(
        kind, "auto", 0, machine, decomposition=decomposition, root=rng.randrange(n_ranks),
        count=1, in_place=in_place, **next(flavours(kind, commutative=True)),
    )  # fmt: skip
    fields = gaps(rng, kind, counts, in_place) if turn % 3 else {}
    plan = compile_spec(with_counts(spec, counts, **fields), is_proved=False)
    verify(plan)
    check_result(plan)


@pytest.mark.quick
@pytest.mark.parametrize("kind", KINDS)
def test_orders_without_runs_are_refused_by_name(kind):
    """On a cyclic order no two neighbors share a node, so nodes have no operand of their own."""
    for name in ("hierarchical", "full_lane"):
        for commutative in (True, False) if COLLECTIVES[kind].has_op else (True,):
            spec = make_spec(
                kind, "auto", 0, MACHINES["cyclic"], decomposition=name, count=5,
                **next(flavours(kind, commutative)),
            )  # fmt: skip
            what = f"{kind} of a non-commutative op" if not commutative else kind
            if is_refused(MACHINES["cyclic"], name, kind, commutative):
                with pytest.raises(AlgorithmError) as raised:
                    compile_spec(spec)
                assert str(raised.value) == (
                    f"decomposition: {name} {what} combines runs of consecutive ranks on a node, "
                    "and this rank order has none; use flat, a mesh or auto"
                )
                for instead in ("flat", {"name": "mesh", "shape": [3, 2]}, "auto"):
                    compile_spec(spec.replace(decomposition=instead), is_proved=False)
            else:
                compile_spec(spec)


@pytest.mark.quick
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("ranks", [[3], [1, 1, 1], [4, 4], [2, 5, 1], [3, 3, 3, 3]], ids=str)
def test_barriers_are_decomposed(ranks, transport):
    """Ranks that lead know all after the columns; the others wait for their leaders."""
    machine = {"nodes": len(ranks), "ranks_per_node": ranks, "numa_domains": max(ranks) // 2 or 1}
    forms = ["hierarchical", "full_lane", {"name": "hierarchical", "by": "numa"},
             {"name": "hierarchical", "node": "full_lane"}]  # fmt: skip
    forms += [{"name": "multi_leader", "leaders": 2}] if max(ranks) > 1 else []
    forms += [{"name": "mesh", "by": "node"}] if len(set(ranks)) == 1 else []
    for form in forms:
        spec = make_spec("barrier", "auto", 0, machine, decomposition=form, transport=transport)
        plan = compile_spec(spec, is_proved=False)
        verify(plan)
        assert plan.n_tasks > 0, form


@pytest.mark.quick
@pytest.mark.parametrize("choice", ["native", {"node": "native"}, {"lane": "native"}], ids=str)
def test_calls_of_a_barrier_wait_for_each_other(choice):
    """They move no data, from which their order could follow."""
    for form in ("hierarchical", "full_lane"):
        machine = {"nodes": 2, "ranks_per_node": 3}
        verify(
            compile_spec(
                make_spec("barrier", choice, 0, machine, decomposition=form), is_proved=False
            )
        )


def test_a_barrier_consists_of_no_other_collectives():
    spec = make_spec("barrier", "auto", 0, MACHINES["2x3"], decomposition="guideline")
    with pytest.raises(AlgorithmError, match="barrier consists of no other collectives; use flat"):
        compile_spec(spec)


def test_a_barrier_through_leaders_sends_fewer_messages_between_nodes():
    spec = make_spec("barrier", "dissemination", 0, {"nodes": 4, "ranks_per_node": 4})
    flat = compile_spec(spec)
    plan = compile_spec(spec.replace(decomposition="hierarchical", algorithms="auto"))
    crossing = [(one.op == Op.SEND) & (one.lane >= 0) for one in (flat, plan)]
    assert crossing[1].sum() == 8 < crossing[0].sum()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("decomposition", "message"),
    [
        ({"name": "guideline", "form": "gather"},
         "decomposition.form: allreduce has no guideline 'gather'; "
         "use reduce_scatter+allgather or reduce+bcast"),
        ({"name": "full_lane", "form": "transpose"},
         "decomposition.form: allreduce has no form 'transpose' through leaders; "
         "none: leave it out"),
        ({"name": "full_lane", "node": {"name": "mesh", "shape": [2, 2]}},
         "decomposition.shape: 2 x 2 does not fit a group of 3 ranks; "
         "use extents whose product is 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(decomposition, message):
    spec = make_spec("allreduce", "auto", 0, MACHINES["2x3"], decomposition=decomposition, count=9)
    with pytest.raises(AlgorithmError) as raised:
        compile_spec(spec)
    assert str(raised.value) == message


ORDERS: list[dict[str, Any]] = [
    {"nodes": 2, "ranks_per_node": 4, "rank_order": "cyclic"},
    {"nodes": 3, "ranks_per_node": [3, 1, 2]},
    {"nodes": 3, "ranks_per_node": [3, 1, 2], "rank_order": "cyclic"},
    {"nodes": 2, "ranks_per_node": 4, "rank_order": [0, 1, 0, 0, 1, 1, 0, 1]},
]
REDUCTIONS = ("reduce", "allreduce", "reduce_scatter_block")
NAMES = ("hierarchical", "full_lane", "guideline", "mesh", "auto")
WHAT = [
    *((kind, "sum") for kind in (*REDUCTIONS, *SCANS, "bcast", "allgather", "alltoall")),
    *((kind, AFFINE) for kind in REDUCTIONS),
]


def test_the_page_says_what_holds_of_rank_orders() -> None:
    page = " ".join((ROOT / "docs" / "decompositions.md").read_text().split())
    assert "any number of ranks per node and any rank order, with one exception:" in page


@pytest.mark.many
@pytest.mark.long
@looped("case", pairs({"machine": ORDERS, "name": NAMES, "what": WHAT}))
def test_what_the_page_says_of_rank_orders(case: dict[str, Any]) -> None:
    """Any number of ranks per node and any order, but for operands in order without runs."""
    machine, name, (kind, op) = case["machine"], case["name"], case["what"]
    n_ranks = 8 if machine["nodes"] == 2 else 6
    decomposition = {"name": name, "shape": [2, n_ranks // 2]} if name == "mesh" else name
    in_order = kind in SCANS or op == AFFINE
    has_no_runs = machine.get("rank_order") == "cyclic"
    spec = make_spec(
        kind, "auto", n_ranks, machine, count=12, op=op, datatype="uint64",
        decomposition=decomposition,
    )  # fmt: skip
    if in_order and has_no_runs and name in ("hierarchical", "full_lane"):
        with pytest.raises(AlgorithmError, match="combines runs of consecutive ranks"):
            compile_spec(spec)
    else:
        verify(compile_spec(spec, is_proved=False))
