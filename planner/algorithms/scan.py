"""Algorithms of scan."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.prefix_tree import (
    filling_rounds,
    tree_prefixes_in_blocks,
)
from collplan.planner.algorithms.building_blocks.rank_tree import always, prefix_parts
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Reduce, Round, Rounds
from collplan.planner.arrays import Bools
from collplan.planner.arrays.logarithms import ceil_log2, floor_log2


@algorithm("scan", "binomial", tree="binomial", rounds_up=floor_log2, streams=True)
def binomial(group: Group) -> Rounds:
    """Sum up a binomial tree, then hand prefixes down it.

    ::

        0>1  2>3  4>5  6>7     up: 1, 3, 5, 7 hold pairs
             1---->3  5---->7  up: 3 and 7 hold fours
                   3-------->7 up: 7 holds all
                   3---->5     down
             1>2   3>4   5>6   down

    Notes
    -----
    At most 2·⌈log₂ p⌉ - 1 rounds; fewer reductions in all than recursive
    doubling: at most 2p instead of about p·log₂ p.

    References
    ----------
    Brent, Kung, "A regular layout for parallel adders", IEEE Trans. Comput.
    C-31, 1982.
    """
    yield from tree_prefixes(group, group.output, group.size)


def tree_prefixes(group: Group, result: int, size: int) -> Rounds:
    """Leave the inclusive prefix of every position below `size` in space `result`."""
    vector = group.whole
    me = np.arange(0, size, 2)
    yield Round(Copy(me, vector(group.input), vector(result)))
    levels = floor_log2(size)
    # An odd rank that heard nobody on the way up does not exist: rank - 1 is always there.
    up = [(1 << level, 2, result if level else group.input) for level in range(levels)]
    down = [(1 << level, 3, result) for level in reversed(range(levels))]
    for span, first, value in up + down:
        dest, own = np.arange(first * span - 1, size, 2 * span), vector(value)
        yield Round(
            Message(dest - span, dest, own, vector(result), combine=own, incoming_left=True)
        )


@algorithm("scan", "chain", streams=True, pipelines=("inside", "across"), forwards=True)
def chain(group: Group) -> Rounds:
    """Pass prefixes from rank to rank.

    Notes
    -----
    p - 1 rounds; c per rank. With s segments, p - 2 + s steps of c/s.

    References
    ----------
    Denis et al., "Progress threads placement and dedicated cores for
    overlapping MPI non-blocking collectives", 2022: the chain of iscan.
    """
    yield Round(Copy(0, group.whole(group.input), group.whole(group.output)))
    own, result = group.whole(group.input), group.whole(group.output)
    for rank in range(1, group.size):
        sent = own if rank == 1 else result
        yield Round(Message(rank - 1, rank, sent, result, combine=own, incoming_left=True))


@algorithm(
    "scan",
    "in_order_tree",
    parts="blocks",
    is_uniform=True,
    options={"blocks": "auto"},
    filling_rounds=filling_rounds,
)
def in_order_tree(group: Group) -> Rounds:
    """Send sums of n blocks up an in-order tree while prefixes of other blocks come down it.

    An edge carries a sum up and another block's prefix down in the same round, every third round.

    Notes
    -----
    T + 3(n - 1) rounds with T ≤ 4·⌊log₂ p⌋; no rank sends more than 3c. Operands are combined in
    rank order. `blocks` is n; with auto, about √(4/3·log₂ p·c·G/(L + 2o)).

    References
    ----------
    Sanders, Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
    """
    yield from tree_prefixes_in_blocks(group, is_exclusive=False)


@algorithm(
    "scan",
    "rank_tree",
    parts="size",
    per_pair=1.875,
    in_rank_tree=always,
    is_uniform=True,
    tried_as=("flat",),
)
def rank_tree(group: Group) -> Rounds:
    """Send every part straight to its owner, which returns to each rank the prefix up to it.

    Owners combine every prefix in its own rank tree, as recursive doubling does.

    Notes
    -----
    2(p - 1) rounds, as a rank sends one at a time; 2(p - 1)/p·c per rank; c of scratch. At most
    c·⌈log₂ p⌉/2 is combined per rank, half as much as by recursive doubling. The tree of a result
    depends on its rank only.
    """
    yield from prefix_parts(group, is_exclusive=False)


@algorithm("scan", "recursive_doubling", best_for=("short",), in_rank_tree=always)
def recursive_doubling(group: Group) -> Rounds:
    """Exchange block sums with partners at distance 1, 2, 4, ...

    Everyone keeps the sum of its aligned block; what comes from a lower block
    also goes in front of the rank's own prefix.

    Notes
    -----
    ⌈log₂ p⌉ rounds; c per rank and round.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield Round(Copy(group.positions, group.whole(group.input), group.whole(group.output)))
    yield from doubling_prefixes(group, is_exclusive=False)


def useful_messages(size: int) -> Bools:
    """Return a row per level: True where the partner ``me ^ 2**k`` needs the message.

    A higher rank needs it, as it becomes part of its prefix. A lower rank needs it if a higher rank
    needs a message from that rank afterwards.

    Examples
    --------
    >>> [np.flatnonzero(useful).tolist() for useful in useful_messages(4)]
    [[0, 1, 2], [0, 1]]
    """
    me = np.arange(size)
    sends_on = np.zeros(size, dtype=bool)
    levels = np.zeros((ceil_log2(size), size), dtype=bool)
    for level in reversed(range(ceil_log2(size))):
        partner = me ^ (1 << level)
        exists = partner < size
        useful = exists & ((partner > me) | sends_on[np.where(exists, partner, 0)])
        sends_on |= useful
        levels[level] = useful
    return levels


def doubling_prefixes(group: Group, *, is_exclusive: bool) -> Rounds:
    """Put what comes from lower blocks in front of every position's output.

    Everyone keeps the sum of its aligned block. An inclusive prefix begins as
    the position's own input, which must be in its output already; an
    exclusive one as the first thing that comes from below.
    """
    vector, out = group.whole, group.output
    block, incoming = group.scratch_slots(1), group.scratch_slots(1)
    has_prefix = np.full(group.size, not is_exclusive)
    useful = useful_messages(group.size)
    for level, sending in enumerate(useful):
        source = np.flatnonzero(sending)
        dest = source ^ (1 << level)
        above, below = dest[dest > source], dest[dest < source]
        # Who sends on later keeps the sum of the block that has grown.
        grows = np.logical_or.reduce(useful[level + 1 :], axis=0, initial=False)
        value = group.input if level == 0 else block
        later = has_prefix[above]
        # Prefixes come last: in place, they overwrite the input that blocks still need.
        yield Round(
            Message(source, dest, vector(value), vector(incoming)),
            Reduce(above[grows[above]], vector(incoming), vector(value), vector(block)),
            Reduce(below, vector(value), vector(incoming), vector(block)),
            Copy(above[~later], vector(incoming), vector(out)),
            Reduce(above[later], vector(incoming), vector(out), vector(out)),
        )
        has_prefix[above] = True
