"""Algorithms of allgather."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collplan.planner.algorithms.building_blocks import spreading
from collplan.planner.algorithms.building_blocks.bine import MOST_RANKS, butterfly
from collplan.planner.algorithms.building_blocks.block_schedule import blockwise_allgather
from collplan.planner.algorithms.building_blocks.factors import mixed_factors
from collplan.planner.algorithms.building_blocks.trees import spans
from collplan.planner.algorithms.closed_forms import blocks_ns, doubling_ns, ring_ns
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at, option_int
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2
from collplan.planner.errors import AlgorithmError


@algorithm("allgather", "bine", even_only=True, most_ranks=MOST_RANKS)
def bine(group: Group) -> Rounds:
    """Send partners at distances ..., 11, 5, 3, 1, 1 the blocks that they do not have.

    Even ranks send forwards in one round and backwards in the next, odd ones the other way. Few
    blocks go far, and many to neighbors.

    Notes
    -----
    ⌈log₂ p⌉ rounds for an even number of ranks; (p - 1)·c per rank: both optimal. A message
    consists of several pieces of memory.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    yield from spreading.allgather(group, butterfly(group.size) if group.size > 1 else ())


@algorithm("allgather", "bruck", best_for=("short",), unlike_ns=doubling_ns, options={"radix": 2})
def bruck(group: Group) -> Rounds:
    """Multiply the run of blocks everyone holds by the radix, for any number of ranks.

    In a phase, everyone sends its run to the radix - 1 ranks at once whose runs it extends. Runs
    lie where they belong in the receive buffer, wrapped around its end, so nothing is rotated
    afterwards.

    Notes
    -----
    ⌈log₂ p⌉ rounds for radix 2, which is optimal; (p - 1)·c per rank, which is, too. Larger
    radices wait ⌈log_radix p⌉ times: Σ min(radix - 1, ⌈p/radix^k⌉ - 1) rounds over all
    radix^k < p.

    References
    ----------
    Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all
    communications in multiport message-passing systems", IEEE TPDS 8, 1997.
    """
    me, size = group.positions, group.size
    radix = min(option_int(group, "radix", 2), max(2, size))
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for span in spans(size, radix):
        messages = []
        for step in range(span, min(radix * span, size), span):
            n = min(span, size - step)
            read = at(group.input, me) if span == 1 else at(group.output, me, n)
            messages.append(Message(me, (me - step) % size, read, at(group.output, me, n)))
        yield Round(*messages)


@algorithm(
    "allgather",
    "circulant",
    parts="blocks",
    by_counts=True,
    unlike_ns=blocks_ns,
    options={"blocks": "auto"},
)
def circulant(group: Group) -> Rounds:
    """Broadcast the blocks of all ranks at once, each in n parts, over a circulant graph.

    All ranks run the rounds of bcast's algorithm of this name as roots, together: a message
    carries one part of every rank's block, except the receiver's. The time of a round depends
    on the sum of all blocks, not on the largest one.

    Notes
    -----
    n - 1 + ⌈log₂ p⌉ rounds for n parts, and (p - 1)·c per rank, which is optimal; with blocks
    of m_j, at most Σ ⌈m_j/n⌉ per message. `blocks` is n; with auto, about
    √((⌈log₂ p⌉ - 1)·Σ m_j·G/(L + 2o)). A message consists of up to p - 1 pieces of memory.

    References
    ----------
    Träff, "Optimal broadcast schedules in logarithmic time with applications to broadcast,
    all-broadcast, reduction and all-reduction", ACM TOPC 2025: irregular all-broadcast.
    """
    me, size = group.positions, group.size
    n_parts = option_int(group, "blocks", 1)
    own = tuple(at(group.input, me + part * size) for part in range(n_parts))
    result = tuple(at(group.output, me + part * size) for part in range(n_parts))
    yield from blockwise_allgather(group, group.input)
    yield Round(Copy(me, own, result))


@algorithm(
    "allgather",
    "linear",
    best_for=("shared",),
    streams=True,
    pipelines=("inside",),
    per_pair=1.0,
)
def linear(group: Group) -> Rounds:
    """Send every block straight to every rank, nearest rank first.

    Notes
    -----
    p - 1 rounds, as a rank sends one at a time; (p - 1)·c per rank.
    """
    me, size = group.positions, group.size
    block = at(group.input, me), at(group.output, me)
    yield Round.of(Message(me, (me + distance) % size, *block) for distance in range(1, size))
    yield Round(Copy(me, *block))


@algorithm(
    "allgather",
    "locality_bruck",
    options={"radix": "auto", "ranks_per_node": "auto"},
    tried_as=("flat",),
)
def locality_bruck(group: Group) -> Rounds:
    """Send the blocks of whole nodes between nodes, to as many nodes at once as there are ranks.

    Ranks of a node gather their blocks. Then each sends all that its node has to another node,
    whose ranks share what came; this multiplies what nodes have by `radix`.

    ::

        0 1 | 2 3 | 4 5 | 6 7     2 ranks per node, radix 3: the node has 1, then 3, then 4 nodes'
        0 > 6, 1 > 5, 2 > 0, ...  rank 0 sends to the node before its own, rank 1 to the one before

    Notes
    -----
    ⌈log_radix N⌉ messages of each rank to other nodes, of N nodes of g ranks, instead of ⌈log₂ p⌉;
    ⌈log₂ g⌉ rounds inside nodes before them, and after each. `radix` is g + 1 with auto; the
    publication has g, with which the first rank of each node sends nothing to other nodes.
    `ranks_per_node` is g: with auto, the most ranks for which no g that follow one another are on
    several nodes. With one, these are the messages of `bruck`.

    References
    ----------
    Bienz, Gautam, Kharel, "A locality-aware Bruck allgather", EuroMPI/USA 2022 (arXiv 2206.03564).
    """
    size, per_node = group.size, option_int(group, "ranks_per_node", 1)
    if size % per_node:
        raise AlgorithmError(
            f"algorithms.ranks_per_node: {size} ranks are not nodes of {per_node}; leave it out, "
            "or give a number that divides them"
        )
    radix = per_node + 1
    if group.options["radix"] != "auto":
        radix = min(radix, option_int(group, "radix", 2))
    me, n_nodes, held = np.arange(size), size // per_node, 1
    local = me % per_node
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    yield from _shared(group, per_node, me, np.ones(size, dtype=np.int64))
    while held < n_nodes:
        far = (local + (radix > per_node)) * held
        is_used = (far > 0) & (far < min(radix * held, n_nodes))
        n = np.where(is_used, np.minimum(held, n_nodes - far), 0) * per_node
        sending = me[is_used]
        own = at(group.output, sending - local[sending], n[sending])
        yield Round(Message(sending, (me - far * per_node)[sending] % size, own, own))
        yield from _shared(group, per_node, (me - local + far * per_node) % size, n)
        held *= radix


def _shared(group: Group, per_node: int, first: Ints, n: Ints) -> Rounds:
    """In every node, let each rank send the others its `n` blocks from `first` on."""
    me = np.arange(group.size)
    local = me % per_node
    for span in spans(per_node, 2):
        owners = [me - local + (local + i) % per_node for i in range(min(span, per_node - span))]
        pieces = tuple(at(group.output, first[owner], n[owner]) for owner in owners)
        yield Round(Message(me, me - local + (local - span) % per_node, pieces, pieces))


@algorithm("allgather", "neighbor_exchange", even_only=True, per_pair=0.5, forwards=True)
def neighbor_exchange(group: Group) -> Rounds:
    """Exchange pairs of blocks with the left and the right neighbor in turn.

    ::

        0 <> 1    2 <> 3    own blocks
        0    1 <> 2    3    the pair just received; 0 <> 3 around the end
        0 <> 1    2 <> 3    and so on

    Notes
    -----
    p/2 rounds for an even number of ranks; (p - 1)·c per rank, all of it between
    neighbors.

    References
    ----------
    Chen, Zhang, Zhang, Yuan, "Performance evaluation of allgather algorithms
    on terascale Linux cluster with fast Ethernet", HPC Asia 2005.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    if size == 1:
        return
    own = at(group.input, me)
    yield Round(Message(me, me ^ 1, own, at(group.output, me)))
    even = me % 2 == 0
    held = me - me % 2  # first block of the pair a rank sends next
    for step in range(1, size // 2):
        to_left = even == (step % 2 == 1)
        partner = np.where(to_left, me - 1, me + 1) % size
        pair = at(group.output, held, 2)
        yield Round(Message(me, partner, pair, pair))
        held = held[partner]


@algorithm("allgather", "pat", options={"aggregation": 8})
def pat(group: Group) -> Rounds:
    """Pass blocks along binomial trees of all ranks at once, some of them together in a message.

    Trees begin with their longest edges. `aggregation` is the largest number of blocks in a
    message, a power of two; others are rounded down.

    Notes
    -----
    With P = 2^⌈log₂ p⌉ and an aggregation A of at most P/2, log₂ A + min(P/A, p) - 1 rounds;
    (p - 1)·c per rank, which is optimal. With A = P/2 these are ⌈log₂ p⌉ rounds.

    References
    ----------
    Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
    2025 (arXiv 2506.20252).
    """
    hops = spreading.pat_hops(group.size, option_int(group, "aggregation", 1))
    yield from spreading.allgather(group, hops)


@algorithm("allgather", "recursive_doubling", power_of_two_only=True)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange everything held with partners at distance 1, 2, 4, ...

    Notes
    -----
    log₂ p rounds for powers of two; (p - 1)·c per rank.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005; the hypercube of Hartmann et al. 2006.
    """
    yield from _multiplied(group, (2,) * floor_log2(group.size))


@algorithm("allgather", "recursive_multiplying", options={"radix": 4})
def recursive_multiplying(group: Group) -> Rounds:
    """Exchange everything held in groups of up to radix ranks, which multiplies it.

    The number of ranks is factored into numbers of at most `radix`, and greater primes if it
    has such. For each factor f, groups of f ranks send each other all they have.

    Notes
    -----
    Σ (f - 1) rounds for factors f of p; (p - 1)·c per rank, which is optimal. The f - 1 messages
    of a factor are sent at once. Radix 2 is recursive doubling if p is a power of two.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from _multiplied(group, mixed_factors(group.size, option_int(group, "radix", 2)))


def _multiplied(group: Group, factors: Iterable[int]) -> Rounds:
    """Let groups of each factor of ranks, the nearest first, send each other all they have."""
    me, span = np.arange(group.size), 1
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for factor in factors:
        first, digit = me // span * span, me // span % factor
        held = at(group.input if span == 1 else group.output, first, span)
        steps = (((digit + step) % factor - digit) * span for step in range(1, factor))
        yield Round(*(Message(me, me + by, held, at(group.output, first, span)) for by in steps))
        span *= factor


@algorithm(
    "allgather",
    "ring",
    best_for=("long",),
    streams=True,
    pipelines=("across",),
    per_pair=1.0,
    forwards=True,
    unlike_ns=ring_ns,
)
def ring(group: Group) -> Rounds:
    """Pass every block once around the ring.

    Notes
    -----
    p - 1 rounds; (p - 1)·c per rank, which is optimal. LogGP:
    (p - 1)·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for step in range(size - 1):
        block = (me - step) % size
        read = at(group.input if step == 0 else group.output, block)
        yield Round(Message(me, (me + 1) % size, read, at(group.output, block)))


@algorithm("allgather", "sparbit")
def sparbit(group: Group) -> Rounds:
    """Send every other block held over distances ..., 4, 2, 1, so that many go to neighbors.

    Notes
    -----
    ⌈log₂ p⌉ rounds and (p - 1)·c per rank: both optimal. A message consists of several pieces of
    memory.

    References
    ----------
    Loch, Koslovski, "Sparbit: a new logarithmic-cost and data locality-aware MPI Allgather
    algorithm", SBAC-PAD 2021 (arXiv 2109.08751).
    """
    yield from spreading.allgather(group, spreading.sparbit_hops(group.size))
