"""Symbols: which ranks' contributions an atom holds, combined in which order.

A symbol is a number. With p ranks, ``lo * p + (n - 1)`` stands for the
contributions of ranks lo, lo+1, ..., lo+n-1 in that order; a commutative
operation wraps around p and begins at 0 where all are there. Other sets of
ranks (commutative operations only) are numbers from p² on, numbered as they
appear. Negative numbers stand for what went wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled
from collplan.planner.collective.semantics import Contents
from collplan.planner.verify.moves import Moves

Ints = npt.NDArray[np.integer[Any]]

UNDEFINED: Final = -1
"""Nobody has written it, or it was computed from such an element."""
MIXED: Final = -2
"""Elements of different index were combined."""
DUPLICATE: Final = -3
"""Somebody's contribution was combined with itself."""
ORDER: Final = -4
"""Operands of a non-commutative operation that are not neighbours in rank order."""

_WORDS: Final = {
    UNDEFINED: "undefined memory",
    MIXED: "a combination of different elements",
    DUPLICATE: "a contribution twice",
    ORDER: "operands out of rank order",
}


@dataclass(frozen=True, eq=False)
class Symbols:
    """What every atom holds; atom i is addresses ``edges[i]:edges[i+1]``.

    `term` is the symbol, `index` the logical element the atom's first one
    holds, `culprit` the task where a failure began, and `sets` the bit sets of
    general symbols.
    """

    edges: Ints
    term: Ints
    index: Ints
    culprit: Ints
    sets: npt.NDArray[np.uint64]
    n_ranks: int

    def first_wrong(self, start: Ints, wanted: Contents) -> tuple[int, int] | None:
        """Return the first contents row that is not met, and the atom where."""
        last = np.where(wanted.last - wanted.first > 0, wanted.last - wanted.first, 1)
        symbol = wanted.first * self.n_ranks + last - 1
        first_atom = np.searchsorted(self.edges, start)
        n_atoms = np.searchsorted(self.edges, start + wanted.count) - first_atom
        row = np.repeat(np.arange(len(start)), n_atoms)
        atom = np.arange(len(row)) - (np.cumsum(n_atoms) - n_atoms)[row] + first_atom[row]
        index = wanted.logical[row] + self.edges[atom] - start[row]
        bad = (self.term[atom] != symbol[row]) | (self.index[atom] != index)
        if not bad.any():
            return None
        i = int(np.argmax(bad))
        return int(row[i]), int(atom[i])

    def failure(self, atom: int) -> tuple[int, int] | None:
        """Return what went wrong with an atom and in which task (-1: none); None if nothing."""
        term = int(self.term[atom])
        return (term, int(self.culprit[atom])) if term < 0 else None

    def logical(self, atom: int) -> int:
        """Return the logical index of the atom's first element."""
        return int(self.index[atom])

    def ranks(self, atom: int) -> set[int]:
        """Return the ranks whose contributions an atom holds."""
        term = int(self.term[atom])
        if term < 0:
            return set()
        if term < self.n_ranks**2:
            low, n = divmod(term, self.n_ranks)
            return {(low + i) % self.n_ranks for i in range(n + 1)}
        bits = self.sets[term - self.n_ranks**2]
        return {r for r in range(self.n_ranks) if int(bits[r // 64]) >> (r % 64) & 1}

    def describe(self, atom: int) -> str:
        """Return in words what the atom's first element holds."""
        term = int(self.term[atom])
        if term < 0:
            return _WORDS[term]
        ranks = sorted(self.ranks(atom))
        if len(ranks) == 1:
            return f"element {self.logical(atom)} of rank {ranks[0]}"
        names = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
        return f"elements {self.logical(atom)} of ranks {names}, combined"


def run_symbols(
    edges: Ints, moves: Moves, start: Ints, before: Contents, n_ranks: int, *, commutative: bool
) -> Symbols:
    """Execute moves on symbols.

    Parameters
    ----------
    edges : ndarray
        Cuts of the address space, as `atom_edges` returns them.
    moves : Moves
        In execution order.
    start, before
        Addresses of the contributions, and what they hold.
    """
    n_atoms = len(edges)
    term = np.full(n_atoms, UNDEFINED, dtype=np.int64)
    index = np.zeros(n_atoms, dtype=np.int64)
    culprit = np.full(n_atoms, -1, dtype=np.int64)
    first_atom = np.searchsorted(edges, start)
    n = np.searchsorted(edges, start + before.count) - first_atom
    row = np.repeat(np.arange(len(start)), n)
    atom = np.arange(len(row)) - (np.cumsum(n) - n)[row] + first_atom[row]
    term[atom] = before.first[row] * n_ranks
    index[atom] = before.logical[row] + edges[atom] - start[row]
    sides = [np.searchsorted(edges, side, side="right") - 1 for side in (moves.left, moves.right)]
    sets = _execute(
        edges, term, index, culprit, n_ranks, commutative,
        moves.task, moves.left, moves.right, moves.dest, moves.count,
        sides[0], sides[1], np.searchsorted(edges, moves.dest),
    )  # fmt: skip
    return Symbols(edges, term, index, culprit, sets, n_ranks)


@compiled
def _execute(
    edges: Ints, term: Ints, index: Ints, culprit: Ints, n_ranks: int, commutative: bool,
    task: Ints, left: Ints, right: Ints, dest: Ints, count: Ints,
    left_atom: Ints, right_atom: Ints, dest_atom: Ints,
) -> Any:  # fmt: skip
    """Carry symbols along all moves; return the bit sets of general symbols."""
    words = (n_ranks + 63) // 64
    sets = np.zeros((16, words), np.uint64)
    table = np.full(64, -1, np.int64)
    one, other = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    n_sets = 0
    for move in range(len(task)):
        a, b = left_atom[move], right_atom[move]
        d, end = dest_atom[move], dest[move] + count[move]
        while edges[d] < end:
            shift = edges[d] - dest[move]
            while edges[a + 1] <= left[move] + shift:
                a += 1
            new = term[a]
            place = index[a] + left[move] + shift - edges[a]
            blame = culprit[a]
            if right[move] >= 0:
                while edges[b + 1] <= right[move] + shift:
                    b += 1
                place2 = index[b] + right[move] + shift - edges[b]
                if new < 0 or term[b] < 0:
                    if new >= 0:
                        new, blame = term[b], culprit[b]
                    if blame < 0:
                        blame = task[move]
                elif place != place2:
                    new, blame = MIXED, task[move]
                else:
                    if n_sets + 1 >= len(sets):
                        sets = np.concatenate((sets, np.zeros_like(sets)))
                    if 2 * n_sets >= len(table):
                        table = _grow_table(table, sets, n_sets)
                    new, n_sets = _combine(
                        new, term[b], n_ranks, commutative, sets, table, n_sets, one, other
                    )
                    if new < 0:
                        blame = task[move]
            term[d], index[d], culprit[d] = new, place, blame
            d += 1
    return sets[:n_sets].copy()


@compiled
def _combine(
    a: int, b: int, p: int, commutative: bool, sets: Any, table: Ints, n_sets: int,
    one: Any, other: Any,
) -> Any:  # fmt: skip
    """Return the symbol of ``a op b``, and how many general symbols there are now."""
    square = p * p
    if a < square and b < square:
        low_a, n_a = a // p, a % p + 1
        low_b, n_b = b // p, b % p + 1
        b_follows = (low_b - low_a) % p == n_a % p if commutative else low_a + n_a == low_b
        a_follows = commutative and (low_a - low_b) % p == n_b % p
        if n_a + n_b <= p and (b_follows or a_follows):
            low = low_a if b_follows else low_b
            if n_a + n_b == p:
                low = 0
            return low * p + n_a + n_b - 1, n_sets
    _to_bits(a, p, sets, one)
    _to_bits(b, p, sets, other)
    for word in range(len(one)):
        if one[word] & other[word]:
            return DUPLICATE, n_sets
    if not commutative:
        return ORDER, n_sets
    for word in range(len(one)):
        one[word] |= other[word]
    low, n = _as_interval(one, p)
    if n > 0:
        return low * p + n - 1, n_sets
    slot = _find(table, sets, one)
    if table[slot] < 0:
        table[slot] = n_sets
        sets[n_sets] = one
        n_sets += 1
    return square + table[slot], n_sets


@compiled
def _to_bits(symbol: int, p: int, sets: Any, bits: Any) -> None:
    if symbol >= p * p:
        bits[:] = sets[symbol - p * p]
        return
    bits[:] = 0
    for i in range(symbol % p + 1):
        rank = (symbol // p + i) % p
        bits[rank // 64] |= np.uint64(1) << np.uint64(rank % 64)


@compiled
def _as_interval(bits: Any, p: int) -> Any:
    """Return (lo, n) where the set is an interval modulo p, else n = 0."""
    n, n_starts, low = 0, 0, 0
    previous = (bits[(p - 1) // 64] >> np.uint64((p - 1) % 64)) & np.uint64(1)
    for rank in range(p):
        present = (bits[rank // 64] >> np.uint64(rank % 64)) & np.uint64(1)
        if present:
            n += 1
            if not previous:
                n_starts += 1
                low = rank
        previous = present
    return (low, n) if n_starts <= 1 else (0, 0)


@compiled
def _find(table: Ints, sets: Any, bits: Any) -> Any:
    """Return the table slot that holds the set, or the empty one where it belongs."""
    value = np.uint64(1469598103934665603)
    for word in bits:
        value = (value ^ word) * np.uint64(1099511628211)
        value ^= value >> np.uint64(29)
    slot = np.int64(value % np.uint64(len(table)))
    while table[slot] >= 0 and not np.array_equal(sets[table[slot]], bits):
        slot = (slot + 1) % len(table)
    return slot


@compiled
def _grow_table(table: Ints, sets: Any, n_sets: int) -> Any:
    bigger = np.full(4 * len(table), -1, np.int64)
    for number in range(n_sets):
        bigger[_find(bigger, sets, sets[number])] = number
    return bigger
