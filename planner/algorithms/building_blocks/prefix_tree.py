"""In-order tree in which sums of blocks are sent up while prefixes of other blocks are sent down.

References
----------
Sanders, Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collplan.planner.algorithms.building_blocks.two_trees import Turns, in_order_parents
from collplan.planner.algorithms.rounds import (
    Copy,
    Group,
    Index,
    Message,
    Reduce,
    Round,
    Rounds,
    at,
    option_int,
)
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import floor_log2


@dataclass(frozen=True, eq=False, slots=True)
class PrefixTree:
    """Edges of the tree, and the rounds of their first blocks; later blocks take every third round.

    Sums are sent up from all nodes except those whose subtree contains the last position. Prefixes
    are sent down to all nodes except those whose subtree contains position 0.

    Parameters
    ----------
    child, parent, up : ndarray of int64, shape (m,)
        Ends of the edges that carry sums up, and round of the first block on each.
    below, above, down : ndarray of int64, shape (n,)
        Ends of the edges that carry prefixes down, and round of the first block on each.
    n_rounds : int
        Number of rounds for one block.
    """

    child: Ints
    parent: Ints
    up: Ints
    below: Ints
    above: Ints
    down: Ints
    n_rounds: int


@lru_cache(maxsize=16)
def prefix_tree(size: int) -> PrefixTree:
    """Return the tree on two or more positions, with the best of the three possible phases."""
    return min((_scheduled(size, phase) for phase in range(3)), key=lambda one: one.n_rounds)


def _scheduled(size: int, phase: int) -> PrefixTree:
    """Return the tree if edges of color c are used in rounds c - phase, modulo 3.

    Nodes are positions plus one. The edges of a node differ in color. Each edge is used as soon
    as its data are available. Data from the right child of a node wait for those from the left.
    """
    parent = np.append(0, in_order_parents(size))
    node = np.arange(size + 1)
    low, is_left = node & -node, node < parent
    children = np.zeros((2, size + 1), dtype=np.int64)
    children[0, parent[is_left]], children[1, parent[~is_left]] = node[is_left], node[~is_left]
    children[:, 0] = 0
    # The inner nodes from the leaves to the root; those of a level are not related.
    levels = [np.flatnonzero(low == 2 << level) for level in range(floor_log2(size))]
    color, ready, up, down = np.zeros((4, size + 1), dtype=np.int64)
    ready[:] = up[:] = down[:] = -1
    for nodes in reversed(levels):
        for turn, child in enumerate(children[:, nodes]):
            color[child] = color[nodes] + 1 + turn

    def after(number: Ints, child: Ints) -> Ints:
        """Return the first rounds after rounds `number` in which the edges above are used."""
        found: Ints = number + 1 + (color[child] - phase - number - 1) % 3
        return found

    rises = (node > 0) & (node + low <= size)
    for nodes in levels:
        for child in children[:, nodes]:
            top, one = nodes[rises[child]], child[rises[child]]
            up[one] = ready[top] = after(np.maximum(ready[one], ready[top]), one)
    falls = node & (node - 1) > 0
    for nodes in reversed(levels):
        for turn, child in enumerate(children[:, nodes]):
            top, one = nodes[falls[child]], child[falls[child]]
            known = np.max([down[top], up[children[0, one]], up[one] - 1], axis=0)
            down[one] = after(np.maximum(known, up[children[0, top]]) if turn else known, one)
    edges: list[Ints] = []
    every = np.concatenate([np.zeros(0, dtype=np.int64), *levels])
    for tops, times, is_used in ((every, up, rises), (every[::-1], down, falls)):
        child = children[:, tops].T.ravel()
        child = child[is_used[child]]
        edges += [child - 1, parent[child] - 1, times[child]]
    lower, upper, rising, below, above, falling = edges
    n_rounds = 1 + int(max(up.max(), down.max()))
    return PrefixTree(lower, upper, rising, below, above, falling, n_rounds)


def filling_rounds(size: int) -> float:
    """Return the approximate number of extra rounds to fill and drain the pipeline, divided by 3.

    Each block takes three rounds.
    """
    return max(0.0, 4 * floor_log2(size) / 3 - 1)


class _Places:
    """Spaces in which nodes keep sums and prefixes.

    Leaves need only their own vector. Inner nodes keep the sum of their left subtree (`left`),
    this sum joined with their own vector (`joined`), and the total of their subtree (`total`).
    They also keep the prefix before their subtree, for the left child (`before`), and this prefix
    joined with `joined`, for the right child (`passed`).
    """

    def __init__(self, group: Group, *, is_exclusive: bool) -> None:
        position = np.arange(group.size)
        self.is_leaf = position % 2 == 0
        self.is_first = position & (position + 1) == 0
        self.has_right = ~self.is_leaf & (position < group.size - 1)
        self.left, self.before, total = (group.packed_scratch() for _ in range(3))
        joined: Index = group.packed_scratch()
        passed: Index = group.packed_scratch()
        if not is_exclusive:
            # Prefixes are results. The joined sum of a node is one if its subtree has position 0.
            joined, passed = np.where(self.is_first, group.output, joined), group.output
        self.joined = np.where(self.is_leaf, group.input, joined)
        self.total = np.where(self.has_right, total, self.joined)
        self.passed = np.where(self.is_first, self.joined, passed)


def tree_prefixes_in_blocks(group: Group, *, is_exclusive: bool) -> Rounds:
    """Compute the prefix of every position in its output, block by block."""
    size, n_blocks = group.size, option_int(group, "blocks", 1)
    if not is_exclusive:
        yield Round(Copy(0, group.whole(group.input), group.whole(group.output)))
    if size == 1:
        return
    tree, places = prefix_tree(size), _Places(group, is_exclusive=is_exclusive)
    ups, downs = (
        Turns(first, 3, n_blocks, group.needed(np.arange(len(first)), *ends))
        for first, *ends in (
            (tree.up, tree.child, tree.parent),
            (tree.down, tree.below, tree.above),
        )
    )
    for number in range(tree.n_rounds + 3 * (n_blocks - 1)):
        (up, rising), (down, falling) = ups.at(number), downs.at(number)
        yield Round(
            *_rise(group, places, tree.child[up], tree.parent[up], rising, is_exclusive),
            *_fall(group, places, tree.below[down], tree.above[down], falling, is_exclusive),
        )


def _rise(
    group: Group, places: _Places, child: Ints, parent: Ints, block: Ints, is_exclusive: bool
) -> Iterator[Message | Reduce | Copy]:
    """Yield messages of totals to parents, which join them with their own vectors."""
    is_left = child < parent
    source, node, left = child[is_left], parent[is_left], block[is_left]
    total = at(places.total[source], left)
    own, joined = at(group.input, left), at(places.joined[node], left)
    if is_exclusive:
        came = at(places.left, left)
        yield Message(source, node, total, came)
        yield Reduce(node, came, own, joined)
        first = places.is_first[node]
        result = at(group.output, left[first])
        yield Copy(node[first], at(places.left, left[first]), result)
    else:
        yield Message(source, node, total, joined, combine=own, incoming_left=True)
    source, node, right = child[~is_left], parent[~is_left], block[~is_left]
    own, total = at(places.joined[node], right), at(places.total[node], right)
    yield Message(source, node, at(places.total[source], right), total, combine=own)


def _fall(
    group: Group, places: _Places, below: Ints, above: Ints, block: Ints, is_exclusive: bool
) -> Iterator[Message | Reduce]:
    """Yield messages of prefixes to children, which join them with their own sums."""
    space = np.where(below < above, places.before, places.passed[above])
    is_leaf = places.is_leaf[below]
    node, known, part = below[is_leaf], space[is_leaf], block[is_leaf]
    result, own = at(group.output, part), at(group.input, part)
    combine = None if is_exclusive else own
    yield Message(above[is_leaf], node, at(known, part), result, combine, incoming_left=True)
    node, known, part = below[~is_leaf], space[~is_leaf], block[~is_leaf]
    came, result = at(places.before, part), at(group.output, part)
    yield Message(above[~is_leaf], node, at(known, part), came)
    kept = at(places.left, part) if is_exclusive else at(places.joined[node], part)
    yield Reduce(node, came, kept, result)
    if is_exclusive:
        passing = places.has_right[node]
        node, part = node[passing], part[passing]
        joined, passed = at(places.joined[node], part), at(places.passed[node], part)
        yield Reduce(node, at(places.before, part), joined, passed)
