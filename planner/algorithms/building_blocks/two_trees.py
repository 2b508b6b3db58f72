"""Two trees over the same ranks, each an inner node of one at most, which carry half a vector each.

References
----------
Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
Parallel Computing 35, 2009. Both trees here are in order; the paper's second one is mirrored or
shifted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at, option_int
from collplan.planner.arrays import Ints
from collplan.planner.arrays.logarithms import ceil_log2

Edge = tuple[int, int]
"""A tree, 0 or 1, and the child at the lower end."""


def in_order_parents(size: int) -> list[int]:
    """Return the parents of nodes 1 to `size` of the in-order tree; the top has parent 0.

    Its leaves are odd. A node's parent has the next bit instead of its lowest one; parents
    beyond `size` are left out.

    Examples
    --------
    >>> in_order_parents(6)
    [2, 4, 2, 0, 6, 4]
    """
    parents = []
    for node in range(1, size + 1):
        while True:
            low = node & -node
            node = (node ^ low) | low << 1
            if node <= size:
                parents.append(node)
                break
            if low > size:
                parents.append(0)
                break
    return parents


def two_trees(size: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parents of positions 1 to size - 1 in both trees, whose root is 0.

    Leaves of the first are odd, those of the second even: it is a tree on one number more, of
    which all are less by one, without its first leaf.
    """
    first = dict(enumerate(in_order_parents(size - 1), 1))
    second = {
        node: max(0, parent - 1) for node, parent in enumerate(in_order_parents(size)) if node
    }
    return first, second


def colors(trees: tuple[dict[int, int], dict[int, int]]) -> dict[Edge, int]:
    """Return 0 or 1 for every edge, unlike for two edges with one parent or one child.

    A rank has at most two edges to children and two to parents, so that edges that may not be
    alike form paths and cycles.
    """
    edges = [(tree, child) for tree, parents in enumerate(trees) for child in parents]
    beside: dict[tuple[str, int], list[Edge]] = defaultdict(list)
    for tree, child in edges:
        beside["parent", trees[tree][child]].append((tree, child))
        beside["child", child].append((tree, child))
    found: dict[Edge, int] = {}
    for edge in edges:
        waiting = [(edge, 0)]
        while waiting:
            one, color = waiting.pop()
            if one in found:
                continue
            found[one] = color
            tree, child = one
            near = beside["parent", trees[tree][child]] + beside["child", child]
            waiting += [(other, 1 - color) for other in near if other != one]
    return found


@lru_cache(maxsize=16)
def first_rounds(size: int) -> tuple[Ints, Ints, Ints, tuple[Ints, Ints]]:
    """Return the tree, parent and child of all edges, and the rounds of their first blocks.

    Edges of color 0 are used in even rounds and others in odd ones, or the other way round:
    there are two solutions.
    """
    trees = two_trees(size)
    color = colors(trees)
    # Parents have larger lowest bits than their children; those of the second tree by one more.
    edges = sorted(color, key=lambda edge: -_low(edge[1] + edge[0]))
    both = []
    for flip in (0, 1):
        first = {(0, 0): -1, (1, 0): -1}
        for tree, child in edges:
            begin = first[tree, trees[tree][child]] + 1
            first[tree, child] = begin + (begin + color[tree, child] + flip) % 2
        both.append(np.array([first[edge] for edge in edges], dtype=np.int64))
    parent = np.array([trees[tree][child] for tree, child in edges], dtype=np.int64)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return ends[:, 0], parent, ends[:, 1], (both[0], both[1])


def _low(number: int) -> int:
    return number & -number


def two_tree_rounds(
    size: int, n_blocks: int, *, backwards: bool = False
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield parents, children and blocks of all rounds of a broadcast from position 0.

    Even blocks take the first tree, and odd blocks the second. An edge is used in every other
    round.
    """
    tree, parent, child, both = first_rounds(size)
    n_own = (n_blocks + 1 - tree) // 2
    n_rounds, first = min(
        ((int(((first + 2 * n_own - 1) * (n_own > 0)).max(initial=0)), first) for first in both),
        key=lambda found: found[0],
    )
    numbers = range(n_rounds)
    for number in reversed(numbers) if backwards else numbers:
        turn = number - first
        used = (turn >= 0) & (turn % 2 == 0) & (turn < 2 * n_own)
        yield parent[used], child[used], turn[used] + tree[used]


def filling_rounds(size: int) -> float:
    """Return about how many rounds more than blocks there are."""
    return 2 * ceil_log2(size)


def spread(group: Group) -> Rounds:
    """Broadcast the output of the root in blocks."""
    for parent, child, block in two_tree_rounds(group.size, option_int(group, "blocks", 1)):
        yield Round(group.down(parent, child, at(group.output, block)))


def combine(group: Group, root: int) -> Rounds:
    """Reduce to position `root`, in rank order where that is 0: the broadcast backwards.

    The first block is complete first.
    """
    n_blocks = option_int(group, "blocks", 1)
    is_partial = np.zeros((group.size, n_blocks), dtype=bool)
    for dest, source, mirrored in two_tree_rounds(group.size, n_blocks, backwards=True):
        block = n_blocks - 1 - mirrored
        sent, own = (
            at(np.where(is_partial[node, block], group.output, group.input), block)
            for node in (source, dest)
        )
        is_partial[dest, block] = True
        ends = (source + root) % group.size, (dest + root) % group.size
        result = at(group.output, block)
        yield Round(Message(*ends, sent, result, combine=own, incoming_left=None))
