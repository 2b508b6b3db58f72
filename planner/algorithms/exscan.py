"""Algorithms of exscan."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.prefix_tree import (
    filling_rounds,
    tree_prefixes_in_blocks,
)
from collplan.planner.algorithms.building_blocks.rank_tree import always, prefix_parts
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds
from collplan.planner.algorithms.scan import doubling_prefixes, tree_prefixes
from collplan.planner.arrays.logarithms import floor_log2


@algorithm(
    "exscan",
    "binomial",
    tree="binomial",
    rounds_up=lambda size: floor_log2(max(1, size - 1)),
    streams=True,
)
def binomial(group: Group) -> Rounds:
    """Scan all ranks but the last up and down a binomial tree, then shift by one.

    Notes
    -----
    At most 2·⌈log₂ (p - 1)⌉ rounds; at most 2p reductions in all.

    References
    ----------
    Brent, Kung 1982.
    """
    if group.size == 1:
        return
    inclusive = group.scratch_slots(1)
    yield from tree_prefixes(group, inclusive, group.size - 1)
    me = group.positions[:-1]
    yield Round(Message(me, me + 1, group.whole(inclusive), group.whole(group.output)))


@algorithm("exscan", "chain", streams=True, pipelines=("inside", "across"), forwards=True)
def chain(group: Group) -> Rounds:
    """Store the received prefix as the result, add the own vector, and pass the sum on.

    Notes
    -----
    p - 1 rounds; c per rank. With s segments, p - 2 + s steps of c/s.

    References
    ----------
    Denis et al. 2022: the chain of iscan.
    """
    spaces = group.input, group.output, group.scratch_slots(1)
    own, result, inclusive = map(group.whole, spaces)
    for rank in range(1, group.size):
        message = Message(rank - 1, rank, own if rank == 1 else inclusive, result)
        passes_on = rank < group.size - 1
        yield Round(message, Reduce(rank, result, own, inclusive)) if passes_on else Round(message)


@algorithm("exscan", "doubling_123")
def doubling_123(group: Group) -> Rounds:
    """Double windows of the ranks before each rank, after distances 1 and 2.

    ::

        0>1  1>2  2>3  3>4   distance 1: everyone has its neighbor's vector
        0-->2  1-->3  2-->4  distance 2: window and own vector together
             1---->4         distances 3, 6, 12, ...: the window alone

    Notes
    -----
    ⌈log₂ (p - 1) + log₂ 4/3⌉ rounds for p > 2, at most one more than the optimum; c per rank
    and round. As many reductions per rank as rounds at most: recursive doubling needs
    up to two per round.

    References
    ----------
    Träff, arXiv 2507.04785, 2025: 123-doubling.
    """
    me, size = np.arange(group.size), group.size
    own, window = group.whole(group.input), group.whole(group.output)
    joined = group.scratch_slots(1)
    sending = me[1:-2]  # those who send both in the next round
    yield Round(
        Message(me[:-1], me[1:], own, window),
        Reduce(sending, window, own, group.whole(joined)),
    )
    sent = group.whole(np.where(me[:-2] == 0, group.input, joined))
    yield Round(Message(me[:-2], me[2:], sent, window, combine=window, incoming_left=True))
    span = 3
    while span < size - 1:
        source = me[1:-span]
        ends = source, source + span
        yield Round(Message(*ends, window, window, combine=window, incoming_left=True))
        span *= 2


@algorithm(
    "exscan",
    "in_order_tree",
    parts="blocks",
    is_uniform=True,
    options={"blocks": "auto"},
    filling_rounds=filling_rounds,
)
def in_order_tree(group: Group) -> Rounds:
    """Send sums of n blocks up an in-order tree while prefixes of other blocks come down it.

    The rounds of scan's algorithm of this name; ranks do not join their own vector at the end.

    Notes
    -----
    T + 3(n - 1) rounds with T ≤ 4·⌊log₂ p⌋; no rank sends more than 3c. Operands are combined in
    rank order. `blocks` is n; with auto, about √(4/3·log₂ p·c·G/(L + 2o)).

    References
    ----------
    Sanders, Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
    """
    yield from tree_prefixes_in_blocks(group, is_exclusive=True)


@algorithm(
    "exscan",
    "rank_tree",
    parts="size",
    per_pair=1.875,
    in_rank_tree=always,
    is_uniform=True,
    tried_as=("flat",),
)
def rank_tree(group: Group) -> Rounds:
    """Send every part straight to its owner, which returns to each rank the prefix before it.

    Owners combine every prefix in its own rank tree, as recursive doubling does.

    Notes
    -----
    2(p - 1) rounds, as a rank sends one at a time; 2(p - 1)/p·c per rank; c of scratch. The tree
    of a result depends on its rank only.
    """
    yield from prefix_parts(group, is_exclusive=True)


@algorithm("exscan", "recursive_doubling", best_for=("short",), in_rank_tree=always)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange block sums with partners at distance 1, 2, 4, ...

    As in scan, but the first thing that comes from a lower block is the
    prefix; what comes later goes in front of it.

    Notes
    -----
    ⌈log₂ p⌉ rounds; c per rank and round.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield from doubling_prefixes(group, is_exclusive=True)
