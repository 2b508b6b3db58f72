"""Algorithms of scatter."""

from __future__ import annotations

import numpy as np

from collplan.planner.algorithms.building_blocks.bine import inner_bine_tree
from collplan.planner.algorithms.building_blocks.knomial_tree import (
    has_children,
    knomial_tree,
    radix_of,
)
from collplan.planner.algorithms.building_blocks.size_trees import staged_tree
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("scatter", "bine", tree="any")
def bine(group: Group) -> Rounds:
    """Halve runs of blocks down bcast's tree of this name.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c leave the root.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    root, (rounds, below_root) = group.root, inner_bine_tree(group.size)
    inner, subtree = group.from_root(below_root), group.packed_scratch()
    for edges in rounds:
        first = group.from_root(edges.first)
        read = at(np.where(edges.parent > 0, subtree, group.input), first, edges.n)
        write = at(np.where(edges.n > 1, subtree, group.output), first, edges.n)
        ends = group.from_root(edges.parent), group.from_root(edges.child)
        yield Round(Message(*ends, read, write))
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(subtree, inner), at(group.output, inner)),
    )


@algorithm("scatter", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Halve runs of blocks down a binomial tree.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c leave the root. Inner ranks hold their subtree's
    blocks in scratch.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size, root = group.size, group.root
    subtree = group.rotated_scratch()
    for level in reversed(range(ceil_log2(size))):
        span = 1 << level
        relative = np.arange(span, size, 2 * span)
        source, dest = group.from_root(relative - span), group.from_root(relative)
        n = np.minimum(span, size - relative)
        from_root = relative == span
        read = at(np.where(from_root, group.input, subtree), np.where(from_root, dest, span), n)
        leaf = (relative % 2 == 1) | (relative == size - 1)
        write = at(np.where(leaf, group.output, subtree), np.where(leaf, dest, 0), n)
        yield Round(Message(source, dest, read, write))
    inner = group.from_root(np.arange(2, size - 1, 2))
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(subtree, 0), at(group.output, inner)),
    )


@algorithm("scatter", "chain", tree="any", streams=True, per_pair=0.5, forwards=True)
def chain(group: Group) -> Rounds:
    """Move blocks away from the root along a chain, the farthest block first.

    In round t the rank v after the root passes on the block of the rank
    p - 1 - t + v after it, so all blocks arrive in the last round.

    Notes
    -----
    p - 1 rounds; the root sends (p - 1)·c and its neighbor (p - 2)·c. Two
    blocks of scratch.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    size, root = group.size, group.root
    relay = group.scratch_slots(2)
    for step in range(size - 1):
        relative = np.arange(0, step + 1)
        source, dest = group.from_root(relative), group.from_root(relative + 1)
        block = group.from_root(size - 1 - step + relative)
        from_root = relative == 0
        read = at(
            np.where(from_root, group.input, relay),
            np.where(from_root, block, step % 2 * size + block),
        )
        write = (
            at(group.output, block)
            if step == size - 2
            else at(relay, (step + 1) % 2 * size + block)
        )
        yield Round(Message(source, dest, read, write))
    yield Round(Copy(root, at(group.input, root), at(group.output, root)))


@algorithm("scatter", "knomial", options={"radix": 4}, tree="knomial")
def knomial(group: Group) -> Rounds:
    """Hand runs of blocks down a tree in which each node feeds radix - 1 others per level.

    The rounds of gather's algorithm of this name backwards.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most; (p - 1)·c leave the root, and no message has more
    than radix^(⌈log_radix p⌉ - 1) blocks. Radix 2 is the binomial tree.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    size, root, radix = group.size, group.root, radix_of(group)
    subtree = group.rotated_scratch()
    for edges in knomial_tree(group, is_up=False):
        source, dest = group.from_root(edges.parent), group.from_root(edges.child)
        is_inner, from_root = has_children(edges.child, size, radix), edges.parent == 0
        sent = (
            np.where(from_root, group.input, subtree),
            np.where(from_root, dest, edges.child - edges.parent),
        )
        kept = np.where(is_inner, subtree, group.output), np.where(is_inner, 0, dest)
        yield Round(Message(source, dest, at(*sent, edges.n), at(*kept, edges.n)))
    me = np.arange(1, size)
    inner = group.from_root(me[has_children(me, size, radix)])
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(subtree, 0), at(group.output, inner)),
    )


@algorithm(
    "scatter",
    "linear",
    tree="any",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
)
def linear(group: Group) -> Rounds:
    """Send every block straight from the root.

    Notes
    -----
    p - 1 rounds, as the root sends one at a time; (p - 1)·c leave the root.
    """
    dest, root = group.others, group.root
    yield Round(
        Message(root, dest, at(group.input, dest), at(group.output, dest)),
        Copy(root, at(group.input, root), at(group.output, root)),
    )


@algorithm("scatter", "size_tree", best_for=("uneven",), streams=True, by_counts=True)
def by_size(group: Group) -> Rounds:
    """Halve runs of blocks down a binomial tree, the lighter half always to the farther rank.

    The rounds of gather's tree backwards: a rank keeps the heavier half of its run, and
    large blocks take few steps.

    Notes
    -----
    ⌈log₂ p⌉ rounds; but for messages from the root, none carries more than half of what its
    sender then has. The time is at
    most ⌈log₂ p⌉·α, plus β times the sum of all blocks and the longest message of the root.

    References
    ----------
    Träff, "Practical, distributed, low overhead algorithms for irregular gather and scatter
    collectives", Parallel Computing 75, 2018.
    """
    root, (rounds, inner, subtree) = group.root, staged_tree(group)
    for dest, source, first, n in reversed(rounds):
        read = at(np.where(source == root, group.input, subtree), first, n)
        write = at(np.where(np.isin(dest, inner), subtree, group.output), first, n)
        yield Round(Message(source, dest, read, write))
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(subtree, inner), at(group.output, inner)),
    )
