"""Translation of runs of chunks to addresses: rank, buffer and first element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collplan.planner.algorithms.chunks import Layout
from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import hull, last_at_or_below, union
from collplan.planner.blueprint.locations import SCRATCH_STRIDE, scratch_begin
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan import pieces
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer

MAX_SCRATCH = 1 << 12
"""Limit of the number of scratch spaces of a plan, before unused scratch is removed."""


def concatenated(parts: list[Any]) -> Any:
    """Return columns one after another."""
    return parts[0] if len(parts) == 1 else pieces.concatenate(parts)


@dataclass
class Located:
    """Runs of elements in memory, with one row per run.

    Parameters
    ----------
    owner : ndarray of int64
        Row of the message or local step that accesses the run, ascending.
    rank, buffer : ndarray
        Rank and buffer in which the run lies.
    offset, count, stride, repeat : ndarray
        Elements of the run, as in `Pieces`.
    """

    owner: Ints
    rank: Ints
    buffer: Ints
    offset: Ints
    count: Ints
    stride: Ints
    repeat: Ints

    @classmethod
    def stack(cls, parts: list[Located]) -> Located:
        """Return all runs, one part after another."""
        if not parts:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(nothing, nothing, nothing, nothing, nothing, *pieces.once(0))
        return cls(*(concatenated([getattr(p, f) for p in parts]) for f in vars(parts[0])))

    def part(self, low: int, high: int, first: int) -> Located:
        """Return the runs of steps ``low:high``, with the steps renumbered from `first`."""
        begin, end = np.searchsorted(self.owner, (low, high))
        owner, *rest = (column[begin:end] for column in vars(self).values())
        return Located(owner - low + first, *rest)

    def written_out(self, rows: Ints) -> Located:
        """Return the same runs, with a separate run for each repeat of `rows`."""
        n = np.ones(len(self.owner), dtype=np.int64)
        n[rows] = self.repeat[rows]
        index, turn = csr.expand(n)
        is_one = n[index] > 1
        columns = {name: column[index] for name, column in vars(self).items()}
        columns["offset"] = columns["offset"] + np.where(is_one, turn * columns["stride"], 0)
        columns["stride"] = np.where(is_one, 0, columns["stride"])
        columns["repeat"] = np.where(is_one, 1, columns["repeat"])
        return Located(**columns)

    def pieces(self, n_rows: int) -> Pieces:
        """Return a row of pieces for every owner."""
        indptr, buffer = csr.indptr_of(self.owner, n_rows), self.buffer.astype(np.int8)
        columns = (indptr, buffer, self.offset, self.count)
        if pieces.is_constant(self.repeat):
            return pieces.contiguous(*columns)
        return pieces.compress(Pieces(*columns, self.stride, self.repeat))


Homes = tuple[Ints, Ints, Ints]
"""Buffer and base of every space (row) on every member, and the members' ranks."""


def locate(layouts: list[Layout], homes: Homes, runs: Sequence[Ints], member_of: Ints) -> Located:
    """Return runs of chunks as runs of elements.

    Parameters
    ----------
    layouts : list of Layout
        Layout of every space.
    homes : Homes
        Location of every space on every member.
    runs : sequence of 6 ndarrays of int, shape (n_runs,)
        Columns of runs, as `Runs.arrays` returns them.
    member_of : ndarray of int64, shape (n_owners,)
        Member whose memory each owner accesses.
    """
    n_chunks = np.array([max(1, layout.n_chunks) for layout in layouts])
    units = np.array([-1 if layout.unit is None else layout.unit for layout in layouts])
    expanded = _expand_repeats(runs, units, n_chunks)
    owner, space, *unwrapped = _unwrap(*expanded, n_chunks)
    member = member_of[owner]
    used = np.flatnonzero(np.bincount(space))
    if not len(used):
        return Located.stack([])
    parts = []
    for number in used:
        mine = np.arange(len(space)) if len(used) == 1 else np.flatnonzero(space == number)
        parts.append(_in_space(layouts[number], mine, member[mine], *unwrapped))
    row, *columns = _joined(parts)
    buffers, bases, ranks = homes
    place = space[row], member[row]
    columns[0] = columns[0] + bases[place]
    located = Located(owner[row].astype(np.int64), ranks[place[1]], buffers[place], *columns)
    _require_within_spaces(located, bases, place)
    return located


def _require_within_spaces(located: Located, bases: Ints, place: tuple[Ints, Ints]) -> None:
    """Raise `AlgorithmError` if a run in scratch is not within its space.

    Parameters
    ----------
    located : Located
    bases : ndarray of int64, shape (n_spaces, n_members)
        Base of every space on every member.
    place : tuple of ndarray
        Space and member of each run.
    """
    rows = np.flatnonzero(located.buffer == Buffer.SCRATCH)
    if not len(rows):
        return
    low, high = _hulls(located, rows, located.offset[rows])
    begin = scratch_begin(bases)[place[0][rows], place[1][rows]]
    if ((low < begin) | (high > begin + SCRATCH_STRIDE)).any():
        raise AlgorithmError(
            f"collective.count: the plan needs a scratch vector of {int((high - begin).max()):,} "
            f"elements, and one has at most {SCRATCH_STRIDE:,}; give fewer elements, of a larger "
            "datatype"
        )


def _in_space(
    layout: Layout, mine: Ints, member: Ints, first: Ints, n: Ints, stride: Ints, repeat: Ints
) -> tuple[Ints, ...]:
    """Return the runs of elements of some runs of chunks in one space.

    The first column has the number of the run of chunks. Offset, count, stride and repeat follow.
    """
    found = layout.locate(member, first[mine].astype(np.int64), n[mine].astype(np.int64))
    row = mine if found.index is None else mine[found.index]
    if found.stride is None or found.repeat is None:
        stride, repeat = pieces.gather(stride, row), pieces.gather(repeat, row)
        return row, found.offset, found.count, stride, repeat
    return row, found.offset, found.count, found.stride, found.repeat


def _joined(parts: list[tuple[Ints, ...]]) -> list[Ints]:
    """Return the columns of all parts, sorted by the first column, without empty runs.

    The list of parts is emptied column by column to save memory, as there may be millions of rows.
    """
    waiting = [list(column) for column in zip(*parts, strict=True)]
    is_one = len(parts) == 1
    parts.clear()
    columns = [concatenated(waiting.pop(0)) for _ in range(len(waiting))]
    kept = np.arange(len(columns[0])) if is_one else np.argsort(columns[0], kind="stable")
    is_kept = columns[2][kept] > 0
    if is_one and is_kept.all():
        return columns
    kept = kept[is_kept]
    for number, column in enumerate(columns):
        columns[number] = pieces.gather(column, kept)
    return columns


def _expand_repeats(
    runs: Sequence[Ints], units: Ints, n_chunks_of: Ints
) -> tuple[Sequence[Ints], Ints, Ints]:
    """Expand the repeats of runs that cannot be one strided piece of elements.

    Returns the owners, spaces, first chunks and lengths of runs, and the stride (in elements) and
    repeat of their pieces.
    """
    owner, space, first, n, stride, repeat = runs
    repeat = np.where(n > 0, repeat, 0)
    if (repeat == 1).all():
        return runs[:4], *pieces.once(len(space))
    begin, n_chunks = first % n_chunks_of[space], n_chunks_of[space]
    last = begin + stride.astype(np.int64) * (repeat - 1)
    is_kept = (repeat > 1) & (units[space] >= 0) & (np.minimum(begin, last) >= 0)
    is_kept &= np.maximum(begin, last) + n <= n_chunks
    index, turn = csr.expand(np.where(is_kept, 1, repeat))
    owner, space, n = owner[index], space[index], n[index]
    stride, repeat, is_kept = stride[index], repeat[index], is_kept[index]
    expanded = owner, space, first[index] + turn * stride, n
    if not is_kept.any():
        return expanded, *pieces.once(len(index))
    step = np.where(is_kept, stride.astype(np.int64) * units[space], 0)
    return expanded, step, np.where(is_kept, repeat, 1).astype(np.int64)


def _unwrap(
    runs: Sequence[Ints], stride: Ints, repeat: Ints, n_chunks_of: Ints
) -> tuple[Ints, ...]:
    """Cut runs that wrap around the end of their space in two. Runs that wrap do not repeat."""
    owner, space, first, n = runs
    n_chunks = n_chunks_of[space]
    first = first % n_chunks
    wraps = first + n > n_chunks
    if not wraps.any():
        return owner, space, first, n, stride, repeat
    index, part = csr.expand(1 + wraps)
    is_tail = part > 0
    head = (n_chunks - first)[index]
    wrapped = wraps[index]
    n = np.where(is_tail, n[index] - head, np.where(wrapped, head, n[index]))
    first = np.where(is_tail, 0, first[index])
    pattern = pieces.gather(stride, index), pieces.gather(repeat, index)
    return owner[index], space[index], first, n, *pattern


_SPAN = MAX_SCRATCH * SCRATCH_STRIDE


def squeeze_scratch(parts: list[Located], n_ranks: int) -> Ints:
    """Remove unused elements from every rank's scratch.

    Adjacent elements that are used stay adjacent. The offsets in `parts` are changed in place.

    Returns
    -------
    ndarray of int64, shape (n_ranks,)
        Elements of scratch per rank.
    """
    scratch = [_scratch_of(part) for part in parts]
    if not any(len(place) for place, _ in scratch):
        return np.zeros(n_ranks, dtype=np.int64)
    start, end = _touched(parts, scratch)
    is_cut = False
    for number, part in enumerate(parts):
        if pieces.is_constant(part.repeat):
            continue
        # If elements between repeats are unused, each repeat moves separately.
        place, begin = scratch[number]
        low, high = _hulls(part, place, begin)
        at = last_at_or_below(start, low)
        is_inside = np.zeros(len(low), dtype=bool)
        is_inside[at >= 0] = end[at[at >= 0]] >= high[at >= 0]
        apart = place[(part.repeat[place] > 1) & ~is_inside]
        if len(apart):
            parts[number] = part.written_out(apart)
            scratch[number] = _scratch_of(parts[number])
            is_cut = True
    if is_cut:
        start, end = _touched(parts, scratch)
    rank = start // _SPAN
    sizes = np.bincount(rank, end - start, minlength=n_ranks).astype(np.int64)
    shift = csr.group_offsets(rank, end - start) - start
    for part, (place, begin) in zip(parts, scratch, strict=True):
        low, _ = _hulls(part, place, begin)
        part.offset[place] = begin + shift[last_at_or_below(start, low)]
    return sizes


def _scratch_of(part: Located) -> tuple[Ints, Ints]:
    """Return the runs in scratch, and their begins in the joint scratch of all ranks."""
    place = np.flatnonzero(part.buffer == Buffer.SCRATCH)
    return place, csr.joint_key(part.rank[place], part.offset[place], _SPAN)


def _hulls(part: Located, place: Ints, begin: Ints) -> tuple[Ints, Ints]:
    """Return the bounds of the runs at `place`, as `hull` does, if they begin at `begin`."""
    if pieces.is_constant(part.repeat):
        return begin, begin + part.count[place]
    return hull(begin, part.count[place], part.stride[place], part.repeat[place])


def _touched(parts: list[Located], scratch: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Return the begins and ends of the intervals of scratch that runs without gaps use."""
    ends = []
    for part, (place, begin) in zip(parts, scratch, strict=True):
        if not pieces.is_constant(part.repeat):
            once = part.repeat[place] == 1
            place, begin = place[once], begin[once]
        ends.append((begin, begin + part.count[place]))
    low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
    return union(low, high)
