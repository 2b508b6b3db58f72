"""Scan through leaders with alltoalls: each leader scans its share for all ranks of its node.

The decomposition by Träff and Hunold reduces, scans and gathers on every node. Here, an alltoall
brings each share of the vectors of all ranks to its leader, which combines them, and another
alltoall returns the results. The memory of a node moves 1.5 times the vector instead of 2.5 times.
"""

from __future__ import annotations

import numpy as np

from collplan.planner.arrays import csr
from collplan.planner.blueprint.locations import Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.decompose.leaders import Parts, settle


def scan(parts: Parts) -> None:
    """Alltoall on nodes, prefixes at leaders, exscan along columns, alltoall on nodes.

    Slot y + 1 of a leader's scratch receives the share of rank y of its row. A prefix scan at the
    leader turns slot y + 1 into the sum up to rank y. Then the leader combines the sum of the
    previous rows with each slot. The result of rank y is slot y + 1 for a scan. For an exscan it
    is slot y, and slot 0 holds the sum of the previous rows.
    """
    is_exclusive = parts.task.kind == "exscan"
    task, sketch, rows = parts.task, parts.sketch, parts.grid.rows
    slots, before = (sketch.scratch((*parts.path, -1, i), task.ranks) for i in range(2))
    room = int((task.given.low + task.given.count).max(initial=0))
    # Rows may be left out if they are like others. The first one is not, as no row precedes it.
    stated = [0, *parts.split_rows(range(1, parts.n_rows))[0]]
    stated = [row for row in stated if len(rows[row]) > 1]
    totals = _collect(parts, stated, slots, room)
    parts.in_columns(2, "exscan", totals, before, parts.share)
    for row in stated:
        if row > 0:
            _add_before(parts, row, slots, before, room, is_exclusive=is_exclusive)
    _hand_out(parts, stated, slots, room, is_exclusive=is_exclusive)
    alone = np.array([row[0] for row in rows if len(row) == 1], dtype=np.int64)
    if not is_exclusive:
        settle(parts, 5, alone, task.input)
    later = np.array([p for p in alone if p != rows[0][0]], dtype=np.int64)
    whole = parts.whole_of(later)
    state = sketch.copy if is_exclusive else sketch.reduce
    state((*parts.path, 6, 0), parts.roles[0], task.ranks[later], before, task.output, whole)


def _collect(parts: Parts, rows: list[int], slots: Home, room: int) -> Home:
    """Bring their shares to the leaders of some rows, and scan; return the location of totals."""
    task, sketch = parts.task, parts.sketch
    last = np.zeros(sketch.n_ranks, dtype=np.int64)
    stays = np.ones(sketch.n_ranks, dtype=np.bool_)
    for positions in parts.grid.rows:
        if len(positions) > 1:
            ranks = task.ranks[positions]
            last[ranks], stays[ranks] = len(positions) * room, False
    for row in rows:
        ranks = task.ranks[parts.grid.rows[row]]
        shares, n = parts.shares_of_row(row), len(ranks)
        sent = Regions.stack([shares] * n)
        kept = Regions.stack([shares.shifted((source + 1) * room) for source in range(n)])
        parts.inside(0, "alltoall", parts.grid.rows[row], 0, task.input, slots, sent, kept)
        for slot in range(2, n + 1):
            sketch.reduce(
                (*parts.path, 1, slot), parts.roles[0], ranks,
                slots.shifted(-room), slots, shares.shifted(slot * room),
            )  # fmt: skip
    return task.input.where(stays, slots.shifted(last))


def _add_before(
    parts: Parts, row: int, slots: Home, before: Home, room: int, *, is_exclusive: bool
) -> None:
    """Combine the sum of the previous rows, as the left operand, with every prefix of a row."""
    task, sketch, positions = parts.task, parts.sketch, parts.grid.rows[row]
    shares, ranks, n = parts.shares_of_row(row), task.ranks[positions], len(positions)
    if is_exclusive:
        sketch.copy((*parts.path, 3, 0), parts.roles[0], ranks, before, slots, shares)
    for slot in range(1, n if is_exclusive else n + 1):
        sketch.reduce(
            (*parts.path, 3, slot), parts.roles[0], ranks,
            before.shifted(-slot * room), slots, shares.shifted(slot * room),
        )  # fmt: skip


def _hand_out(parts: Parts, rows: list[int], slots: Home, room: int, *, is_exclusive: bool) -> None:
    """Return the results to the ranks of some rows."""
    task = parts.task
    for row in rows:
        n, shares = len(parts.grid.rows[row]), parts.shares_of_row(row)
        # Leaders have a result for every rank of their row; an exscan has none for the first rank.
        leader, dest = np.divmod(np.arange(n * n), n)
        kept = shares.take(leader)
        pair = csr.row_numbers(kept.indptr)
        if is_exclusive and row == 0:
            has_some = dest[pair] > 0
            indptr = csr.running_total(np.where(dest > 0, csr.lengths_of(kept.indptr), 0))
            kept = Regions(indptr, kept.low[has_some], kept.count[has_some])
            pair = pair[has_some]
        slot = dest if is_exclusive else dest + 1
        sent = Regions(kept.indptr, kept.low + slot[pair] * room, kept.count)
        parts.inside(4, "alltoall", parts.grid.rows[row], 0, slots, task.output, sent, kept)


FORMS = {"scan": scan, "exscan": scan}
"""Collectives that have this decomposition."""
