"""Algorithms of bcast."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.bine import bine_tree
from collplan.planner.algorithms.building_blocks.block_schedule import sent_blocks
from collplan.planner.algorithms.building_blocks.trees import binary_tree, chains, knomial_tree
from collplan.planner.algorithms.building_blocks.two_trees import filling_rounds, spread
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import (
    Group,
    Message,
    Round,
    Rounds,
    at,
    option_flag,
    option_int,
)
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@algorithm("bcast", "binary", tree="any", streams=True, options={"dealt": False})
def binary(group: Group) -> Rounds:
    """Send down a complete binary tree: node v to 2v + 1, then to 2v + 2.

    If levels are `dealt` to the subtrees of the root in turns, odd nodes are below one child of
    it and even nodes below the other.

    Notes
    -----
    At most 2⌊log₂ p⌋ rounds; no rank sends more than 2c, so it pipelines better
    than the binomial tree.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007.
    """
    for parent, child in binary_tree(group.size, is_dealt=option_flag(group, "dealt")):
        yield Round(group.down(parent, child))


@algorithm("bcast", "bine", tree="any")
def bine(group: Group) -> Rounds:
    """Double the number of holders in every round, over shorter distances than a binomial tree.

    Holders send before and after them in turns, so that parts of the tree lie beside each other.
    If the number of ranks is no power of two, halves are rounded.

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; the root sends ⌈log₂ p⌉·c. The distances of all edges, in
    ranks around a ring, are together about 0.7 times those of the binomial tree.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    for edges in bine_tree(group.size):
        yield Round(group.down(edges.parent, edges.child))


@algorithm("bcast", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Double the number of holders in every round, farthest ranks first.

    ::

        0 ------> 4        round 0
        0 -> 2    4 -> 6   round 1
        0>1  2>3  4>5      round 2   (7 ranks)

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; the root sends ⌈log₂ p⌉·c. LogGP:
    ⌈log₂ p⌉·(2o + L + (c - 1)·G).

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    for level in reversed(range(ceil_log2(group.size))):
        span = 1 << level
        sending = np.arange(0, group.size - span, 2 * span)
        yield Round(group.down(sending, sending + span))


@algorithm(
    "bcast",
    "chain",
    tree="any",
    streams=True,
    pipelines=("across",),
    forwards=True,
    options={"fanout": 1},
)
def chain(group: Group) -> Rounds:
    """Pass the vector from rank to rank, beginning at the root.

    With a `fanout`, the root begins that many chains, which are intervals of ranks.

    Notes
    -----
    p - 1 rounds; every rank but the last sends c. LogGP:
    (p - 1)·(2o + L + (c - 1)·G); with s segments, p - 2 + s steps of c/s. With fanout f, at most
    f + ⌈(p - 1)/f⌉ - 1 rounds; the root sends f·c.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives; Pješivac-Grbović et al.,
    "Performance analysis of MPI collective operations", Cluster Computing 10, 2007: the fan-out.
    """
    for parent, child in chains(group.size, option_int(group, "fanout", 1)):
        yield Round(group.down(parent, child))


@algorithm("bcast", "circulant", parts="blocks", options={"blocks": "auto"}, streams=True)
def circulant(group: Group) -> Rounds:
    """Pass the vector in n blocks over a circulant graph, for any number of ranks.

    In every round all ranks send to the rank a skip after them and receive from the one a
    skip before them; the skips are p halved and rounded up again and again. No rank receives
    a block twice.

    Notes
    -----
    n - 1 + ⌈log₂ p⌉ rounds for n blocks, which is optimal; the root sends (n - 1 + ⌈log₂ p⌉)·c/n
    and the others no more. `blocks` is n; with auto, about √((⌈log₂ p⌉ - 1)·c·G/(L + 2o)).

    References
    ----------
    Träff, "Optimal broadcast schedules in logarithmic time with applications to broadcast,
    all-broadcast, reduction and all-reduction", ACM TOPC 2025: algorithm 1 by the schedules
    of its section on receive schedules.
    """
    me = np.arange(group.size)
    for skip, block in sent_blocks(group):
        sending = me[(block >= 0) & ((me + skip) % group.size != 0)]
        yield Round(group.down(sending, sending + skip, at(group.output, block[sending])))


@algorithm("bcast", "knomial", options={"radix": 4}, tree="knomial")
def knomial(group: Group) -> Rounds:
    """Send down a tree in which each holder feeds radix - 1 others per level.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most; the root sends as many vectors.
    Radix 2 is the binomial tree. Larger radices wait for fewer latencies.

    References
    ----------
    Thakur, Rabenseifner, Gropp, "Optimization of collective communication
    operations in MPICH", 2005.
    """
    for edges in knomial_tree(group, is_up=False):
        yield Round(group.down(edges.parent, edges.child))


@algorithm("bcast", "linear", tree="any", best_for=("shared",), streams=True, pipelines=("inside",))
def linear(group: Group) -> Rounds:
    """Send the vector from the root to every other rank.

    Notes
    -----
    p - 1 rounds, as the root sends one at a time; the root sends (p - 1)·c.
    LogGP: 2o + L + (p - 2)·max(g, o) + (p - 1)·(c - 1)·G.

    References
    ----------
    Hartmann et al., "A decomposition approach for optimizing the performance
    of MPI libraries", 2006: the star topology.
    """
    vector = group.whole(group.output)
    yield Round(Message(group.root, group.others, vector, vector))


@algorithm("bcast", "near_binomial", tree="any", streams=True, tried_as=("flat",))
def near_binomial(group: Group) -> Rounds:
    """Double the number of holders in every round, nearest ranks first.

    ::

        0 > 1                    round 0
        0 -> 2   1 -> 3          round 1
        0 --> 4  1 --> 5  2 --> 6  round 2   (7 ranks)

    Notes
    -----
    ⌈log₂ p⌉ rounds, which is optimal; the root sends ⌈log₂ p⌉·c. Most messages go over the
    longest distance, but holders are an interval of ranks at any time.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007.
    """
    for level in range(ceil_log2(group.size)):
        span = 1 << level
        sending = np.arange(min(span, group.size - span))
        yield Round(group.down(sending, sending + span))


@algorithm(
    "bcast",
    "scatter_allgather",
    parts="size",
    best_for=("long",),
    per_pair=1.0,
    forwards=True,
)
def scatter_allgather(group: Group) -> Rounds:
    """Scatter the vector in p chunks, then pass all chunks around a ring.

    Notes
    -----
    ⌈log₂ p⌉ + p - 1 rounds; every rank sends and receives about 2c in all
    instead of the binomial tree's ⌈log₂ p⌉·c at the root.

    References
    ----------
    van de Geijn's algorithm, in Thakur, Rabenseifner, Gropp 2005.
    """
    size, out = group.size, group.output
    yield from _scatter(group)
    # The ring ends before the root, which has everything and may not be written to.
    me = group.positions[:-1]
    for step in range(size - 1):
        yield Round(group.down(me, me + 1, at(out, (me - step) % size)))


def _scatter(group: Group) -> Rounds:
    """Scatter chunk v to the rank that lies v after the root."""
    size = group.size
    for level in reversed(range(ceil_log2(size))):
        span = 1 << level
        receiving = np.arange(span, size, 2 * span)
        subtree = at(group.output, receiving, np.minimum(span, size - receiving))
        yield Round(group.down(receiving - span, receiving, subtree))


@algorithm("bcast", "scatter_doubling", parts="size", power_of_two_only=True)
def scatter_doubling(group: Group) -> Rounds:
    """Scatter the vector in p chunks, then exchange them with partners at distance 1, 2, 4, ...

    Notes
    -----
    2·log₂ p rounds for powers of two; the root sends 2(p - 1)/p·c, and no other rank more.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size, out = group.size, group.output
    yield from _scatter(group)
    me = np.arange(size)
    for level in range(floor_log2(size)):
        span = 1 << level
        # The root has everything and may not be written to.
        sending = me[me != span]
        run = at(out, sending // span * span, span)
        yield Round(group.down(sending, sending ^ span, run))


@algorithm("bcast", "split_binary", parts="halves", streams=True, tried_as=("flat",))
def split_binary(group: Group) -> Rounds:
    """Send half of the vector down either side of a binary tree, whose ranks then exchange halves.

    ::

        0 -> 1 -> 3, 5    first half     1 <-> 2, 3 <-> 4, 5 <-> 6 in the end
        0 -> 2 -> 4, 6    second half

    Notes
    -----
    At most 2⌊log₂ p⌋ + 1 rounds; no rank sends more than 1.5c, in messages of c/2.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007: split-binary tree.
    """
    size, out = group.size, group.output
    for parent, child in binary_tree(size, is_dealt=True):
        yield Round(group.down(parent, child, at(out, (child + 1) % 2)))
    odd = np.arange(1, size - 1, 2)
    first, second = at(out, 0), at(out, 1)
    messages = [group.down(odd, odd + 1, first), group.down(odd + 1, odd, second)]
    if size % 2 == 0:
        messages.append(group.down(0, size - 1, second))
    yield Round(*messages)


@algorithm(
    "bcast",
    "two_tree",
    parts="blocks",
    options={"blocks": "auto"},
    filling_rounds=filling_rounds,
)
def two_tree(group: Group) -> Rounds:
    """Pass half of n blocks down either of two trees, in which each rank is inner once at most.

    ::

        tree of even blocks     0 -> 4 -> 2, 6;  2 -> 1, 3;  6 -> 5, 7
        tree of odd blocks      0 -> 7 -> 3 -> 1, 5;  1 -> 2;  5 -> 4, 6   (8 ranks)

    Notes
    -----
    n + δ rounds with δ ≤ 2·⌈log₂ p⌉; inner ranks send two blocks of one tree, (n + n mod 2)·c/n
    for p > 3, and the root c. `blocks` is n; with auto, about √(2·⌈log₂ p⌉·c·G/(L + 2o)).

    References
    ----------
    Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan", Parallel Computing 35, 2009.
    """
    yield from spread(group)
