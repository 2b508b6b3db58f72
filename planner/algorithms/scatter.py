"""Algorithms of scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collplan.planner.algorithms import gather
from collplan.planner.algorithms.building_blocks.trees import knomial_tree
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, Step, at


def _backwards(group: Group, rounds_of: Callable[[Group], Rounds]) -> Rounds:
    """Yield the rounds of a gather from the last to the first, with every message turned.

    Input and output change places, so that blocks come from where a gather collects them.
    """
    turned = replace(group, input=group.output, output=group.input)
    for one in reversed(list(rounds_of(turned))):
        yield Round(*map(_turned, one.steps))


def _turned(step: Step) -> Step:
    if isinstance(step, Message):
        return Message(step.dest, step.source, step.write, step.read)
    assert isinstance(step, Copy), "gathers combine nothing"
    return Copy(step.rank, step.write, step.read)


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
    yield from _backwards(group, gather.bine)


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
    yield from _backwards(group, gather.binomial)


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

    The messages of gather's algorithm of this name backwards. Children of a level are fed in the
    order of their numbers.

    Notes
    -----
    (radix - 1)·⌈log_radix p⌉ rounds at most; (p - 1)·c leave the root, and no message has more
    than radix^(⌈log_radix p⌉ - 1) blocks. Radix 2 is the binomial tree.

    References
    ----------
    Wilkins et al., "Generalized collective algorithms for the exascale era", CLUSTER 2023.
    """
    yield from _backwards(
        group,
        lambda turned: gather.up_tree(turned, reversed(list(knomial_tree(group, is_up=False)))),
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
    yield from _backwards(group, gather.linear)


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
    yield from _backwards(group, gather.by_size)
