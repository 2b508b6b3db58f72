"""Association of operands: in which order, and in which pairs, a plan combines contributions.

The result of an operation that rounds depends on this order. All ranks that get the result of one
reduction must therefore get it from the same tree of combinations. Equal trees have equal numbers.

In a folded plan, a tree has the number of a tree of node 0 and a block, by which the motion
moves its contributions: ``number * n_blocks + block``. In other plans, there is one block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.collective.semantics import Contents, postcondition
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.verify.travel import BY_XOR, Rules, turned
from collplan.specs import Collective

_PRIME: Final = (1 << 31) - 1
MOST_LETTERS: Final = 60
"""Maximum length of the text of one tree in a message."""


class OperandTrees(NamedTuple):
    """Trees of combinations, for kernels.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n, 2)
        Operands of tree ``n_local + i``: the number of the first one, and the second one as it is
        seen from the block of the first one.
    table : ndarray of int64
        Rows of `pairs` by the hash of their operands; -1 where there is none.
    size : ndarray of int64, shape (1,)
        Number of rows of `pairs` that are used.
    """

    pairs: Ints
    table: Ints
    size: Ints

    @classmethod
    def room_for(cls, most: int) -> OperandTrees:
        """Return no trees, with room for as many combinations."""
        n_slots = 1 << (2 * most).bit_length()
        return cls(np.zeros((most, 2), np.int64), np.full(n_slots, -1), np.zeros(1, np.int64))


@inner
def joined(a: int, b: int, rules: Rules, trees: OperandTrees) -> int:
    """Return the tree that combines two trees."""
    n_blocks = rules.n_ranks // rules.n_local
    if rules.swaps and b // n_blocks < a // n_blocks:
        a, b = b, a
    block, there = a % n_blocks, b % n_blocks
    apart = block ^ there if rules.motion == BY_XOR else (there - block) % n_blocks
    first, second = a // n_blocks, b - there + apart
    pairs, table, size = trees
    place = ((first % _PRIME) * 630360016 + (second % _PRIME) * 397204094) % _PRIME
    slot = (place ^ (place >> 15)) % len(table)
    while table[slot] >= 0:
        row = table[slot]
        if pairs[row, 0] == first and pairs[row, 1] == second:
            break
        slot = (slot + 1) % len(table)
    if table[slot] < 0:
        table[slot] = size[0]
        pairs[size[0], 0], pairs[size[0], 1] = first, second
        size[0] += 1
    return int((rules.n_local + table[slot]) * n_blocks + block)


@inner
def moved(tree: Any, by: int, rules: Rules) -> Any:
    """Return a tree whose contributions the motion of block `by` moves."""
    n_blocks = rules.n_ranks // rules.n_local
    block = tree % n_blocks
    to = block ^ by if rules.motion == BY_XOR else (block + by) % n_blocks
    return tree - block + to


def shared_results(collective: Collective, n_ranks: int, after: Contents) -> Bools:
    """Mark the rows of the expected contents that several ranks must have with the same bits.

    Parameters
    ----------
    collective : Collective
    n_ranks : int
        Number of ranks of the collective.
    after : Contents
        Expected contents of all ranks of a plan, which are those of one node in a folded plan.
    """
    if not collective.rounds:
        return np.zeros(len(after), dtype=np.bool_)
    # Contents of all ranks, as a folded plan has one rank of each result.
    n = Counter(_keys(postcondition(collective, n_ranks)))
    several = np.array([n[key] > 1 for key in _keys(after)], dtype=np.bool_)
    shared: Bools = several & (after.last - after.first > 1)
    return shared


def _keys(contents: Contents) -> list[tuple[int, ...]]:
    """Return a key per row, which is equal for rows with the same contents."""
    columns = contents.first, contents.last, contents.logical, contents.count
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _equal_rows(keys: list[tuple[int, ...]]) -> list[Ints]:
    """Return the rows with each key."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return [np.array(found) for found in rows.values()]


class Difference(NamedTuple):
    """An element that two ranks get from different trees.

    Parameters
    ----------
    rows : (int, int)
        Rows of the expected contents; equal if the ranks are on different nodes of a folded plan.
    address : int
        Address of the element at the first one.
    trees : (str, str)
        The trees of the two ranks.
    """

    rows: tuple[int, int]
    address: int
    trees: tuple[str, str]


@dataclass(frozen=True, eq=False)
class Association:
    """The tree of combinations of each atom after a plan.

    Parameters
    ----------
    edges, tree : ndarray of int64
        Cuts of the address space, and the trees of the atoms between them.
    pairs : ndarray of int64
        As in `OperandTrees`.
    rules : Rules
    generators : list of int
        A few blocks of a folded plan, whose motions, repeated and combined, are those of all
        blocks; empty for other plans.
    """

    edges: Ints
    tree: Ints
    pairs: Ints
    rules: Rules
    generators: list[int]

    def first_difference(self, start: Ints, after: Contents) -> Difference | None:
        """Return the first element that two ranks combine in different orders, if there is one.

        Parameters
        ----------
        start : ndarray of int64
            Addresses of the expected contents.
        after : Contents
            Expected contents that several ranks must have with the same bits.
        """
        numbers = _Numbers(self.pairs, self.rules)
        for rows in _equal_rows(_keys(after)):
            begin = start[rows] - after.logical[rows]
            for there, element, by in self._places(begin, after, int(rows[0])):
                held = self._tree_at(begin[:, None] + there)
                wanted = moved.py_func(self._tree_at(begin[0] + element), by, self.rules)
                for row, i in np.argwhere(held != wanted).tolist():
                    both = int(held[row, i]), int(wanted[i])
                    if numbers.of(both[0]) != numbers.of(both[1]):
                        texts = numbers.text(both[0]), numbers.text(both[1])
                        where = int(rows[row]), int(rows[row if by else 0])
                        return Difference(where, int(begin[row] + there[i]), texts)
        return None

    def beside_rank_tree(self, start: Ints, after: Contents) -> Difference | None:
        """Return the first element that is not combined in the rank tree, if there is one.

        Parameters
        ----------
        start : ndarray of int64
            Addresses of the expected contents.
        after : Contents
            Expected contents.
        """
        numbers = _Numbers(self.pairs, self.rules)
        for row, (first, last) in enumerate(zip(after.first, after.last, strict=True)):
            wanted = numbers.rank_tree(int(first), int(last))
            low, high = int(start[row]), int(start[row] + after.count[row])
            cuts = np.searchsorted(self.edges, (low, high))
            held, place = np.unique(self._tree_at(self.edges[slice(*cuts)]), return_index=True)
            for tree, atom in zip(held.tolist(), (cuts[0] + place).tolist(), strict=True):
                # If the tree is the same from all nodes of a folded plan, all have this one.
                for by in (0, *self.generators):
                    seen = moved.py_func(tree, by, self.rules)
                    if numbers.of(seen) != wanted:
                        texts = numbers.text(seen), rank_tree_text(int(first), int(last))
                        return Difference((row, row), int(self.edges[atom]), texts)
        return None

    def beside(
        self, other: Association, start: tuple[Ints, Ints], after: Contents
    ) -> Difference | None:
        """Return the first element that another plan combines in another tree, if there is one.

        Parameters
        ----------
        other : Association
            Trees of a plan with the same expected contents.
        start : (ndarray of int64, ndarray of int64)
            Addresses of the expected contents in both plans.
        after : Contents
            Expected contents.
        """
        numbers = _Numbers(self.pairs, self.rules)
        others = _Numbers(other.pairs, other.rules, numbers.joined)
        for row, count in enumerate(after.count.tolist()):
            inside = [
                one.edges[slice(*np.searchsorted(one.edges, (low, low + count)))] - low
                for one, low in ((self, start[0][row]), (other, start[1][row]))
            ]
            places = csr.sorted_unique(np.concatenate(inside))
            both = np.stack([
                one._tree_at(begin[row] + places)
                for one, begin in zip((self, other), start, strict=True)
            ])  # fmt: skip
            pairs, first = np.unique(both, axis=1, return_index=True)
            for (held, wanted), place in zip(pairs.T.tolist(), places[first], strict=True):
                if numbers.of(held) != others.of(wanted):
                    texts = numbers.text(held), others.text(wanted)
                    return Difference((row, row), int(start[0][row] + place), texts)
        return None

    def _places(self, begin: Ints, after: Contents, row: int) -> Iterator[tuple[Ints, Ints, int]]:
        """Yield elements, the elements that are these on another node, and the node's block.

        The trees of the former must be those of the latter, moved to this block. The first ones
        are the elements themselves. Ranks have the elements from the addresses `begin` on.
        """
        low, high = (int(after.logical[row] + n) for n in (0, after.count[row]))
        first, last = (np.searchsorted(self.edges, begin + end) for end in (low, high))
        cuts = self.edges[csr.ranges(first, last - first)]
        inside = csr.sorted_unique(cuts - np.repeat(begin, last - first))
        yield inside, inside, 0
        for block in self.generators:
            back = block if self.rules.motion == BY_XOR else self._n_blocks - block
            element = csr.sorted_unique(np.concatenate((inside, turn(inside, self.rules, back))))
            element = element[(element >= low) & (element < high)]
            yield turn(element, self.rules, block), element, block

    @property
    def _n_blocks(self) -> int:
        return self.rules.n_ranks // self.rules.n_local

    def _tree_at(self, addresses: Ints) -> Ints:
        return self.tree[np.searchsorted(self.edges, addresses, side="right") - 1]


@compiled
def turn(elements: Ints, rules: Rules, apart: int) -> Any:
    """Return the elements that correspond to elements on the node that is `apart` nodes away."""
    found = np.empty_like(elements)
    for i in range(len(elements)):
        found[i] = turned(elements[i], rules, apart)
    return found


def split_of(n_ranks: int) -> int:
    """Return how many of the ranks of a rank tree are in its left half.

    Examples
    --------
    >>> [split_of(n) for n in (2, 3, 4, 5, 6, 9)]
    [1, 2, 2, 4, 4, 8]
    """
    return 1 << (n_ranks - 1).bit_length() - 1


def rank_tree_text(first: int, last: int) -> str:
    """Return the ranks of a rank tree in parentheses, cut as that of any tree.

    Examples
    --------
    >>> rank_tree_text(0, 6)
    '(((0 1) (2 3)) (4 5))'
    """

    def text(low: int, high: int) -> str:
        if high - low == 1:
            return str(low)
        middle = low + split_of(high - low)
        left = text(low, middle)
        return f"({left} {text(middle, high)})" if len(left) <= MOST_LETTERS else f"({left}"

    whole = text(first, last)
    return whole if len(whole) <= MOST_LETTERS else whole[:MOST_LETTERS] + "..."


class _Numbers:
    """Numbers of trees of contributions of ranks: equal trees have equal numbers."""

    def __init__(
        self, pairs: Ints, rules: Rules, joined: dict[tuple[int, int], int] | None = None
    ) -> None:
        self._pairs, self._rules = pairs, rules
        self.joined: dict[tuple[int, int], int] = {} if joined is None else joined
        self._n_blocks = rules.n_ranks // rules.n_local
        self._known: dict[int, int] = {}
        self._ranked: dict[tuple[int, int], int] = {}

    def of(self, tree: int) -> int:
        """Return the number of a tree of a folded plan, or of another plan."""
        stack = [tree]
        while stack:
            top = stack[-1]
            operands = self._operands(top)
            if operands is None:
                node, block = divmod(top, self._n_blocks)
                self._known[top] = node + block * self._rules.n_local
            elif missing := [one for one in operands if one not in self._known]:
                stack += missing
                continue
            else:
                self._known[top] = self._join(*(self._known[one] for one in operands))
            stack.pop()
        return self._known[tree]

    def rank_tree(self, first: int, last: int) -> int:
        """Return the number of the rank tree of ranks `first` to ``last - 1``."""
        if last - first == 1:
            return first
        if (first, last) not in self._ranked:
            middle = first + split_of(last - first)
            halves = self.rank_tree(first, middle), self.rank_tree(middle, last)
            self._ranked[first, last] = self._join(*halves)
        return self._ranked[first, last]

    def _join(self, one: int, other: int) -> int:
        """Return the number of the combination of two trees, given by their numbers."""
        pair = (min(one, other), max(one, other)) if self._rules.swaps else (one, other)
        return self.joined.setdefault(pair, self._rules.n_ranks + len(self.joined))

    def _operands(self, tree: int) -> tuple[int, int] | None:
        node, block = divmod(tree, self._n_blocks)
        if node < self._rules.n_local:
            return None
        first, second = self._pairs[node - self._rules.n_local].tolist()
        return first * self._n_blocks + block, moved.py_func(second, block, self._rules)

    def text(self, tree: int) -> str:
        """Return the ranks of a tree in parentheses, as ``((0 1) 2)``."""
        parts: list[str] = []
        stack: list[int | str] = [tree]
        while stack and len(parts) < MOST_LETTERS:
            top = stack.pop()
            if isinstance(top, str):
                parts.append(top)
                continue
            operands = self._operands(top)
            if operands is None:
                parts.append(str(self.of(top)))
            else:
                stack += [")", operands[1], " ", operands[0], "("]
        text = "".join(parts)
        return text if not stack and len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "..."
