"""Algorithms of gather."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collplan.planner.algorithms.building_blocks.bine import inner_bine_tree
from collplan.planner.algorithms.building_blocks.trees import (
    KnomialEdges,
    has_children,
    knomial_tree,
    radix_of,
    staged_tree,
)
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.arrays.logarithms import ceil_log2


@algorithm("gather", "bine", tree="any")
def bine(group: Group) -> Rounds:
    """Collect runs of blocks up bcast's tree of this name.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c enter the root, and no rank sends more than ⌊p/2⌋·c.

    References
    ----------
    De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
    locality", SC 2025.
    """
    root, (rounds, below_root) = group.root, inner_bine_tree(group.size)
    inner, subtree = group.from_root(below_root), group.packed_scratch()
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(group.input, inner), at(subtree, inner)),
    )
    for edges in reversed(rounds):
        first = group.from_root(edges.first)
        read = at(np.where(edges.n > 1, subtree, group.input), first, edges.n)
        write = at(np.where(edges.parent > 0, subtree, group.output), first, edges.n)
        ends = group.from_root(edges.child), group.from_root(edges.parent)
        yield Round(Message(*ends, read, write))


@algorithm("gather", "binomial", tree="binomial", best_for=("short",), streams=True)
def binomial(group: Group) -> Rounds:
    """Collect ever larger runs of blocks up a binomial tree.

    Inner ranks collect their subtree's blocks side by side in scratch, so
    each sends one contiguous message; the root receives in place.

    Notes
    -----
    ⌈log₂ p⌉ rounds; (p - 1)·c enter the root.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    size, root = group.size, group.root
    subtree = group.rotated_scratch()
    me = np.arange(2, size - 1, 2)
    inner = group.from_root(me)
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(group.input, inner), at(subtree, 0)),
    )
    for level in range(ceil_log2(size)):
        span = 1 << level
        relative = np.arange(span, size, 2 * span)
        source, dest = group.from_root(relative), group.from_root(relative - span)
        n = np.minimum(span, size - relative)
        # A leaf has nothing but its own block, which needs no staging.
        leaf = (relative % 2 == 1) | (relative == size - 1)
        read = at(np.where(leaf, group.input, subtree), np.where(leaf, source, 0), n)
        to_root = relative == span
        write = at(np.where(to_root, group.output, subtree), np.where(to_root, source, span), n)
        yield Round(Message(source, dest, read, write))


@algorithm("gather", "chain", tree="any", streams=True, per_pair=0.5, forwards=True)
def chain(group: Group) -> Rounds:
    """Move blocks towards the root along a chain, a block per round.

    In round t the rank v after the root passes on block v + t: first its own,
    then what arrived from v + 1.

    Notes
    -----
    p - 1 rounds; the root's neighbor sends (p - 1)·c, and all blocks enter
    the root over one link in the order of the chain. Two blocks of scratch.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    size, root = group.size, group.root
    relay = group.scratch_slots(2)
    yield Round(Copy(root, at(group.input, root), at(group.output, root)))
    for step in range(size - 1):
        relative = np.arange(1, size - step)
        source, dest = group.from_root(relative), group.from_root(relative - 1)
        block = group.from_root(relative + step)
        read = at(group.input, block) if step == 0 else at(relay, step % 2 * size + block)
        at_root = relative == 1
        write = at(
            np.where(at_root, group.output, relay),
            np.where(at_root, block, (step + 1) % 2 * size + block),
        )
        yield Round(Message(source, dest, read, write))


@algorithm("gather", "knomial", options={"radix": 4}, tree="knomial")
def knomial(group: Group) -> Rounds:
    """Collect runs of blocks up a tree in which each node hears from radix - 1 others per level.

    The tree of bcast's algorithm of this name; inner ranks collect in scratch, as in
    `binomial`.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most; (p - 1)·c enter the root, and no message has more
    than radix^(⌈log_radix p⌉ - 1) blocks. Radix 2 is the binomial tree.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from up_tree(group, knomial_tree(group, is_up=True))


def up_tree(group: Group, rounds: Iterable[KnomialEdges]) -> Rounds:
    """Collect runs of blocks up the edges of a k-nomial tree, round by round."""
    size, root, radix = group.size, group.root, radix_of(group)
    subtree = group.rotated_scratch()
    me = np.arange(1, size)
    inner = group.from_root(me[has_children(me, size, radix)])
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(group.input, inner), at(subtree, 0)),
    )
    for edges in rounds:
        source, dest = group.from_root(edges.child), group.from_root(edges.parent)
        is_inner, to_root = has_children(edges.child, size, radix), edges.parent == 0
        sent = np.where(is_inner, subtree, group.input), np.where(is_inner, 0, source)
        kept = (
            np.where(to_root, group.output, subtree),
            np.where(to_root, source, edges.child - edges.parent),
        )
        yield Round(Message(source, dest, at(*sent, edges.n), at(*kept, edges.n)))


@algorithm(
    "gather",
    "linear",
    tree="any",
    best_for=("shared",),
    streams=True,
    pipelines=("inside", "across"),
)
def linear(group: Group) -> Rounds:
    """Send every block straight to the root.

    Notes
    -----
    p - 1 rounds, as the root receives one at a time; every rank sends its c.
    """
    me, root = group.others, group.root
    yield Round(
        Message(me, root, at(group.input, me), at(group.output, me)),
        Copy(root, at(group.input, root), at(group.output, root)),
    )


@algorithm("gather", "size_tree", best_for=("uneven",), streams=True, by_counts=True)
def by_size(group: Group) -> Rounds:
    """Collect runs of blocks up a binomial tree, the lighter of two runs always to the heavier.

    Neighboring runs of 1, 2, 4, ... ranks merge. The head of the heavier run leads both, so
    large blocks lie near the root; the run with the root is led by the root.

    Notes
    -----
    ⌈log₂ p⌉ rounds; but for messages to the root, none carries more than half of what its
    receiver then has. The time is at
    most ⌈log₂ p⌉·α, plus β times the sum of all blocks and the longest message to the root.

    References
    ----------
    Träff, "Practical, distributed, low overhead algorithms for irregular gather and scatter
    collectives", Parallel Computing 75, 2018.
    """
    root, (rounds, inner, subtree) = group.root, staged_tree(group)
    yield Round(
        Copy(root, at(group.input, root), at(group.output, root)),
        Copy(inner, at(group.input, inner), at(subtree, inner)),
    )
    for source, dest, first, n in rounds:
        read = at(np.where(np.isin(source, inner), subtree, group.input), first, n)
        write = at(np.where(dest == root, group.output, subtree), first, n)
        yield Round(Message(source, dest, read, write))
