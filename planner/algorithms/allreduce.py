"""Algorithms of allreduce."""

from __future__ import annotations

import math

import numpy as np

from collplan.planner.algorithms.bcast import binomial as bcast_binomial
from collplan.planner.algorithms.building_blocks import spreading
from collplan.planner.algorithms.building_blocks.bine import MOST_RANKS, butterfly, peers
from collplan.planner.algorithms.building_blocks.block_schedule import (
    blockwise_allgather,
    blockwise_reduce_scatter,
)
from collplan.planner.algorithms.building_blocks.dual_trees import dual_trees
from collplan.planner.algorithms.building_blocks.dual_trees import (
    filling_rounds as dual_root_filling_rounds,
)
from collplan.planner.algorithms.building_blocks.factors import (
    greatest_product,
    in_digit_order,
    mixed_factors,
)
from collplan.planner.algorithms.building_blocks.folding import (
    doubling_gather,
    fold,
    halving_reduce_scatter,
)
from collplan.planner.algorithms.building_blocks.rank_tree import (
    always,
    by_folding,
    combine_parts,
    of_powers_of_two,
)
from collplan.planner.algorithms.building_blocks.two_trees import (
    Turns,
    combine,
    filling_rounds,
    spread,
)
from collplan.planner.algorithms.reduce import to_rank
from collplan.planner.algorithms.reduce_scatter_block import linear as reduce_scatter_linear
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import (
    Group,
    Message,
    Reduce,
    Round,
    Rounds,
    at,
    option_flag,
    option_int,
)
from collplan.planner.arrays.logarithms import floor_log2


@algorithm(
    "allreduce",
    "bine",
    parts="size",
    even_only=True,
    commutative_only=True,
    most_ranks=MOST_RANKS,
)
def bine(group: Group) -> Rounds:
    """Reduce-scatter with partners at distance 1, 1, 3, 5, 11, ..., then allgather backwards.

    On a ring, these are also the messages of Swing for long vectors.

    Notes
    -----
    2·⌈log₂ p⌉ rounds for an even number of ranks; 2(p - 1)/p·c per rank, which is optimal. Most
    bytes go to neighbors.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025; De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher
    bandwidth allreduce", NSDI 2024.
    """
    yield from spreading.allreduce(group, butterfly(group.size))


@algorithm(
    "allreduce", "census", commutative_only=True, unlike_bits=lambda size, _options: size > 1
)
def census(group: Group) -> Rounds:
    """Double the window of ranks before each rank whose sum it has, around the ring of all ranks.

    The binary digits of p - 1 say how: with a digit of 1, ranks send their own vector together
    with their window, so that windows grow by one more rank.

    Notes
    -----
    ⌈log₂ p⌉ rounds of c for any p, which is optimal: up to one less than recursive doubling. As
    many reductions as rounds and digits of 1, less one. Each rank combines from its own window on:
    for operations that do not round.

    References
    ----------
    Bar-Noy, Kipnis, Schieber, "An optimal algorithm for computing census functions in
    message-passing systems", Parallel Processing Letters 3, 1993.
    """
    me, size, own = group.positions, group.size, group.whole(group.input)
    window, joined = (group.whole(group.scratch_slots(1)) for _ in range(2))
    yield Round(Message(me, (me + 1) % size, own, window))
    width = 1
    for digit in map(int, f"{size - 1:b}"[1:]):
        if digit:
            yield Round(Reduce(me, window, own, joined))
        dest, sent = (me + width + digit) % size, joined if digit else window
        yield Round(Message(me, dest, sent, window, combine=window, incoming_left=True))
        width = 2 * width + digit
    yield Round(Reduce(me, window, own, group.whole(group.output)))


@algorithm(
    "allreduce",
    "circulant",
    parts="size",
    commutative_only=True,
    next_best_for=("long",),
    options={"blocks": 1},
)
def circulant(group: Group) -> Rounds:
    """Reduce-scatter by halves, then allgather the same way back, for any number of ranks.

    Partial results lie where they belong in the receive buffer, wrapped
    around its end, so nothing is rotated afterwards. With `blocks`, the part of every rank is
    cut in n, of which a message carries one.

    Notes
    -----
    2·⌈log₂ p⌉ rounds and 2(p - 1)/p·c per rank for any p: the bytes are optimal. With n blocks,
    2(n - 1 + ⌈log₂ p⌉) rounds of at most c/n.

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 2; with n blocks, Träff, "Optimal broadcast schedules in logarithmic time with
    applications to broadcast, all-broadcast, reduction and all-reduction", ACM TOPC 2025.
    """
    if option_int(group, "blocks", 1) > 1:
        yield from blockwise_reduce_scatter(group, group.output)
        yield from blockwise_allgather(group, group.output)
        return
    yield from spreading.allreduce(group, spreading.circulant_hops(group.size))


@algorithm(
    "allreduce",
    "dual_root",
    parts="blocks",
    is_uniform=True,
    options={"blocks": "auto"},
    filling_rounds=dual_root_filling_rounds,
)
def dual_root(group: Group) -> Rounds:
    """Reduce n blocks up two trees, whose roots exchange results and pass them down meanwhile.

    An edge carries a partial result up and another block's result down in the same round,
    every third round. Each half of the ranks is a tree in post-order.

    Notes
    -----
    T + 3(n - 1) rounds with T ≤ 4·⌊log₂ ⌈p/2⌉⌋ + 1; no rank sends more than 3c. Operands are
    combined in rank order. `blocks` is n; with auto, about √(4/3·log₂ p/2·c·G/(L + 2o)).

    References
    ----------
    Träff, "A doubly-pipelined, dual-root reduction-to-all algorithm", 2021.
    """
    n_blocks, trees = option_int(group, "blocks", 1), dual_trees(group.size)
    is_leaf = trees.children[:, 0] < 0
    hears_first = np.zeros(group.size, dtype=bool)
    hears_first[trees.children[~is_leaf, 0]] = True
    roots, out = np.array(trees.roots), group.output
    partial = np.where(is_leaf, group.input, out)
    so_far = np.where(hears_first, group.input, out)
    rows = group.needed(np.arange(len(trees.child)), trees.child, trees.parent)
    ups, downs = (Turns(first, 3, n_blocks, rows) for first in (trees.up, trees.down))
    meetings = Turns(np.full(2, trees.exchange), 3, n_blocks)
    for number in range(trees.n_rounds + 3 * (n_blocks - 1)):
        (up, below), (down, above), (meeting, block) = (
            turns.at(number) for turns in (ups, downs, meetings)
        )
        child, ends, met = trees.child[up], (trees.parent[down], trees.child[down]), roots[meeting]
        sums, value = at(partial[child], below), at(so_far[child], below)
        result, found = at(out, above), at(partial[met], block)
        own = at(partial[met[::-1]], block)
        yield Round(
            Message(child, trees.parent[up], sums, at(out, below), value, incoming_left=True),
            Message(*ends, result, result),
            Message(met, met[::-1], found, at(out, block), own, incoming_left=None),
        )


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


@algorithm(
    "allreduce",
    "rabenseifner",
    parts="power_of_two",
    next_best_for=("long",),
    in_rank_tree=by_folding,
    is_uniform=True,
)
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


@algorithm(
    "allreduce",
    "rank_tree",
    parts="size",
    next_best_for=("long", "shared"),
    per_pair=2.0,
    in_rank_tree=always,
    is_uniform=True,
    tried_as=(),
)
def rank_tree(group: Group) -> Rounds:
    """Send every part straight to the rank that combines it in the rank tree and sends it to all.

    Notes
    -----
    2(p - 1) rounds, as a rank sends one at a time; 2(p - 1)/p·c per rank, which is optimal; c of
    scratch. Every element is combined in the same tree, which depends on p only.
    """
    yield from combine_parts(group)
    me, size, result = group.positions, group.size, group.output
    yield Round.of(
        Message(me, (me + d) % size, at(result, me), at(result, me)) for d in range(1, size)
    )


@algorithm(
    "allreduce",
    "recursive_dividing",
    parts="size",
    options={"radix": 4},
    in_rank_tree=of_powers_of_two,
    is_uniform=True,
)
def recursive_dividing(group: Group) -> Rounds:
    """Divide vectors in groups of up to radix ranks, then allgather in the same groups.

    The number of ranks is factored into numbers of at most `radix`, and greater primes if it
    has such. For each factor f, groups of f ranks, the nearest first, send each other parts
    of what they have, and combine them in rank order. The result takes the same way back.

    Notes
    -----
    2·Σ (f - 1) rounds for factors f of p; 2(p - 1)/p·c per rank, which is optimal. The f - 1
    messages of a factor are sent at once, so that there are twice as many waits as factors. Radix
    2 is Rabenseifner's algorithm if p is a power of two.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    me, size, span, n = np.arange(group.size), group.size, 1, group.size
    factors = mixed_factors(size, option_int(group, "radix", 2))
    arrived, first = group.repeated_scratch(max(factors, default=1)), np.zeros_like(me)
    back: list[Round] = []
    for factor in factors:
        digit, n = me // span % factor, n // factor
        value = group.input if span == 1 else group.output
        kept = first + digit * n
        given, result = [], []
        for step in range(1, factor):
            other = (digit + step) % factor
            dest, part = me + (other - digit) * span, first + other * n
            slot = at(arrived, digit * size + part, n)
            given.append(Message(me, dest, at(value, part, n), slot))
            result.append(Message(me, dest, at(group.output, kept, n), at(group.output, kept, n)))
        spaces = value, group.output, arrived, size
        yield Round(*given, *in_digit_order(me, digit, factor, spaces, first=kept, n=n))
        back.append(Round(*result))
        first, span = kept, span * factor
    yield from reversed(back)


@algorithm("allreduce", "recursive_doubling", best_for=("short",), in_rank_tree=by_folding)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange and combine whole vectors with partners at distance 1, 2, 4, ...

    Surplus ranks fold into a neighbor and get the result at the end.

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
        yield folding.exchange(group, me, level, me ^ (1 << level))
    yield folding.unfold(group)


@algorithm("allreduce", "recursive_multiplying", options={"radix": 4}, in_rank_tree=by_folding)
def recursive_multiplying(group: Group) -> Rounds:
    """Exchange whole vectors in groups of up to radix ranks, whose results are exchanged in turn.

    The number of ranks is factored into numbers of at most `radix`. For each factor f, groups of
    f ranks send each other all they have, and combine it in rank order. If there are no such
    factors, surplus ranks fold into a neighbor and get the result at the end.

    Notes
    -----
    Σ (f - 1) rounds of c per rank for factors f of p, which are at most `radix`; else of the
    greatest q < p that has such factors, and two rounds more. The f - 1 messages of a factor are
    sent at once, so that there are as many waits as factors. Radix 2 is recursive doubling.

    References
    ----------
    Ruefenacht, Bull, Booth, "Generalisation of recursive doubling for allreduce", Parallel
    Computing 69, 2017.
    """
    radix = option_int(group, "radix", 2)
    factors = greatest_product(group.size, min(radix, max(2, group.size)))
    folding = fold(group.size, n_survivors=math.prod(factors))
    yield folding.fold(group)
    arrived = group.scratch_slots(max(factors, default=1))
    me, span = np.arange(folding.n_survivors), 1
    for level, factor in enumerate(factors):
        digit, value = me // span % factor, folding.partial(group, me, level)
        sent = group.whole(value)
        messages = []
        for step in range(1, factor):
            dest = me + ((digit + step) % factor - digit) * span
            slot = at(arrived, digit * group.n_chunks, group.n_chunks)
            messages.append(Message(folding.position(me), folding.position(dest), sent, slot))
        spaces = value, group.output, arrived, group.n_chunks
        run = {"first": 0, "n": group.n_chunks}
        combined = in_digit_order(folding.position(me), digit, factor, spaces, **run)
        yield Round(*messages, *combined)
        span *= factor
    yield folding.unfold(group)


@algorithm(
    "allreduce", "reduce_bcast", tree="binomial", next_best_for=("short",), in_rank_tree=always
)
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
    "swing",
    parts="size",
    even_only=True,
    commutative_only=True,
    options={"whole": False},
    unlike_bits=lambda size, options: bool(options["whole"]) and size >= 8,
    tried_as=(),
)
def swing(group: Group) -> Rounds:
    """Exchange with partners at distance 1, 1, 3, 5, 11, ... on a ring, to either side in turns.

    Vectors are reduce-scattered and allgathered: the messages of `bine`. If they are `whole`, every
    rank combines its partner's vector with its own; surplus ranks beyond a power of two fold into
    a neighbor, and get the result at the end.

    Notes
    -----
    2·⌈log₂ p⌉ rounds for an even number of ranks; 2(p - 1)/p·c per rank, which is optimal. With
    whole vectors log₂ p rounds of c for powers of two, ⌊log₂ p⌋ + 2 else: for short ones. On 8
    ranks or more, these are combined in another order on each rank: for operations that do not
    round.

    References
    ----------
    De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce",
    NSDI 2024.
    """
    if not option_flag(group, "whole"):
        yield from bine(group)
        return
    folding = fold(group.size)
    q = folding.n_survivors
    yield folding.fold(group)
    for level in range(floor_log2(q)):
        yield folding.exchange(group, np.arange(q), level, peers(np.arange(q), q, level))
    yield folding.unfold(group)


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
