"""Every algorithm on every small case: proved once per structure, which holds for every type.

And run: for every type on few ranks, on more by turns.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError
from collplan.planner.verify import verify
from collplan.specs.collective import COLLECTIVES
from oracle import check_result, make_spec
from structures import flavours, structures, thinned

RANKS = (*range(1, 10), 16, 17)
FEW = 4
"""Up to how many ranks a structure is run for every type."""
SOME = 7
"""Up to how many ranks every structure is run."""
CASES = [
    pytest.param(kind, algorithm, n_ranks, id=f"{kind}-{algorithm.name}-{n_ranks}")
    for kind in registry.kinds()
    for algorithm in registry.of(kind)
    for n_ranks in RANKS
]


@pytest.mark.parametrize(("kind", "algorithm", "n_ranks"), CASES)
def test_computes_its_collective_or_refuses(kind, algorithm, n_ranks):
    n_proved = 0
    cases = structures(kind, n_ranks) if n_ranks <= SOME else thinned(kind, n_ranks, n_ranks)
    for turn, (root, count, in_place, commutative) in enumerate(cases):
        plan = None
        chosen = list(flavours(kind, commutative))
        if n_ranks > FEW:
            # The proof knows no types; by turns a structure is run with one of them.
            chosen = [chosen[turn // 2 * 3 // 2 % len(chosen)]]
        for flavour in chosen:
            spec = make_spec(
                kind, algorithm.name, n_ranks, root=root, count=count, in_place=in_place, **flavour
            )
            refusal = algorithm.refusal(n_ranks, commutative)
            if refusal is not None:
                with pytest.raises(AlgorithmError, match=f"{kind}/{algorithm.name}: .*; use '"):
                    compile_plan(spec)
                continue
            if plan is None:
                plan = compile_plan(spec)
                verify(plan)
                n_proved += 1
            check_result(plan, spec)
    is_refused = [algorithm.refusal(n_ranks, c) is not None for c in (True, False)]
    assert n_proved > 0 or any(is_refused)


@pytest.mark.parametrize("kind", registry.kinds())
def test_any_legal_order_gives_the_result(kind):
    """Twenty random orders of an 8- and a 6-rank plan of every algorithm."""
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
            for seed in range(20):
                check_result(plan, order=random.Random(seed), seed=seed)


@pytest.mark.parametrize("kind", registry.kinds())
@pytest.mark.parametrize("max_bytes", [1, 24, "1KiB"])
def test_segmented_plans_compute_the_same(kind, max_bytes):
    for algorithm in registry.of(kind):
        for n_ranks, root, in_place in ((1, 0, False), (5, 3, True), (8, 1, False)):
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
            plan = compile_plan(spec)
            verify(plan)
            check_result(plan)
            check_result(plan, order=random.Random(n_ranks))


TREES = [
    pytest.param(kind, algorithm.name, id=f"{kind}-{algorithm.name}")
    for kind in registry.kinds()
    for algorithm in registry.of(kind)
    if algorithm.tree
]
LEVELS = (0, 1, 2, 7)
COMM_CORES = (1, 2, None)


@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize(("kind", "algorithm"), TREES)
def test_split_trees_compute_the_same(kind, algorithm, transport):
    """Some of all structures, so that all roots, counts and ways occur; each with another split."""
    number = 0
    for n_ranks, step in ((1, 1), (2, 5), (6, 7)):
        for root, count, in_place, commutative in islice(structures(kind, n_ranks), 0, None, step):
            number += 1
            levels = LEVELS[number % len(LEVELS)]
            comm_cores = COMM_CORES[number // len(LEVELS) % len(COMM_CORES)]
            split = {"name": "split_tree", "levels": levels, "comm_cores": comm_cores}
            spec = make_spec(
                kind, algorithm, n_ranks, {"ranks_per_node": n_ranks, "cores": n_ranks + 3},
                root=root, count=count, in_place=in_place, passes=[split],
                **next(iter(flavours(kind, commutative))),
            ).replace(transport=transport)  # fmt: skip
            plan = compile_plan(spec)
            verify(plan)
            check_result(plan, order=random.Random(number))


@pytest.mark.parametrize(("policy", "transport"), [("numa", "messages"), ("odd_even", "shared")])
@pytest.mark.parametrize("kind", registry.kinds())
def test_placed_plans_compute_the_same(kind, policy, transport):
    passes = [{"name": "place_progress", "policy": policy}, "add_compute"]
    for algorithm in registry.legal(kind, 6, commutative=True):
        machine = {"ranks_per_node": 6, "cores": 8, "numa_domains": 2}
        flavour = next(iter(flavours(kind, commutative=True)))
        spec = make_spec(
            kind, algorithm.name, 6, machine, root=4, count=7, passes=passes, **flavour
        )
        plan = compile_plan(spec.replace(transport=transport))
        verify(plan)
        check_result(plan, order=random.Random(6))


def test_knomial_takes_every_radix():
    for radix in range(2, 11):
        for n_ranks in (1, 2, 9, 10, 27):
            spec = make_spec(
                "bcast", {"name": "knomial", "radix": radix}, n_ranks, root=n_ranks // 2, count=5
            )
            plan = compile_plan(spec)
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
