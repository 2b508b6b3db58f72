"""Symbolic execution of a plan, which shows the final contents of every element.

A symbol is a number that represents the combined contributions of some ranks. With p ranks,
``lo * p + (n - 1)`` represents the contributions of ranks lo, lo+1, ..., lo+n-1 in this order.
For a commutative operation, ranks wrap around p, and the set of all ranks begins at 0. Other
sets of ranks, which occur only with commutative operations, have numbers from p² on, in order of
appearance. Negative numbers represent failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import last_at_or_below
from collplan.planner.collective.semantics import Contents
from collplan.planner.errors import (
    DuplicateContributionError,
    OperandOrderError,
    PostconditionError,
    UndefinedReadError,
)
from collplan.planner.machine_code.kernel import compiled, inner
from collplan.planner.verify.association import OperandTrees, joined, moved
from collplan.planner.verify.moves import Moves
from collplan.planner.verify.travel import (
    BY_SHIFT,
    BY_XOR,
    IN_ORDER,
    Rules,
    turned,
)

UNDEFINED: Final = -1
"""The element was never written, or was computed from such an element."""
MIXED: Final = -2
"""Elements of different index were combined."""
DUPLICATE: Final = -3
"""A contribution was combined with itself."""
ORDER: Final = -4
"""Operands of a non-commutative operation were not adjacent in rank order."""

_N_KNOWN: Final = 1 << 10
"""Number of results of operations on sets that are kept. An operation takes time proportional to
the number of ranks, and most atoms of a move need the same result."""

FAILURES: Final[dict[int, tuple[str, type[PostconditionError]]]] = {
    UNDEFINED: ("undefined memory", UndefinedReadError),
    MIXED: ("a combination of different elements", PostconditionError),
    DUPLICATE: ("a contribution twice", DuplicateContributionError),
    ORDER: ("operands out of rank order", OperandOrderError),
}
"""Words for each failure, and its error."""


def atom_edges(moves: Moves, starts: Sequence[Ints], counts: tuple[Ints, ...], cuts: Ints) -> Ints:
    """Return the addresses that divide all buffers into atoms, so that moves move whole atoms.

    All elements of an atom have the same symbol. Therefore a cut inside the source of a move also
    cuts its destination. Cuts are carried in execution order, as a cut by a later move does not
    affect earlier moves. `cuts` contains additional addresses at which buffers are cut.
    """
    reduces = moves.right >= 0
    sources = (moves.left, moves.right[reduces])
    lengths = (moves.length, moves.length[reduces])
    ends = [side + n for side, n in zip((*sources, *starts), (*lengths, *counts), strict=True)]
    edges = csr.sorted_unique(
        np.concatenate((cuts, *sources, moves.dest, moves.dest + moves.length, *starts, *ends))
    )
    places = _Atoms(*(np.searchsorted(edges, side) for side in moves[1:4]))
    return np.asarray(_carry_cuts(edges, moves, places))


class _Atoms(NamedTuple):
    """Atoms in which the left operand, the right operand and the destination of moves begin."""

    left: Ints
    right: Ints
    dest: Ints


@compiled
def _carry_cuts(edges: Ints, moves: Moves, places: _Atoms) -> Any:
    """Carry every cut inside a source to the destination, move by move, and return all cuts.

    Cuts are a linked list in the order of addresses. The ends of all moves are cuts from the
    start, so the walk along a move begins and ends at a cut.
    """
    _, left, right, dest, length = moves
    n = len(edges)
    address, following = edges.copy(), np.arange(1, n + 1)
    for move in range(len(dest)):
        for operand in range(2):
            source = left[move] if operand == 0 else right[move]
            if source < 0:
                continue
            shift = dest[move] - source
            at = places.dest[move]
            cut = following[places.left[move] if operand == 0 else places.right[move]]
            while address[cut] < source + length[move]:
                wanted = address[cut] + shift
                while address[following[at]] < wanted:
                    at = following[at]
                if address[following[at]] != wanted:
                    if n == len(address):
                        address = np.concatenate((address, np.empty_like(address)))
                        following = np.concatenate((following, np.empty_like(following)))
                    address[n], following[n] = wanted, following[at]
                    following[at] = n
                    n += 1
                at = following[at]
                cut = following[cut]
    cuts = np.empty(n, np.int64)
    at = 0
    for i in range(n):
        cuts[i] = address[at]
        at = following[at]
    return cuts


@dataclass(frozen=True, eq=False)
class Symbols:
    """Contents of all atoms. Atom i covers the addresses ``edges[i]:edges[i+1]``.

    `term` is the symbol of an atom, `index` the logical index of its first element, and
    `culprit` the task that caused a failure. `sets` contains the bit sets of general symbols.
    `tree` is the tree of its combinations if the operation rounds, and `pairs` contains the trees.
    """

    edges: Ints
    term: Ints
    index: Ints
    culprit: Ints
    tree: Ints
    sets: npt.NDArray[np.uint64]
    pairs: Ints
    n_ranks: int

    def first_wrong(self, start: Ints, wanted: Contents) -> tuple[int, int] | None:
        """Return the first row of the expected contents that does not hold, and the atom."""
        n = np.maximum(wanted.last - wanted.first, 1)
        symbol = wanted.first * self.n_ranks + n - 1
        row, atom = atoms_of(self.edges, start, wanted.count)
        index = wanted.logical[row] + self.edges[atom] - start[row]
        bad = (self.term[atom] != symbol[row]) | (self.index[atom] != index)
        i = csr.first_true(bad)
        return (int(row[i]), int(atom[i])) if i >= 0 else None

    def ranks(self, atom: int) -> set[int]:
        """Return the ranks whose contributions an atom without a failure contains."""
        term = int(self.term[atom])
        if term < self.n_ranks**2:
            low, n = divmod(term, self.n_ranks)
            return {(low + i) % self.n_ranks for i in range(n + 1)}
        bits = self.sets[term - self.n_ranks**2]
        return {r for r in range(self.n_ranks) if int(bits[r // 64]) >> (r % 64) & 1}

    def describe(self, atom: int) -> str:
        """Describe the contents of an atom's first element."""
        term = int(self.term[atom])
        if term < 0:
            return FAILURES[term][0]
        ranks = sorted(self.ranks(atom))
        if len(ranks) == 1:
            return f"element {self.index[atom]} of rank {ranks[0]}"
        names = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
        return f"elements {self.index[atom]} of ranks {names}, combined"


def run_symbols(edges: Ints, moves: Moves, start: Ints, before: Contents, rules: Rules) -> Symbols:
    """Execute moves on symbols.

    Parameters
    ----------
    edges : ndarray
        Cuts of the address space, as `atom_edges` returns them.
    moves : Moves
        In execution order.
    start, before
        Addresses of the contributions, and their contents.
    rules : Rules
    """
    n_atoms = len(edges)
    term = np.full(n_atoms, UNDEFINED, dtype=np.int64)
    index = np.zeros(n_atoms, dtype=np.int64)
    culprit = np.full(n_atoms, -1, dtype=np.int64)
    tree = np.zeros(n_atoms, dtype=np.int64)
    row, atom = atoms_of(edges, start, before.count)
    term[atom] = before.first[row] * rules.n_ranks
    index[atom] = before.logical[row] + edges[atom] - start[row]
    tree[atom] = before.first[row] * (rules.n_ranks // rules.n_local)
    places = _Atoms(*(last_at_or_below(edges, side) for side in moves[1:4]))
    trees = OperandTrees.room_for(_n_reduced(edges, moves, places) if rules.rounds else 0)
    state = _State(term, index, culprit, tree)
    sets = _execute(edges, state, trees, moves, places, rules)
    return Symbols(edges, *state, sets, trees.pairs, rules.n_ranks)


def _n_reduced(edges: Ints, moves: Moves, places: _Atoms) -> int:
    """Return the number of atoms that reductions write."""
    is_reduced = moves.right >= 0
    ends = np.searchsorted(edges, (moves.dest + moves.length)[is_reduced])
    return int((ends - places.dest[is_reduced]).sum())


class _State(NamedTuple):
    """Columns of `Symbols` that moves change; `first` is `Symbols.index`."""

    term: Ints
    first: Ints
    culprit: Ints
    tree: Ints


def atoms_of(edges: Ints, start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return the row and the number of every atom in intervals of addresses."""
    first = np.searchsorted(edges, start)
    n = np.searchsorted(edges, start + count) - first
    return np.repeat(np.arange(len(n)), n), csr.ranges(first, n)


@compiled
def _execute(
    edges: Ints, state: _State, trees: OperandTrees, moves: Moves, places: _Atoms, rules: Rules
) -> Any:
    """Carry symbols along all moves, and return the bit sets of general symbols."""
    n_ranks, commutative, sender, motion, n_local = rules[:5]
    term, index, culprit, tree = state
    task, left, right, dest, length = moves
    words = (n_ranks + 63) // 64
    sets = np.zeros((16, words), np.uint64)
    table = np.full(64, -1, np.int64)
    # The bits of two operands, and recent results of operations on sets: one, other, result.
    scratch = np.zeros((2, words), np.uint64), np.full((_N_KNOWN, 3), -1, np.int64)
    n_sets = 0
    for move in range(len(task)):
        a, b = places.left[move], places.right[move]
        d, end = places.dest[move], dest[move] + length[move]
        while edges[d] < end:
            # There is room for two more sets.
            if n_sets + 2 >= len(sets):
                sets = np.concatenate((sets, np.zeros_like(sets)))
            if 2 * n_sets + 2 >= len(table):
                table = _grow_table(table, sets, n_sets)
            shift = edges[d] - dest[move]
            while edges[a + 1] <= left[move] + shift:
                a += 1
            new = term[a]
            place = index[a] + left[move] + shift - edges[a]
            blame, shape = culprit[a], tree[a]
            if len(sender) > 0 and sender[task[move]] > 0 and new >= 0:
                apart = sender[task[move]]
                place = turned(place, rules, apart)
                by = apart * n_local
                new, n_sets = _renamed(new, by, n_ranks, motion, sets, table, n_sets, scratch)
                shape = moved(shape, apart, rules)
                if new < 0:
                    blame = task[move]
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
                    new, n_sets = _combine(
                        new, term[b], n_ranks, commutative, sets, table, n_sets, scratch
                    )
                    if new < 0:
                        blame = task[move]
                    elif rules.rounds:
                        shape = joined(shape, tree[b], rules, trees)
            term[d], index[d], culprit[d], tree[d] = new, place, blame, shape
            d += 1
    return sets[:n_sets].copy()


@inner
def _combine(
    a: int, b: int, p: int, commutative: bool, sets: Any, table: Ints, n_sets: int, scratch: Any
) -> Any:
    """Return the symbol of ``a op b``, and the new number of general symbols."""
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
    bits, memory = scratch
    known = memory[(a + b) % len(memory)]
    if known[0] != a or known[1] != b:
        known[0], known[1] = a, b
        known[2], n_sets = _union(a, b, p, commutative, sets, table, n_sets, bits)
    return known[2], n_sets


@inner
def _union(
    a: int, b: int, p: int, commutative: bool, sets: Any, table: Ints, n_sets: int, bits: Any
) -> Any:
    """Return the symbol of two sets together, and the new number of general symbols."""
    one, other = bits[0], bits[1]
    _to_bits(a, p, sets, one)
    _to_bits(b, p, sets, other)
    for word in range(len(one)):
        if one[word] & other[word]:
            return DUPLICATE, n_sets
    if not commutative:
        return ORDER, n_sets
    for word in range(len(one)):
        one[word] |= other[word]
    return _symbol_of(one, p, sets, table, n_sets)


@inner
def _symbol_of(bits: Any, p: int, sets: Any, table: Ints, n_sets: int) -> Any:
    """Return the symbol of a set of ranks, and the new number of general symbols."""
    low, n = _as_interval(bits, p)
    if n > 0:
        return low * p + n - 1, n_sets
    slot = _find(table, sets, bits)
    if table[slot] < 0:
        table[slot] = n_sets
        sets[n_sets] = bits
        n_sets += 1
    return p * p + table[slot], n_sets


@inner
def _renamed(
    symbol: int, by: int, p: int, rule: int, sets: Any, table: Ints, n_sets: int, scratch: Any
) -> Any:
    """Return the symbol of ranks moved by `by`, and the new number of general symbols."""
    if symbol < p * p:
        low, n = symbol // p, symbol % p + 1
        if n == p:
            return symbol, n_sets
        low = low ^ by if rule == BY_XOR else (low + by) % p
        if n == 1 or rule == BY_SHIFT or (rule == IN_ORDER and low + n <= p):
            return low * p + n - 1, n_sets
    if rule == IN_ORDER:
        return ORDER, n_sets
    bits, memory = scratch
    # Negative numbers tell results of this function from unions.
    known = memory[(symbol + by) % len(memory)]
    if known[0] != symbol or known[1] != -1 - by:
        known[0], known[1] = symbol, -1 - by
        known[2], n_sets = _moved(symbol, by, p, rule, sets, table, n_sets, bits)
    return known[2], n_sets


@inner
def _moved(
    symbol: int, by: int, p: int, rule: int, sets: Any, table: Ints, n_sets: int, bits: Any
) -> Any:
    """Return the symbol of a set moved by `by`, and the new number of general symbols."""
    before, after = bits[0], bits[1]
    _to_bits(symbol, p, sets, before)
    after[:] = 0
    for rank in range(p):
        if before[rank // 64] >> np.uint64(rank % 64) & np.uint64(1):
            to = rank ^ by if rule == BY_XOR else (rank + by) % p
            after[to // 64] |= np.uint64(1) << np.uint64(to % 64)
    return _symbol_of(after, p, sets, table, n_sets)


@inner
def _to_bits(symbol: int, p: int, sets: Any, bits: Any) -> None:
    if symbol >= p * p:
        bits[:] = sets[symbol - p * p]
        return
    bits[:] = 0
    for i in range(symbol % p + 1):
        rank = (symbol // p + i) % p
        bits[rank // 64] |= np.uint64(1) << np.uint64(rank % 64)


@inner
def _as_interval(bits: Any, p: int) -> Any:
    """Return (lo, n) if the set is an interval modulo p, otherwise n = 0."""
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


@inner
def _find(table: Ints, sets: Any, bits: Any) -> Any:
    """Return the table slot that contains the set, or the empty slot for it."""
    # The FNV hash of 32 bits: its products fit in 64, as they must to be interpreted.
    low, prime = np.uint64(0xFFFFFFFF), np.uint64(16777619)
    value = np.uint64(2166136261)
    for word in bits:
        value = ((value ^ (word & low)) * prime) & low
        value = ((value ^ (word >> np.uint64(32))) * prime) & low
    slot = np.int64((value ^ (value >> np.uint64(15))) % np.uint64(len(table)))
    while table[slot] >= 0 and not np.array_equal(sets[table[slot]], bits):
        slot = (slot + 1) % len(table)
    return slot


@inner
def _grow_table(table: Ints, sets: Any, n_sets: int) -> Any:
    bigger = np.full(4 * len(table), -1, np.int64)
    for number in range(n_sets):
        bigger[_find(bigger, sets, sets[number])] = number
    return bigger
