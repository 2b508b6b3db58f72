"""Algorithms of reduce_scatter_block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.algorithms.building_blocks import spreading
from collplan.planner.algorithms.building_blocks.bine import MOST_RANKS, butterfly
from collplan.planner.algorithms.building_blocks.block_schedule import blockwise_reduce_scatter
from collplan.planner.algorithms.building_blocks.factors import in_digit_order, mixed_factors
from collplan.planner.algorithms.building_blocks.folding import fold
from collplan.planner.algorithms.building_blocks.rank_tree import (
    always,
    by_folding,
    combine_parts,
    of_powers_of_two,
)
from collplan.planner.algorithms.closed_forms import halving_ns, owners_ns, ring_ns
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds, at, option_int
from collplan.planner.arrays.logarithms import floor_log2


@algorithm(
    "reduce_scatter_block",
    "bine",
    even_only=True,
    commutative_only=True,
    most_ranks=MOST_RANKS,
)
def bine(group: Group) -> Rounds:
    """Exchange and combine blocks with partners at distance 1, 1, 3, 5, 11, ...

    The rounds of allgather's algorithm of this name backwards: the most blocks go to neighbors.

    Notes
    -----
    ⌈log₂ p⌉ rounds for an even number of ranks; (p - 1)·c per rank: both optimal.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    hops = butterfly(group.size)
    yield from spreading.reduce_scatter(group, hops)


@algorithm(
    "reduce_scatter_block",
    "bruck",
    commutative_only=True,
    options={"radix": 2},
    tried_as=(),
)
def bruck(group: Group) -> Rounds:
    """Divide the run of blocks everyone combines by the radix, for any number of ranks.

    The rounds of allgather's algorithm of this name backwards. `compare` and `tune` try
    `circulant`, which takes as many rounds as radix 2.

    Notes
    -----
    ⌈log₂ p⌉ rounds for radix 2, and (p - 1)·c per rank: both optimal. Larger radices take
    Σ min(radix - 1, ⌈p/radix^k⌉ - 1) rounds over all radix^k < p.

    References
    ----------
    Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
    communications in multiport message-passing systems", IEEE TPDS 8, 1997.
    """
    hops = spreading.bruck_hops(group.size, option_int(group, "radix", 2))
    yield from spreading.reduce_scatter(group, hops)


@algorithm("reduce_scatter_block", "butterfly", tried_as=("flat",), in_rank_tree=by_folding)
def butterfly_halving(group: Group) -> Rounds:
    """Exchange half of the blocks still held, with ever farther partners, for any number of ranks.

    Surplus ranks fold into the neighbor before them, which then stands for the blocks of both, and
    get their block at the end. Operands stay in rank order.

    Notes
    -----
    log₂ p rounds and (p - 1)·c per rank for powers of two; else ⌊log₂ p⌋ + 2 rounds, and p·c per
    rank at most. The blocks of one message are every 2nd, 4th, 8th, ...: strided.

    References
    ----------
    Träff, "An improved algorithm for (non-commutative) reduce-scatter with an application",
    EuroPVM/MPI 2005; blocks are not permuted here.
    """
    folding, partial = fold(group.size), group.packed_scratch()
    q, n_pairs = folding.n_survivors, len(folding.folded)
    me, vector = np.arange(q), group.whole(group.input)
    is_host = me < n_pairs
    summed = group.whole(partial)
    yield Round(Message(folding.folded, folding.hosts, vector, summed, combine=vector))
    own = folding.survivors
    for level in range(floor_log2(q)):
        partner, period = me ^ (1 << level), 2 << level
        # Survivors that are like the partner in all bits so far; the first ones have two blocks.
        like = partner % period
        n_low = np.maximum(0, n_pairs - like + period - 1) // period
        n_high = q // period - n_low
        runs = [
            {"first": 2 * like, "n": 2, "stride": 2 * period, "repeat": n_low},
            {"first": like + n_low * period + n_pairs, "stride": period, "repeat": n_high},
        ]
        held = group.input if level == 0 else partial
        read, combine = (
            tuple(
                at(np.where((level == 0) & (end < n_pairs), partial, held), **run) for run in runs
            )
            for end in (me, partner)
        )
        write = tuple(at(partial, **run) for run in runs)
        if period == q:
            kept = own[partner]
            write = at(group.output, kept), at(partial, kept + 1, is_host[partner].astype(np.int64))
        ends = own, own[partner]
        yield Round(Message(*ends, read, write, combine=combine, incoming_left=None))
    left = folding.folded
    yield Round(Message(folding.hosts, left, at(partial, left), at(group.output, left)))


@algorithm(
    "reduce_scatter_block",
    "circulant",
    parts="blocks",
    commutative_only=True,
    best_for=("short",),
    unlike_ns=halving_ns,
    options={"blocks": 1},
)
def circulant(group: Group) -> Rounds:
    """Fold the blocks still held in half in every round, for any number of ranks.

    With skip s, rank r sends its partial blocks for ranks r + s onwards to
    r + s, which needs them for the same ranks, now counted from itself. With `blocks`, every
    block is cut in n parts, and the rounds are those of allgather's algorithm of this name
    backwards: a message carries one part of every rank's block.

    Notes
    -----
    ⌈log₂ p⌉ rounds for any p and (p - 1)·c per rank: both optimal. With n parts, n - 1 + ⌈log₂ p⌉
    rounds, and for blocks of m_j at most Σ ⌈m_j/n⌉ per message, so that they pay if blocks differ
    in size. `blocks` is n; with auto, about √((⌈log₂ p⌉ - 1)·Σ m_j·G/(L + 2o)).

    References
    ----------
    Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
    2024, algorithm 1; with n parts, Träff, "Optimal broadcast schedules in logarithmic time with
    applications to broadcast, all-broadcast, reduction and all-reduction", ACM TOPC 2025.
    """
    if option_int(group, "blocks", 1) > 1:
        yield from blockwise_reduce_scatter(group, group.packed_scratch())
        return
    yield from spreading.reduce_scatter(group, spreading.circulant_hops(group.size))


@algorithm(
    "reduce_scatter_block",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside",),
    per_pair=1.0,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to its owner, all at once, nearest rank first.

    An owner combines blocks in the order they were sent: those from r - 1 down
    to 0 in front of its own, those from p - 1 down to r + 1 in front of one
    another; at last it joins the two, in rank order.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c per rank, which is
    optimal; p - 1 blocks of scratch and messages in flight per rank.
    """
    size = group.size
    arrived = group.scratch_slots(size - 1)
    yield Round.of(
        Message(me, dest, at(group.input, dest), at(arrived, (distance - 1) * size + dest))
        for me, distance in group.pairs(np.arange(1, size))
        for dest in ((me + distance) % size,)
    )
    yield Round.of(_combinations(group, arrived))


def _combinations(group: Group, arrived: int) -> Iterator[Reduce]:
    """Reduce the block received from distance k into the result of smaller distances."""
    size = group.size
    for ranks, distances in group.pairs(np.arange(1, size)):
        # Distance r + 1 is the first from which rank r receives a block of a higher rank.
        does = distances != ranks + 1
        me, distance = ranks[does], distances[does]
        is_below = distance <= me
        slot = (distance - 1) * size + me
        own = np.where(distance == 1, group.input, group.output)
        right = at(np.where(is_below, own, arrived), np.where(is_below, me, slot - size))
        write = at(np.where(is_below, group.output, arrived), np.where(is_below, me, slot))
        yield Reduce(me, at(arrived, slot), right, write)
    # Rank 0 has heard from nobody below it, the last rank from nobody above.
    me = np.arange(size - 1)
    left = at(np.where(me == 0, group.input, group.output), me)
    yield Reduce(me, left, at(arrived, (size - 2) * size + me), at(group.output, me))


@algorithm(
    "reduce_scatter_block",
    "pairwise",
    next_best_for=("short", "long"),
    streams=True,
    per_pair=1.0,
    unlike_ns=owners_ns,
)
def pairwise(group: Group) -> Rounds:
    """Send every block straight to its owner, one partner per round.

    In round t rank r hears from r - t: first from r - 1 down to 0, in front of
    what it has, then from p - 1 down to r + 1, in front of what came from
    above; the two halves are joined at the end, in rank order.

    Notes
    -----
    p - 1 rounds; (p - 1)·c per rank; all reductions of a block at its owner.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size = group.size
    above = group.scratch_slots(1)
    for step in range(1, size):
        me, _ = next(group.pairs(np.array([step])))
        to = (me + step) % size
        wraps = me > to  # arrives at a lower rank: the half above the owner
        below, fresh = ~wraps, wraps & (me == size - 1)
        more = wraps & ~fresh
        yield Round(
            Message(
                me[below],
                to[below],
                at(group.input, to[below]),
                at(group.output, to[below]),
                combine=at(group.input if step == 1 else group.output, to[below]),
                incoming_left=True,
            ),
            Message(me[fresh], to[fresh], at(group.input, to[fresh]), at(above, to[fresh])),
            Message(
                me[more],
                to[more],
                at(group.input, to[more]),
                at(above, to[more]),
                combine=at(above, to[more]),
                incoming_left=True,
            ),
        )
    joins = np.arange(size - 1)
    left = at(np.where(joins == 0, group.input, group.output), joins)
    yield Round(Reduce(joins, left, at(above, joins), at(group.output, joins)))


@algorithm("reduce_scatter_block", "pat", options={"aggregation": 8}, commutative_only=True)
def pat(group: Group) -> Rounds:
    """Combine blocks along binomial trees of all ranks at once, some of them together in a message.

    The rounds of allgather's algorithm of this name backwards.

    Notes
    -----
    With P = 2^⌈log₂ p⌉ and an aggregation A of at most P/2, log₂ A + min(P/A, p) - 1 rounds;
    (p - 1)·c per rank, which is optimal.

    References
    ----------
    Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
    2025 (arXiv 2506.20252).
    """
    hops = spreading.pat_hops(group.size, option_int(group, "aggregation", 1))
    yield from spreading.reduce_scatter(group, hops)


@algorithm(
    "reduce_scatter_block",
    "rank_tree",
    next_best_for=("short", "long", "shared"),
    per_pair=1.0,
    unlike_ns=owners_ns,
    in_rank_tree=always,
    is_uniform=True,
    tried_as=(),
)
def rank_tree(group: Group) -> Rounds:
    """Send every block straight to its owner, which combines it in the rank tree.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c per rank, which is optimal; p blocks of
    scratch. Every element is combined in the same tree, which depends on p only.
    """
    yield from combine_parts(group)


@algorithm("reduce_scatter_block", "recursive_halving", power_of_two_only=True, in_rank_tree=always)
def recursive_halving(group: Group) -> Rounds:
    """Exchange half of the blocks still held, with ever nearer partners.

    A non-commutative operation begins with the nearest partners instead, and
    the blocks of one message are then every 2nd, 4th, 8th...: strided.

    Notes
    -----
    log₂ p rounds for powers of two, (p - 1)·c per rank: both optimal.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    levels = floor_log2(size)
    partial = group.packed_scratch()
    for step in range(levels):
        level = levels - 1 - step if group.commutative else step
        partner = me ^ (1 << level)
        if group.commutative:
            first = partner >> level << level
            blocks = {"n": 1 << level}
        else:
            first = partner & ((2 << level) - 1)
            blocks = {"stride": 2 << level, "repeat": size >> (level + 1)}
        value = group.input if step == 0 else partial
        last = step == levels - 1
        own = at(value, first, **blocks)
        write = at(group.output, first) if last else at(partial, first, **blocks)
        yield Round(Message(me, partner, own, write, combine=own, incoming_left=None))


@algorithm(
    "reduce_scatter_block",
    "recursive_multiplying",
    options={"radix": 4},
    in_rank_tree=of_powers_of_two,
)
def recursive_multiplying(group: Group) -> Rounds:
    """Exchange blocks in groups of up to radix ranks, each of which keeps its share of them.

    The number of ranks is factored into numbers of at most `radix`, and greater primes if it
    has such. For each factor f, groups of f ranks, the nearest first, send each other what
    those need, and combine it in rank order.

    Notes
    -----
    Σ (f - 1) rounds for factors f of p; (p - 1)·c per rank, which is optimal. The f - 1 messages
    of a factor are sent at once; they consist of blocks that are f, or a multiple of it, apart.

    References
    ----------
    Ruefenacht, Bull, Booth, "Generalisation of recursive doubling for allreduce", Parallel
    Computing 69, 2017.
    """
    me, size, span = np.arange(group.size), group.size, 1
    factors = mixed_factors(size, option_int(group, "radix", 2))
    partial, arrived = group.packed_scratch(), group.repeated_scratch(max(factors, default=1))
    for factor in factors:
        digit, period = me // span % factor, span * factor
        run = {"stride": period, "repeat": size // period}
        value = group.input if span == 1 else partial
        messages = []
        for step in range(1, factor):
            dest = me + ((digit + step) % factor - digit) * span
            first = dest % period
            slot = at(arrived, digit * size + first, **run)
            messages.append(Message(me, dest, at(value, first, **run), slot))
        result = group.output if period == size else partial
        spaces = value, result, arrived, size
        kept = in_digit_order(me, digit, factor, spaces, first=me % period, **run)
        yield Round(*messages, *kept)
        span = period


@algorithm(
    "reduce_scatter_block",
    "ring",
    commutative_only=True,
    best_for=("long",),
    streams=True,
    pipelines=("across",),
    per_pair=1.0,
    forwards=True,
    unlike_ns=ring_ns,
)
def ring(group: Group) -> Rounds:
    """Pass every block's partial result once around the ring to its owner.

    Notes
    -----
    p - 1 rounds; (p - 1)·c per rank, which is optimal; reductions spread evenly.

    References
    ----------
    Patarasuk, Yuan 2009: the first half of the ring allreduce.
    """
    me, size = group.positions, group.size
    partial = group.scratch_slots(2)
    for step in range(size - 1):
        chunk = (me - 1 - step) % size
        read = at(group.input, chunk) if step == 0 else at(partial, step % 2 * size + chunk)
        write = (
            at(group.output, chunk)
            if step == size - 2
            else at(partial, (step + 1) % 2 * size + chunk)
        )
        own = at(group.input, chunk)
        yield Round(Message(me, (me + 1) % size, read, write, combine=own, incoming_left=True))


@algorithm("reduce_scatter_block", "sparbit", commutative_only=True)
def sparbit(group: Group) -> Rounds:
    """Combine blocks with ranks at distance 1, 2, 4, ...; the first rounds move the most.

    The rounds of allgather's algorithm of this name backwards.

    Notes
    -----
    ⌈log₂ p⌉ rounds and (p - 1)·c per rank: both optimal.

    References
    ----------
    Loch, Koslovski, "Sparbit: a new logarithmic-cost and data locality-aware MPI Allgather
    algorithm", SBAC-PAD 2021 (arXiv 2109.08751).
    """
    hops = spreading.sparbit_hops(group.size)
    yield from spreading.reduce_scatter(group, hops)
