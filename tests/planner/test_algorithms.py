"""Every algorithm on every small case: proved once per structure, which holds for every type.

And run: for every type on few ranks, on more by turns.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.rounds import Group
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs.collectives.collective import COLLECTIVES
from looping import looped, naming
from oracle import AFFINE, VECTORS, check_result, drawn_counts, gaps, make_spec, with_counts
from rank_programs import assert_equal
from structures import dealt, flavours
from tiers import briefly

RANKS = range(1, 18)
SOME = 5
"""Up to how many ranks more structures are proved."""
ALGORITHMS = [
    pytest.param(kind, algorithm, id=f"{kind}-{algorithm.name}")
    for kind in registry.kinds()
    for algorithm in registry.of(kind)
]


@pytest.mark.many
@pytest.mark.parametrize(("kind", "algorithm"), ALGORITHMS)
def test_computes_its_collective_or_refuses(kind, algorithm):
    """On every number of ranks; every second structure is also run, with one of the types."""
    n_proved, number = 0, registry.of(kind).index(algorithm)
    for n_ranks in sorted({8, *briefly(RANKS, f"{kind} {algorithm.name}")}):
        cases = dealt(kind, n_ranks, n_ranks + number, 4 if n_ranks <= SOME else 2)
        for turn, (root, count, in_place, commutative) in enumerate(cases):
            types = list(flavours(kind, commutative))
            spec = make_spec(
                kind, algorithm.name, n_ranks, root=root, count=count, in_place=in_place,
                **types[(turn // 2 + n_ranks) % len(types)],
            )  # fmt: skip
            with naming(n_ranks, root, count, in_place, commutative):
                level = spec.collective.level
                has_topology = algorithm.is_packed
                limits = {"level": level, "has_topology": has_topology}
                if algorithm.refusal(n_ranks, commutative, **limits) is not None:
                    with pytest.raises(AlgorithmError, match=f"{kind}/{algorithm.name}: .*; use '"):
                        compile_plan(spec)
                    continue
                plan = compile_plan(spec, is_proved=False)
                verify(plan)
                n_proved += 1
                if turn % 2 == 0:
                    check_result(plan)
    assert n_proved > 0


DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")
OPTIONS = {
    ("allgather", "circulant"): ({"blocks": 1}, {"blocks": 3}, {}),
    ("reduce_scatter_block", "circulant"): ({"blocks": 3}, {}, {"blocks": "auto"}),
    ("alltoall", "bruck"): ({}, {"radix": 3}, {"radix": 17}),
}
"""Options of algorithms on blocks, by kind and name, which cases take in turns."""


@pytest.mark.many
@pytest.mark.parametrize("kind", VECTORS)
@looped("n_ranks", [*range(1, 10), 16, 17])
def test_blocks_of_any_distribution(kind, n_ranks):
    """Roots, calls in place, gaps, options and distributions in turns."""
    rng = random.Random(f"{kind}{n_ranks}")
    for number, algorithm in enumerate(registry.legal(kind, n_ranks, commutative=True)):
        for turn, distribution in enumerate(DISTRIBUTIONS, number):
            if turn % len(DISTRIBUTIONS) > (2 if n_ranks <= SOME else 0):
                continue
            options = OPTIONS.get((kind, algorithm.name), ({},))
            in_place = (number + turn // 2 + n_ranks) % 2 == 1
            spec = make_spec(
                kind, {"name": algorithm.name, **options[(turn + n_ranks) % len(options)]}, n_ranks,
                root=rng.choice((0, n_ranks - 1, rng.randrange(n_ranks))), count=1,
                in_place=in_place, **next(iter(flavours(kind, commutative=True))),
            )  # fmt: skip
            counts = drawn_counts(distribution, kind, n_ranks, turn, in_place)
            has_gaps = (turn + n_ranks) % 3 > 0
            fields = gaps(rng, kind, counts, in_place) if has_gaps else {}
            plan = compile_plan(with_counts(spec, counts, **fields), is_proved=False)
            verify(plan)
            check_result(plan, order=random.Random(turn))


@pytest.mark.parametrize("kind", ["bcast", "reduce", "allgather"])
@looped("n_ranks", [1, 2, 3, 7, 8, 12, 20, 33, 40])
def test_circulant_takes_any_number_of_blocks(kind, n_ranks):
    """33 is one of the numbers of ranks for which another implementation sends wrong blocks."""
    for turn, blocks in enumerate((1, 2, 5, 8, 99)):
        spec = make_spec(
            kind, {"name": "circulant", "blocks": blocks}, n_ranks, root=(3 * turn) % n_ranks,
            count=11, in_place=turn % 2 == 1, datatype="int32",
        )  # fmt: skip
        plan = compile_plan(spec, is_proved=False)
        verify(plan)
        check_result(plan)
        if kind == "allgather" and n_ranks > SOME:
            break


@pytest.mark.many
@looped("radix", [2, 3, 4, 7, 40])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("alltoall", "bruck"), ("allgather", "bruck"), ("allgather", "recursive_multiplying"),
     ("allgather", "locality_bruck"), ("reduce_scatter_block", "recursive_multiplying"),
     ("reduce_scatter_block", "bruck")],
)  # fmt: skip
def test_blocks_move_by_every_radix(kind, name, radix):
    in_order = not registry.find(kind, name).commutative_only
    flavour = {"datatype": "uint64", "op": AFFINE} if COLLECTIVES[kind].has_op and in_order else {}
    for n_ranks in (1, 2, 8, 9, 11):
        chosen = {"name": name, "radix": radix}
        spec = make_spec(kind, chosen, n_ranks, count=2, **flavour)
        for one in (spec, with_counts(spec, drawn_counts("uniform", kind, n_ranks, radix))):
            plan = compile_plan(one, is_proved=False)
            verify(plan)
            check_result(plan)


@looped("radix", [2, 3, 5, 16])
@looped("kind, name", [("allreduce", "recursive_multiplying"), ("barrier", "dissemination")])
def test_groups_of_every_radix_keep_the_order(kind, name, radix):
    for n_ranks in (1, 2, 6, 7, 11, 12, 15):
        flavour = {"datatype": "uint64", "op": AFFINE} if kind == "allreduce" else {}
        plan = compile_plan(make_spec(kind, {"name": name, "radix": radix}, n_ranks, count=5,
                                      **flavour), is_proved=False)  # fmt: skip
        verify(plan)
        check_result(plan)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter_block"])
def test_pat_takes_every_aggregation(kind):
    for n_ranks in range(1, 18):
        for aggregation in (1, 3, 4, 64):
            spec = make_spec(kind, {"name": "pat", "aggregation": aggregation}, n_ranks, count=3)
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)
            assert all(
                aggregation * 3 >= int(plan.elements[row])
                for row in np.flatnonzero(plan.op == Op.SEND)
            )


@pytest.mark.many
@pytest.mark.parametrize("kind", VECTORS)
def test_one_ranks_program_of_unlike_blocks_is_the_plans_restriction(kind):
    for algorithm in registry.legal(kind, 6, commutative=True):
        for distribution in ("linear", "sparse"):
            counts = drawn_counts(distribution, kind, 6)
            spec = with_counts(make_spec(kind, algorithm.name, 6, root=4, count=1), counts)
            plan = compile_plan(spec)
            for rank in range(6):
                assert_equal(restrict(plan, rank), compile_plan(spec, rank=rank))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("bcast", {"name": "circulant", "blocks": 0},
         "algorithms.blocks: 0 is not an integer of at least 1"),
        ("bcast", {"name": "circulant", "blocks": "many"},
         "algorithms.blocks: 'many' is not an integer of at least 1"),
        ("bcast", {"name": "binary", "dealt": 1},
         "algorithms.dealt: 1 is neither true nor false"),
        ("alltoall", {"name": "bruck", "radix": 1},
         "algorithms.radix: 1 is not an integer of at least 2"),
        ("allreduce", {"name": "circulant", "blocks": "many"},
         "algorithms.blocks: 'many' is not an integer of at least 1"),
        ("allgather", {"name": "bruck", "radix": 1},
         "algorithms.radix: 1 is not an integer of at least 2"),
        ("allgather", {"name": "locality_bruck", "radix": 1},
         "algorithms.radix: 1 is not an integer of at least 2"),
        ("allgather", {"name": "pat", "aggregation": 0},
         "algorithms.aggregation: 0 is not an integer of at least 1"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(kind, options, message):
    with pytest.raises(AlgorithmError, match=f"^{message}"):
        compile_plan(make_spec(kind, options, 4, count=8))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, one.name)
        for kind in VECTORS
        for one in registry.of(kind)
        if one.by_counts and not one.is_packed
    ],
)
@looped("size", [1, 2, 3, 8])
def test_rounds_are_as_many_for_all_counts(kind, name, size):
    """Groups of other counts are parts of one phase, and programs of one rank know only some."""
    algorithm, rng = registry.find(kind, name), np.random.default_rng(size)
    for options in OPTIONS.get((kind, name), ({},)):
        every = {**(algorithm.options or {}), **options, "blocks": 2}
        found = set()
        for counts in (np.zeros((size, size), int), np.ones((size, size), int),
                       rng.integers(0, 3, (size, size))):  # fmt: skip
            is_like = kind != "alltoall" or (counts == counts[0, 0]).all()
            chunks = np.tile(counts[:1], 2 if name == "circulant" else 1)
            pairs = None if is_like else counts[None]
            group = Group(size, 0, True, chunks, every, pairs)
            found.add(len(list(algorithm.steps(group))))
        assert len(found) == 1, options


@pytest.mark.quick
@pytest.mark.parametrize("name", ["linear", "pairwise", "bruck"])
def test_where_nothing_is_to_be_sent_nothing_is_sent(name):
    counts = np.zeros((6, 6), dtype=int)
    counts[1, 4], counts[4, 4], counts[5, 0] = 3, 2, 1
    plan = compile_plan(with_counts(make_spec("alltoall", name, 6, count=1), counts))
    assert measure(plan).n_messages == (2 if name != "bruck" else 3)  # 3 ranks ahead: two hops
    assert measure(plan).n_rounds <= 2


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_any_legal_order_gives_the_result(kind):
    """Four random orders of an 8- and a 6-rank plan of every algorithm."""
    for algorithm in registry.of(kind):
        for n_ranks in (6, 8):
            commutative = not algorithm.commutative_only
            if algorithm.refusal(n_ranks, commutative) is not None:
                commutative = True
            if algorithm.refusal(n_ranks, commutative) is not None:
                continue
            flavour = next(iter(flavours(kind, commutative)))
            spec = make_spec(kind, algorithm.name, n_ranks, root=2, count=7, **flavour)
            plan = compile_plan(spec)
            for seed in range(4):
                check_result(plan, order=random.Random(seed), seed=seed)


@pytest.mark.many
@pytest.mark.parametrize("kind", registry.kinds())
def test_segmented_plans_compute_the_same(kind):
    for number, algorithm in enumerate(registry.of(kind)):
        for turn, (n_ranks, root, in_place) in enumerate(
            ((1, 0, False), (5, 3, True), (8, 1, False), (4, 0, True)), number
        ):
            max_bytes = (24, "1KiB", 1)[turn % 3]
            commutative = not COLLECTIVES[kind].has_op
            if algorithm.refusal(n_ranks, commutative) is not None:
                commutative = True
            if algorithm.refusal(n_ranks, commutative) is not None:
                continue
            spec = make_spec(
                kind, algorithm.name, n_ranks, root=root, count=11, in_place=in_place,
                passes=[{"name": "segment", "max_bytes": max_bytes}],
                **next(iter(flavours(kind, commutative))),
            )  # fmt: skip
            with naming(algorithm.name, n_ranks, max_bytes):
                plan = compile_plan(spec, is_proved=False)
                verify(plan)
                check_result(plan, order=random.Random(n_ranks))


TREES = [
    pytest.param(kind, algorithm.name, id=f"{kind}-{algorithm.name}")
    for kind in registry.kinds()
    for algorithm in registry.of(kind)
    if algorithm.tree
]
LEVELS = (0, 1, 2, 7)
COMM_CORES = (1, 2, None)
TRANSPORTS = ("messages", "shared")


@pytest.mark.many
@pytest.mark.parametrize(("kind", "algorithm"), TREES)
def test_split_trees_compute_the_same(kind, algorithm):
    """Some of all structures, each with another split, so that together they have all of them."""
    number = sum(map(ord, algorithm))
    for n_ranks, n in ((1, 1), (2, 3), (6, 8)):
        for root, count, in_place, commutative in dealt(kind, n_ranks, number, n):
            if registry.find(kind, algorithm).refusal(n_ranks, commutative) is not None:
                commutative = True
            number += 1
            levels, transport = LEVELS[number % len(LEVELS)], TRANSPORTS[number // 2 % 2]
            comm_cores = COMM_CORES[number % len(COMM_CORES)]
            split = {"name": "split_tree", "levels": levels, "comm_cores": comm_cores}
            spec = make_spec(
                kind, algorithm, n_ranks, {"ranks_per_node": n_ranks, "cores": n_ranks + 3},
                root=root, count=count, in_place=in_place, passes=[split],
                **next(iter(flavours(kind, commutative))),
            ).replace(transport=transport)  # fmt: skip
            with naming(n_ranks, root, count, in_place, commutative, split, transport):
                plan = compile_plan(spec, is_proved=False)
                verify(plan)
                check_result(plan, order=random.Random(number))


@pytest.mark.many
@looped("policy, transport", [("numa", "messages"), ("odd_even", "shared")])
@pytest.mark.parametrize("kind", registry.kinds())
def test_placed_plans_compute_the_same(kind, policy, transport):
    passes = [{"name": "place_progress", "policy": policy}, "add_compute"]
    for algorithm in registry.legal(kind, 6, commutative=True):
        machine = {"ranks_per_node": 6, "cores": 8, "numa_domains": 2}
        flavour = next(iter(flavours(kind, commutative=True)))
        spec = make_spec(
            kind, algorithm.name, 6, machine, root=4, count=7, passes=passes, **flavour
        )
        plan = compile_plan(spec.replace(transport=transport), is_proved=False)
        verify(plan)
        check_result(plan, order=random.Random(6))


def test_knomial_takes_every_radix():
    for radix in range(2, 11):
        for n_ranks in (1, 2, 9, 10, 27):
            spec = make_spec(
                "bcast", {"name": "knomial", "radix": radix}, n_ranks, root=n_ranks // 2, count=5
            )
            plan = compile_plan(spec, is_proved=False)
            verify(plan)
            check_result(plan)


def test_a_radix_beyond_all_ranks_makes_the_tree_of_their_number():
    wide, widest = (
        compile_plan(make_spec("bcast", {"name": "knomial", "radix": radix}, 8, root=3, count=5))
        for radix in (8, 2**62)
    )
    for name in ("rank", "peer", "round", "tag"):
        assert getattr(wide, name).tolist() == getattr(widest, name).tolist()
    check_result(widest)
