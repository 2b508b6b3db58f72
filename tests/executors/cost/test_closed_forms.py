"""The textbooks' closed forms: the simulator agrees to the last bit.

One rank a node, one lane, copies and reductions free, all messages eager. A
message of s bytes alone takes 2o + L + (s - 1)G; with o = 0 that is α + (s - 1)β.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, log2

import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.specs import Network, PlanSpec
from cost_schedules import network
from looping import looped

LOGGP = "L=2500,o=1500,g=1000,G=6,O=0,S=1000000000"
GAP_BOUND = "L=100,o=10,g=2000,G=0.5,O=0,S=1000000000"
ALPHA_BETA = "L=1000,o=0,g=0,G=2,O=0,S=1000000000"
PARAMETERS = [LOGGP, ALPHA_BETA]


def makespan_ns(kind: str, algorithm: str, n_ranks: int, count: int, costs: Network) -> float:
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": n_ranks},
            "collective": {"kind": kind, "count": count, "datatype": "int8"},
            "algorithms": algorithm,
        }
    )
    return simulate(compile_plan(spec), costs).makespan_ns


def message(costs: Network, n_bytes: int) -> float:
    link = costs.network
    return 2 * link.o_ns + link.L_ns + (n_bytes - 1) * link.G_ns_per_byte


def interval(costs: Network, n_bytes: int) -> float:
    """Return how long after one message a rank can send the next."""
    link = costs.network
    return max(link.o_ns, link.g_ns + (n_bytes - 1) * link.G_ns_per_byte)


def rounds(n_ranks: int) -> int:
    return ceil(log2(n_ranks))


Form = Callable[[Network, int, int], float]
"""A makespan by costs, ranks p and bytes c of the collective's count."""
POWERS: dict[tuple[str, str], Form] = {
    ("bcast", "binomial"): lambda costs, p, c: rounds(p) * message(costs, c),
    ("reduce", "binomial"): lambda costs, p, c: rounds(p) * message(costs, c),
    ("allreduce", "recursive_doubling"): lambda costs, p, c: rounds(p) * message(costs, c),
    ("allgather", "recursive_doubling"): lambda costs, p, c: sum(
        message(costs, c << i) for i in range(rounds(p))
    ),
    ("allgather", "bruck"): lambda costs, p, c: sum(
        message(costs, c << i) for i in range(rounds(p))
    ),
    ("alltoall", "bruck"): lambda costs, p, c: rounds(p) * message(costs, p // 2 * c),
    ("reduce_scatter_block", "recursive_halving"): lambda costs, p, c: sum(
        message(costs, c << i) for i in range(rounds(p))
    ),
}
ANY: dict[tuple[str, str], Form] = {
    ("bcast", "chain"): lambda costs, p, c: (p - 1) * message(costs, c),
    ("bcast", "linear"): lambda costs, p, c: (p - 2) * interval(costs, c) + message(costs, c),
    ("scatter", "linear"): lambda costs, p, c: (p - 2) * interval(costs, c) + message(costs, c),
    ("allgather", "ring"): lambda costs, p, c: (p - 1) * message(costs, c),
    ("reduce_scatter_block", "ring"): lambda costs, p, c: (p - 1) * message(costs, c),
    ("allreduce", "ring"): lambda costs, p, c: 2 * (p - 1) * message(costs, c // p),
    ("scan", "chain"): lambda costs, p, c: (p - 1) * message(costs, c),
}


@looped("text", PARAMETERS)
@looped("n_ranks", [2, 4, 16])
@pytest.mark.parametrize("named", POWERS, ids="/".join)
def test_on_powers_of_two(named: tuple[str, str], n_ranks: int, text: str) -> None:
    costs = network(text)
    for count in (1, 1000):
        expected = POWERS[named](costs, n_ranks, count)
        assert Fraction(makespan_ns(*named, n_ranks, count, costs)) == Fraction(expected)


@pytest.mark.many
@looped("text", PARAMETERS)
@looped("n_ranks", [2, 3, 7, 16])
@pytest.mark.parametrize("named", ANY, ids="/".join)
def test_on_any_number_of_ranks(named: tuple[str, str], n_ranks: int, text: str) -> None:
    costs = network(text)
    for count in (n_ranks, 100 * n_ranks):
        expected = ANY[named](costs, n_ranks, count)
        assert Fraction(makespan_ns(*named, n_ranks, count, costs)) == Fraction(expected)


@looped("algorithm", ["pairwise", "linear"])
@looped("n_ranks", [2, 5, 8])
def test_an_alltoall_of_independent_messages_is_bound_by_the_gap(
    algorithm: str, n_ranks: int
) -> None:
    """All sends are ready at once: p - 1 leave a gap apart, while adapters take others in."""
    costs = network(GAP_BOUND)
    costs = costs.replace(network=costs.network.replace(offload=True))
    for count in (1, 1000):
        expected = (n_ranks - 2) * interval(costs, count) + message(costs, count)
        assert makespan_ns("alltoall", algorithm, n_ranks, count, costs) == expected
