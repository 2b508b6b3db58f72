"""Algorithms of allreduce."""

from __future__ import annotations

from collplan.planner.algorithms.bcast import binomial as bcast_binomial
from collplan.planner.algorithms.building_blocks.circulant import (
    circulant_allgather,
    circulant_reduce_scatter,
)
from collplan.planner.algorithms.building_blocks.folding import (
    doubling_gather,
    fold,
    halving_reduce_scatter,
)
from collplan.planner.algorithms.building_blocks.two_trees import (
    combine,
    filling_rounds,
    spread,
)
from collplan.planner.algorithms.reduce import to_rank
from collplan.planner.algorithms.reduce_scatter_block import linear as reduce_scatter_linear
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import floor_log2


@algorithm("allreduce", "circulant", parts="size", commutative_only=True, next_best_for=("long",))
def circulant(group: Group) -> Rounds:
    """Reduce-scatter by halves, then allgather the same way back, for any number of ranks.

    Partial results lie where they belong in the receive buffer, wrapped
    around its end, so nothing is rotated afterwards.

    Notes
    -----
    2·⌈log₂ p⌉ rounds and 2(p - 1)/p·c per rank for any p: the bytes are optimal.

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 2.
    """
    size, out = group.size, group.output
    yield from circulant_reduce_scatter(group, lambda me, slot, n: at(out, (me + slot) % size, n))
    yield from circulant_allgather(group)


@algorithm("allreduce", "linear", parts="size", best_for=("shared",), streams=True, per_pair=2.0)
def linear(group: Group) -> Rounds:
    """Send every part straight to the rank that combines it, which sends it to all.

    Notes
    -----
    2(p - 1) rounds, as a rank sends one at a time; 2(p - 1)/p·c per rank, which
    is optimal; (p - 1)/p·c of scratch. Operands are combined in rank order.
    Through shared memory every rank copies its vector there once, but for its
    own part, and reads p - 1 operands and then p - 1 results in place.
    """
    yield from reduce_scatter_linear(group)
    me, size = group.positions, group.size
    part = at(group.output, me)
    yield Round.of(Message(me, (me + d) % size, part, part) for d in range(1, size))


@algorithm("allreduce", "rabenseifner", parts="power_of_two", next_best_for=("long",))
def rabenseifner(group: Group) -> Rounds:
    """Reduce-scatter by recursive halving, then allgather by recursive doubling.

    Notes
    -----
    2·log₂ p rounds for powers of two, two more else; 2(p - 1)/p·c per rank for
    powers of two.

    References
    ----------
    Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    folding = fold(group.size)
    yield folding.fold(group)
    yield from halving_reduce_scatter(group, folding)
    yield from doubling_gather(group, folding)
    yield folding.unfold(group)


@algorithm("allreduce", "recursive_doubling", best_for=("short",))
def recursive_doubling(group: Group) -> Rounds:
    """Exchange and combine whole vectors with partners at distance 1, 2, 4, ...

    Surplus ranks fold into a neighbour and get the result at the end.

    Notes
    -----
    log₂ p rounds for powers of two, ⌊log₂ p⌋ + 2 else; c per rank and round: best
    for short vectors.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    folding = fold(group.size)
    yield folding.fold(group)
    me = folding.numbers(group)
    for level in range(floor_log2(folding.n_survivors)):
        yield folding.exchange(group, me, level, 0, group.n_chunks)
    yield folding.unfold(group)


@algorithm("allreduce", "reduce_bcast", tree="binomial")
def reduce_bcast(group: Group) -> Rounds:
    """Reduce up a binomial tree to rank 0, then broadcast down it.

    Notes
    -----
    2·⌈log₂ p⌉ rounds; rank 0 sends ⌈log₂ p⌉·c.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield from to_rank(group, 0)
    yield from bcast_binomial(group)


@algorithm(
    "allreduce",
    "ring",
    parts="size",
    commutative_only=True,
    best_for=("long",),
    streams=True,
    pipelines=("inside", "across"),
    per_pair=2.0,
    forwards=True,
)
def ring(group: Group) -> Rounds:
    """Reduce-scatter around the ring, then pass the results around it.

    Notes
    -----
    2(p - 1) rounds; 2(p - 1)/p·c per rank, which is optimal. LogGP:
    2(p - 1)·(2o + L + (c/p - 1)·G) and (p - 1)/p·c reductions.

    References
    ----------
    Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", J. Parallel Distrib. Comput. 69, 2009.
    """
    me, size, out = group.positions, group.size, group.output
    for step in range(size - 1):
        chunk = (me - step) % size
        partial, result = at(group.input if step == 0 else group.output, chunk), at(out, chunk)
        own = at(group.input, chunk)
        yield Round(Message(me, (me + 1) % size, partial, result, combine=own, incoming_left=True))
    for step in range(size - 1):
        result = at(out, (me + 1 - step) % size)
        yield Round(Message(me, (me + 1) % size, result, result))


@algorithm(
    "allreduce",
    "two_tree",
    parts="blocks",
    options={"blocks": "auto"},
    filling_rounds=filling_rounds,
)
def two_tree(group: Group) -> Rounds:
    """Reduce n blocks to rank 0 up two trees, then broadcast them down, half along each.

    The reduction ends with the block that the broadcast begins with, so that both overlap.

    Notes
    -----
    At most 2(n + δ) rounds with δ ≤ 2·⌈log₂ p⌉; inner ranks send (2n + n mod 2)·c/n for p > 3.
    Operands are combined in rank order. `blocks` is n; with auto, about
    √(2·⌈log₂ p⌉·c·G/(L + 2o)).

    References
    ----------
    Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan", Parallel Computing 35, 2009.
    """
    yield from combine(group, 0)
    yield from spread(group)
