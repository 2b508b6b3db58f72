"""Algorithms of reduce."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collplan.planner.algorithms.building_blocks.bine import bine_tree
from collplan.planner.algorithms.building_blocks.block_schedule import sent_blocks
from collplan.planner.algorithms.building_blocks.dual_trees import Children, post_order
from collplan.planner.algorithms.building_blocks.folding import (
    doubling_gather,
    fold,
    halving_reduce_scatter,
)
from collplan.planner.algorithms.building_blocks.rank_tree import (
    always,
    by_folding,
    combine_parts,
    with_radix_2,
)
from collplan.planner.algorithms.building_blocks.trees import binary_tree, chains, knomial_tree
from collplan.planner.algorithms.building_blocks.two_trees import combine, filling_rounds
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import (
    Group,
    Index,
    Message,
    Round,
    Rounds,
    at,
    option_flag,
    option_int,
)
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm(
    "reduce",
    "binary",
    tree="any",
    commutative_only=True,
    streams=True,
    options={"dealt": False},
    tried_as=("flat",),
)
def binary(group: Group) -> Rounds:
    """Combine up the complete binary tree of bcast's algorithm of this name.

    Notes
    -----
    At most 2⌊log₂ p⌋ rounds; every rank but the root sends c once, and no rank receives more
    than 2c, so it pipelines better than the binomial tree.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007.
    """
    edges = list(binary_tree(group.size, is_dealt=option_flag(group, "dealt")))
    yield from _combined(group, group.root, ((parent, child) for parent, child in reversed(edges)))


@algorithm("reduce", "bine", tree="any", commutative_only=True)
def bine(group: Group) -> Rounds:
    """Combine ever larger subtrees of bcast's tree of this name.

    Notes
    -----
    ⌈log₂ p⌉ rounds; every rank but the root sends c once.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    rounds = reversed(bine_tree(group.size))
    yield from _combined(group, group.root, ((edges.parent, edges.child) for edges in rounds))


def _combined(
    group: Group,
    root: int,
    rounds: Iterable[tuple[Index, Index]],
    incoming_left: bool | None = False,
) -> Rounds:
    """Combine whole vectors of children with those of parents, round by round.

    Both are counted from `root`. The vector of a child is the right operand by default.
    """
    is_partial = np.zeros(group.size, dtype=bool)
    for parent, child in rounds:
        sent, own = (
            group.whole(np.where(is_partial[rank], group.output, group.input))
            for rank in (child, parent)
        )
        is_partial[parent] = True
        ends = (root + child) % group.size, (root + parent) % group.size
        result = group.whole(group.output)
        yield Round(Message(*ends, sent, result, combine=own, incoming_left=incoming_left))


@algorithm(
    "reduce",
    "binomial",
    tree="binomial",
    best_for=("short",),
    streams=True,
    in_rank_tree=always,
)
def binomial(group: Group) -> Rounds:
    """Combine pairs of ever larger subtrees.

    A non-commutative operation is reduced to rank 0, whose subtrees are
    intervals of ranks, and sent on to the root.

    Notes
    -----
    ⌈log₂ p⌉ rounds (one more for a non-commutative operation and a root other
    than 0); every rank but the root sends c once.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    root = group.root if group.commutative else 0
    yield from to_rank(group, root)
    if root != group.root:
        vector = group.whole(group.output)
        yield Round(Message(root, group.root, vector, vector))


def to_rank(group: Group, root: int) -> Rounds:
    """Reduce to position `root`, in rank order where that is 0."""
    spans = [1 << level for level in range(ceil_log2(group.size))]
    children = [(np.arange(span, group.size, 2 * span), span) for span in spans]
    yield from _combined(group, root, ((child - span, child) for child, span in children))


@algorithm(
    "reduce",
    "chain",
    tree="any",
    streams=True,
    pipelines=("across",),
    forwards=True,
    options={"fanout": 1},
)
def chain(group: Group) -> Rounds:
    """Pass partial results from rank to rank towards the root.

    A commutative operation takes one chain around all ranks. Otherwise two
    chains, from rank 0 up and from rank p - 1 down, meet at the root, each
    in rank order. With a `fanout`, that many chains, which are intervals of ranks, end at the
    root, or at rank 0 if the operation does not commute.

    Notes
    -----
    p - 1 rounds in one chain, max(r, p - 1 - r) in two (for the root r the two
    last messages share its receive); c per rank. With s segments: p - 2 + s steps. With
    fanout f, at most f + ⌈(p - 1)/f⌉ - 1 rounds (one more for a non-commutative operation and a
    root other than 0).

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives; Pješivac-Grbović et al.,
    "Performance analysis of MPI collective operations", Cluster Computing 10, 2007: the fan-out.
    """
    size, root, fanout = group.size, group.root, option_int(group, "fanout", 1)
    if fanout > 1:
        end, vector = root if group.commutative else 0, group.whole(group.output)
        rounds = list(chains(size, fanout))
        n_chains = min(fanout, size - 1)
        # The root hears from the nearest chain first, so that operands stay in rank order.
        yield from _combined(group, end, [*rounds[n_chains:][::-1], *rounds[:n_chains]])
        if end != root:
            yield Round(Message(end, root, vector, vector))
        return
    if group.commutative:
        hops = [(v - 1, v) for v in range(size - 1, 0, -1)]
        yield from _combined(group, root, hops, incoming_left=None)
        return
    hops = [*((v - 1, v) for v in range(size - 1, root, -1)), *((v + 1, v) for v in range(root))]
    yield from _combined(group, 0, hops, incoming_left=None)


@algorithm(
    "reduce",
    "circulant",
    parts="blocks",
    commutative_only=True,
    options={"blocks": "auto"},
    streams=True,
)
def circulant(group: Group) -> Rounds:
    """Combine the vector in n blocks over a circulant graph, for any number of ranks.

    The rounds of bcast's algorithm of this name backwards, with the messages turned: every
    rank but the root sends each block once, after all that it receives of that block.

    Notes
    -----
    n - 1 + ⌈log₂ p⌉ rounds for n blocks; every rank but the root sends c. `blocks` is n; with
    auto, about √((⌈log₂ p⌉ - 1)·c·G/(L + 2o)).

    References
    ----------
    Träff, "Optimal broadcast schedules in logarithmic time with applications to broadcast,
    all-broadcast, reduction and all-reduction", ACM TOPC 2025.
    """
    me, size = np.arange(group.size), group.size
    is_partial = np.zeros((size, group.n_chunks), dtype=bool)
    for skip, block in reversed(list(sent_blocks(group))):
        dest = me[(block >= 0) & ((me + skip) % size != 0)]
        source, block = (dest + skip) % size, block[dest]
        sent, own = (
            at(np.where(is_partial[rank, block], group.output, group.input), block)
            for rank in (source, dest)
        )
        is_partial[dest, block] = True
        ends = group.from_root(source), group.from_root(dest)
        yield Round(Message(*ends, sent, at(group.output, block), combine=own))


@algorithm("reduce", "in_order_binary", tree="any", streams=True, tried_as=("flat",))
def in_order_binary(group: Group) -> Rounds:
    """Combine up a binary tree in post-order, whose subtrees are intervals of ranks.

    The last rank is the top: it hears from the last ranks of two halves of those before it. It
    sends the result on to the root.

    Notes
    -----
    At most 2·⌊log₂ p⌋ rounds, and one more for another root than the last rank. Every rank sends
    c at most once. Operands are combined in rank order.

    References
    ----------
    Pješivac-Grbović et al., "Performance analysis of MPI collective
    operations", Cluster Computing 10, 2007: the in-order binary tree.
    """
    top, result = group.size - 1, group.whole(group.output)
    rounds = _levels(post_order(group.size, [(0, top)]), top)
    yield from _combined(group, 0, rounds, incoming_left=True)
    if top != group.root:
        yield Round(Message(top, group.root, result, result))


def _levels(children: Children, top: int) -> list[tuple[Ints, Ints]]:
    """Return parents and children of a tree round by round, lowest first, first children first."""
    rounds, level = [], np.array([top])
    while len(level):
        for below in children[level].T[::-1]:
            if (below >= 0).any():
                rounds.append((level[below >= 0], below[below >= 0]))
        level = children[level][children[level] >= 0]
    return rounds[::-1]


@algorithm("reduce", "knomial", options={"radix": 4}, tree="knomial", in_rank_tree=with_radix_2)
def knomial(group: Group) -> Rounds:
    """Combine up a tree in which each node hears from radix - 1 others per level.

    The tree of bcast's algorithm of this name. A non-commutative operation is reduced to
    rank 0, whose subtrees are intervals of ranks, and sent on to the root.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most (one more for a non-commutative operation and a
    root other than 0); every rank but the root sends c once. Radix 2 is the binomial tree.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    root, vector = group.root if group.commutative else 0, group.whole(group.output)
    edges = knomial_tree(group, is_up=True)
    yield from _combined(group, root, ((one.parent, one.child) for one in edges))
    if root != group.root:
        yield Round(Message(root, group.root, vector, vector))


@algorithm("reduce", "linear", tree="any", streams=True, pipelines=("inside",))
def linear(group: Group) -> Rounds:
    """Send every vector to the root, which combines outwards from its own.

    Notes
    -----
    p - 1 rounds, as the root receives one at a time; (p - 1)·c enter the root
    and it computes all of (p - 1)·c.
    """
    root = group.root
    # Nearest first on either side keeps the operands in rank order.
    sources = np.concatenate((np.arange(root)[::-1], np.arange(root + 1, group.size)))
    value = group.whole(np.where(np.arange(group.size - 1) == 0, group.input, group.output))
    sent, result = group.whole(group.input), group.whole(group.output)
    yield Round(Message(sources, root, sent, result, combine=value, incoming_left=None))


@algorithm(
    "reduce",
    "rabenseifner",
    parts="power_of_two",
    best_for=("long",),
    in_rank_tree=by_folding,
    is_uniform=True,
)
def rabenseifner(group: Group) -> Rounds:
    """Reduce-scatter by recursive halving, then gather at the root.

    Surplus ranks fold into a neighbor first, so any p will do; nearest
    partners come first, so operands stay in rank order.

    Notes
    -----
    2·log₂ q + 1 rounds at most for q = 2^⌊log₂ p⌋; about 2c a rank instead of the
    tree's ⌈log₂ p⌉·c at the root.

    References
    ----------
    Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
    """
    folding = fold(group.size, survivor=group.root)
    yield folding.fold(group)
    yield from halving_reduce_scatter(group, folding)
    root = int(np.flatnonzero(folding.survivors == group.root)[0])
    yield from doubling_gather(group, folding, root)


@algorithm(
    "reduce",
    "rank_tree",
    parts="size",
    next_best_for=("long",),
    per_pair=1.0,
    in_rank_tree=always,
    is_uniform=True,
    tried_as=(),
)
def rank_tree(group: Group) -> Rounds:
    """Send every part straight to the rank that combines it in the rank tree, for the root.

    Notes
    -----
    2(p - 1) rounds, as the root receives one at a time; about 2c per rank; c of scratch. Every
    element is combined in the same tree, which depends on p only.
    """
    yield from combine_parts(group)
    part = at(group.output, group.others)
    yield Round(Message(group.others, group.root, part, part))


@algorithm(
    "reduce",
    "two_tree",
    parts="blocks",
    options={"blocks": "auto"},
    filling_rounds=filling_rounds,
)
def two_tree(group: Group) -> Rounds:
    """Combine half of n blocks up either of two trees, in which each rank is inner once at most.

    The rounds of bcast's algorithm of this name backwards. Both trees are in the order of
    ranks: a non-commutative operation is reduced to rank 0, and sent on to the root.

    Notes
    -----
    n + δ rounds with δ ≤ 2·⌈log₂ p⌉ (one more for a non-commutative operation and a root other
    than 0); every rank but the root sends c. `blocks` is n; with auto, about
    √(2·⌈log₂ p⌉·c·G/(L + 2o)).

    References
    ----------
    Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan", Parallel Computing 35, 2009.
    """
    root, vector = group.root if group.commutative else 0, group.whole(group.output)
    yield from combine(group, root)
    if root != group.root:
        yield Round(Message(root, group.root, vector, vector))
