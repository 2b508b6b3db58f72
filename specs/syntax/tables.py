"""Tables of counts and displacements: read, check, and apportion their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.specs.errors import SpecError, show_value
from collplan.specs.syntax.documents import foreign_reader
from collplan.specs.syntax.numbers import MAX_CELLS, MAX_RANKS, MAX_TOTAL

Ints = npt.NDArray[np.integer[Any]]

_AT_ONCE: Final = 1 << 15
"""Number of weights that are divided together."""
_LOW: Final = np.uint64(2**32 - 1)
_EDGE: Final = "[source, destination] or [source, destination, elements]"
SPARSE: Final = 0.1
"""Share of the blocks of a sparse distribution that are not empty."""


def read_numbers(path: Path, field: str, *, are_edges: bool = False) -> Ints:
    """Read a table, or a list of edges, from a file of numpy's format ``.npy``.

    Raises
    ------
    SpecError
        If the file cannot be read, is truncated, or does not contain whole numbers.
    """
    noun, read = ("list of edges", read_edges) if are_edges else ("table of counts", read_table)
    way_out = "save an array of integers with numpy.save"
    with foreign_reader(path, noun, way_out, before=f"{field}: "):
        # A memory map reads only the header, so that a wrong shape is refused before memory is
        # allocated.
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    try:
        return read(found)
    except ValueError as error:
        raise SpecError(f"{field}: {path} holds no {noun} ({error}); {way_out}") from None


def read_table(numbers: Any) -> Ints:
    if isinstance(numbers, str):
        raise ValueError(
            f"{show_value(numbers)} is no list of numbers; give one, or the name of a .npy file "
            "in a spec's file"
        )
    is_array = isinstance(numbers, np.ndarray)
    if not is_array and not isinstance(numbers, list | tuple):
        raise ValueError(f"{show_value(numbers)} is not a list of numbers; give one per rank")
    if not is_array:
        _check_entries(numbers)
    try:
        array = np.asarray(numbers)
    except (ValueError, OverflowError):
        raise ValueError("the rows differ in length; give one number for every rank") from None
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"the table has shape {array.shape}; give a list, or a list of rows")
    if array.size > MAX_CELLS:
        raise ValueError(f"the table has {array.size:,} numbers; at most {MAX_CELLS:,} are read")
    is_float = array.dtype.kind == "f"
    is_whole = is_float and np.isfinite(array).all() and (array == np.rint(array)).all()
    if array.dtype.kind not in "iu" and not is_whole:
        raise ValueError(f"the table holds {array.dtype}, not whole numbers; give those")
    # float16 has no such number, so it is given a type.
    wrong = np.argwhere((array < 0) | (array > np.int64(MAX_TOTAL)))
    if len(wrong):
        value, where = array[tuple(wrong[0])], _where(wrong[0].tolist())
        too_large = f"is too large; give {MAX_TOTAL} or less"
        what = "is negative; give 0 or more" if value < 0 else too_large
        shown = f"{value:.15g}" if is_float else value
        raise ValueError(f"{shown}{where} {what}")
    table = np.array(array, dtype=np.int64)
    if table.ndim == 2 and table.shape[0] != table.shape[1]:
        raise ValueError(
            f"the matrix has {table.shape[0]} rows of {table.shape[1]} numbers; it must be square, "
            "with a row per sender and a column per receiver"
        )
    return table


def read_edges(edges: Any) -> Ints:
    """Return edges as an array of integers, shape (n_edges, 2) or (n_edges, 3).

    Raises
    ------
    ValueError
        If they are no list of pairs of ranks, or of pairs with a number of elements.
    """
    if not isinstance(edges, np.ndarray):
        _check_edges(edges)
    if len(edges) == 0:
        return np.zeros((0, 2), dtype=np.int64)
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[1] not in (2, 3):
        raise ValueError(f"the edges have shape {array.shape}; give rows of {_EDGE}")
    if array.size > MAX_CELLS:
        raise ValueError(f"the edges have {array.size:,} numbers; at most {MAX_CELLS:,} are read")
    is_float = array.dtype.kind == "f"
    if array.dtype.kind not in "iu" and not (is_float and (array == np.rint(array)).all()):
        raise ValueError(f"the edges hold {array.dtype}, not whole numbers; give those")
    most = np.array([MAX_RANKS - 1, MAX_RANKS - 1, MAX_TOTAL])[: array.shape[1]]
    wrong = np.argwhere((array < 0) | (array > most))
    if len(wrong):
        edge, column = wrong[0].tolist()
        value, limit = array[edge, column], int(most[column])
        way_out = "is negative; give 0 or more" if value < 0 else f"is too large; at most {limit}"
        raise ValueError(f"{value} (edge {edge}) {way_out}")
    return np.array(array, dtype=np.int64)


def _check_edges(edges: Any) -> None:
    """Raise `ValueError` if edges are no list of rows of two or three whole numbers."""
    if isinstance(edges, str) or not isinstance(edges, list | tuple):
        raise ValueError(
            f"{show_value(edges)} is no graph; give a list of edges, each {_EDGE}, or a grid as "
            "{grid: [4, 2]}"
        )
    for number, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or len(edge) not in (2, 3):
            raise ValueError(f"{show_value(edge)} (edge {number}) is no edge; give {_EDGE}")
        if len(edge) != len(edges[0]):
            raise ValueError(
                f"edge {number} has {len(edge)} numbers, and the first edge has {len(edges[0])}; "
                "give a number of elements for every edge, or for none"
            )
        for value in edge:
            is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not is_whole and not (isinstance(value, float) and value.is_integer()):
                raise ValueError(
                    f"{show_value(value)} (edge {number}) is not a whole number; give one"
                )
            if value > MAX_TOTAL:
                raise ValueError(f"{value} (edge {number}) is too large; at most {MAX_TOTAL}")


def occurrences(ranks: Ints, n_ranks: int) -> tuple[Ints, Ints]:
    """Return how many equal ranks precede each rank, and how often each of all ranks occurs."""
    order = np.argsort(ranks, kind="stable")
    n_each = np.bincount(ranks, minlength=n_ranks)
    number = np.empty(len(ranks), dtype=np.int64)
    number[order] = np.arange(len(ranks)) - np.repeat(np.cumsum(n_each) - n_each, n_each)
    return number, n_each


def _check_entries(numbers: Any) -> None:
    """Raise `ValueError` if an entry is neither a whole number nor a row of whole numbers."""
    for i, entry in enumerate(numbers):
        row = entry if isinstance(entry, list | tuple) else [entry]
        for j, number in enumerate(row):
            is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not is_whole and not (isinstance(number, float) and number.is_integer()):
                where = _where([i] if row is not entry else [i, j])
                raise ValueError(f"{show_value(number)}{where} is not a whole number; give one")


def _where(index: list[int]) -> str:
    return f" (rank {index[0]})" if len(index) == 1 else f" (rank {index[0]} to rank {index[1]})"


def draw_weights(distribution: str, shape: tuple[int, ...], seed: int) -> Ints:
    """Return random weights of the blocks of all ranks, or of all pairs; see `Distribution`."""
    generator, n = np.random.default_rng(seed), int(np.prod(shape))
    weights = np.zeros(shape, dtype=np.int64)
    if distribution == "uniform":
        weights = generator.integers(0, 2**32, shape, dtype=np.int64)
    elif distribution == "linear":
        weights = generator.permutation(np.arange(1, n + 1)).reshape(shape)
    elif distribution == "zipf":
        weights = generator.permutation((1 << 40) // np.arange(1, n + 1)).reshape(shape)
    elif distribution == "spike":
        weights[generator.integers(shape[0])] = 1
    else:
        n_filled = max(1, int(SPARSE * n))
        weights.flat[generator.choice(n, n_filled, replace=False)] = 1
    return weights


def apportion(total: int, weights: Ints) -> Ints:
    """Split a total in proportion to weights, rounded by the method of largest remainders.

    If all weights are 0, they count as equal. The total and the sum of weights are below 2**62.
    """
    parts = weights.ravel() if weights.any() else np.ones(weights.size, dtype=np.int64)
    whole = int(parts.sum())
    shares, remainders = np.empty(parts.size, dtype=np.int64), np.empty(parts.size)
    for begin in range(0, parts.size, _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        shares[some], remainders[some] = _divided(parts[some], total, whole)
    left = total - int(shares.sum())
    if left:
        least = np.partition(remainders, -left)[-left]
        greater = remainders > least
        equal = np.flatnonzero(remainders == least)[: left - int(greater.sum())]
        shares[greater] += 1
        shares[equal] += 1
    return shares.reshape(weights.shape)


def _divided(parts: Ints, total: int, whole: int) -> tuple[Ints, Ints]:
    """Return quotients and remainders of ``parts * total / whole``, whose products need 128 bits.

    Quotients of floating-point numbers are corrected until the remainders are in range.
    """
    found = (parts * (total / whole)).astype(np.int64)
    while True:
        (high, low), (other_high, other_low) = _product(parts, total), _product(found, whole)
        rest = low - other_low
        above = (high - other_high - (low < other_low)).view(np.int64)
        if not above.any() and (rest < whole).all():
            return found, rest.astype(np.int64)
        missing = np.floor((above * 2.0**64 + rest) / whole).astype(np.int64)
        is_less = (missing == 0) & (above < 0)
        is_more = (missing == 0) & (above == 0) & (rest >= whole)
        found += missing - is_less + is_more


def _product(numbers: Ints, factor: int) -> tuple[Any, Any]:
    """Return the high and the low 64 bits of products of numbers that are not negative."""
    low, high = (numbers.astype(np.uint64) >> np.uint64(shift) for shift in (0, 32))
    low, (one, other) = low & _LOW, (np.uint64(factor & int(_LOW)), np.uint64(factor >> 32))
    middle = high * one + (low * one >> np.uint64(32))
    last = low * other + (middle & _LOW)
    whole_high = high * other + (middle >> np.uint64(32)) + (last >> np.uint64(32))
    return whole_high, numbers.astype(np.uint64) * np.uint64(factor)


def places_of(counts: Ints, displs: Ints | None = None) -> Ints:
    """Return the displacements of blocks (last axis): as given, or one after another.

    A block without elements has the displacement that it would have without gaps.
    """
    packed = np.asarray(np.cumsum(counts, axis=-1) - counts)
    return packed if displs is None else np.where(counts > 0, displs, packed)


def ends_of(displs: Ints, counts: Ints) -> Ints:
    """Return the number of elements that every buffer (row) needs to hold its blocks."""
    return np.asarray(np.where(counts > 0, displs + counts, 0).max(axis=-1, initial=0))


def first_overlap(displs: Ints, counts: Ints) -> tuple[int, int] | None:
    """Return two blocks of a buffer that overlap; None if no blocks do."""
    filled = np.flatnonzero(counts)
    order = filled[np.argsort(displs[filled], kind="stable")]
    low, end = displs[order], np.maximum.accumulate(displs[order] + counts[order])
    both = np.flatnonzero(low[1:] < end[:-1])
    if not len(both):
        return None
    one, other = order[both[0]], order[both[0] + 1]
    return int(min(one, other)), int(max(one, other))
