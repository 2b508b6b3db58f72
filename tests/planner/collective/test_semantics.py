"""Counts that differ from rank to rank go through specs, semantics and builder alike."""

from __future__ import annotations

import random

import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import Algorithm, registry
from collplan.planner.collective.semantics import postcondition
from collplan.planner.errors import AlgorithmError
from collplan.planner.metrics import measure
from collplan.planner.verify import verify
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import AFFINE, REGULAR, check_result, gaps, make_spec, random_counts, with_counts
from tiers import briefly

KINDS = ("gather", "scatter", "allgather", "reduce_scatter_block", "alltoall")


@pytest.mark.many
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_ranks", [1, 2, 5, 8])
def test_every_algorithm_takes_blocks_of_any_size(kind, n_ranks):
    rng = random.Random(n_ranks)
    for algorithm in briefly(registry.of(kind), f"{kind} {n_ranks}"):
        for trial in range(4):
            root = rng.randrange(n_ranks)
            in_place = bool(trial % 2)
            counts = random_counts(rng, kind, n_ranks, in_place)
            op = {"op": AFFINE, "datatype": "uint64"} if COLLECTIVES[kind].has_op else {}
            for flavour in ({"datatype": "int32"}, op):
                spec = make_spec(
                    kind, algorithm.name, n_ranks, count=1, root=root, in_place=in_place, **flavour
                )
                spec = with_counts(spec, counts, **gaps(rng, kind, counts, in_place))
                commutative = flavour is not op or not op
                limits = {"is_regular": False, "has_topology": algorithm.is_packed}
                if algorithm.refusal(n_ranks, commutative, **limits) is not None:
                    with pytest.raises(AlgorithmError):
                        compile_plan(spec)
                    continue
                plan = compile_plan(spec, is_proved=False)
                verify(plan)
                check_result(plan, seed=trial)
                measure(plan.replace(spec=None))


def test_an_algorithm_for_equal_blocks_says_why_it_refuses_others():
    one = Algorithm("alltoall", "own", registry.find("alltoall", "pairwise").rounds,
                    regular_only=True)  # fmt: skip
    with pytest.raises(AlgorithmError, match=r"alltoall/own: the blocks differ in size; use 'bru"):
        registry.require(one, 3, commutative=True, is_regular=False)


def test_the_contents_of_the_first_ranks_are_those_of_all_cut_short():
    for kind in REGULAR:
        collective = make_spec(kind, "auto", 4, count=3).collective
        first, whole = postcondition(collective, 4, n_first=2), postcondition(collective, 4)
        for name, column in vars(whole.of_first(2)).items():
            assert vars(first)[name].tolist() == column.tolist(), kind
