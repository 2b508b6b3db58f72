"""Moves of elements between addresses, in one legal order of a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.errors import RaceError
from collplan.planner.machine_code.kernel import compiled
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.verify.order import Execution


class Moves(NamedTuple):
    """Element moves in execution order: ``dest = left`` or ``dest = left op right``.

    `right` is -1 for moves without an operation. `task` is the row of the task that performs the
    move; for a message, this is the receive.
    """

    task: Ints
    left: Ints
    right: Ints
    dest: Ints
    length: Ints


def element_moves(
    plan: Plan, space: AddressSpace, execution: Execution, accesses: tuple[Pieces, Pieces]
) -> Moves:
    """Return the moves of all tasks and messages, in the order of completion.

    `accesses` contains what tasks read and what they write, as `pieces_of` returns it.
    """
    reads, writes = accesses
    source = np.where(execution.sender >= 0, execution.sender, np.arange(plan.n_tasks))
    acting = np.flatnonzero((plan.op != Op.SEND) & (plan.op != Op.COMPUTE))
    acting = acting[np.argsort(execution.completion[acting], kind="stable")]
    task, left, right, dest, count = pair_blocks(
        *_addresses(plan, space, reads, source[acting]),
        *_addresses(plan, space, writes, acting),
        np.ascontiguousarray(plan.op[acting] == Op.REDUCE),
    )
    return Moves(acting[task], left, right, dest, count)


def _addresses(
    plan: Plan, space: AddressSpace, pieces: Pieces, rows: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the blocks of some rows in CSR form, with addresses and counts."""
    row, low, high = space.blocks(pieces.take(rows), plan.rank[rows])
    return csr.indptr_of(row, len(rows)), low, high - low


@compiled
def pair_blocks(
    read_indptr: Ints,
    read: Ints,
    read_count: Ints,
    write_indptr: Ints,
    write: Ints,
    write_count: Ints,
    reduces: Any,
) -> Any:
    """Cut blocks that are read and written at each other's ends; reductions read two operands."""
    # Each move ends where a block does.
    most = len(read) + len(write)
    task, left, right = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    dest, count = np.empty(most, np.int64), np.empty(most, np.int64)
    size = 0
    for i in range(len(write_indptr) - 1):
        total = 0
        for w in range(write_indptr[i], write_indptr[i + 1]):
            total += write_count[w]
        # The blocks of the right operand follow those of the left one.
        r, r_done = read_indptr[i], 0
        second, second_done, skipped = read_indptr[i], 0, 0
        if reduces[i]:
            while second < read_indptr[i + 1] and skipped + read_count[second] <= total:
                skipped += read_count[second]
                second += 1
            second_done = total - skipped
        for w in range(write_indptr[i], write_indptr[i + 1]):
            w_done = 0
            while w_done < write_count[w]:
                step = min(write_count[w] - w_done, read_count[r] - r_done)
                if reduces[i]:
                    step = min(step, read_count[second] - second_done)
                if step > 0:
                    task[size], left[size] = i, read[r] + r_done
                    dest[size], count[size] = write[w] + w_done, step
                    right[size] = read[second] + second_done if reduces[i] else -1
                    size += 1
                w_done += step
                r_done += step
                if r_done == read_count[r]:
                    r, r_done = r + 1, 0
                if reduces[i]:
                    second_done += step
                    if second_done == read_count[second]:
                        second, second_done = second + 1, 0
    return task[:size], left[:size], right[:size], dest[:size], count[:size]


def check_overlaps(plan: Plan, moves: Moves) -> None:
    """Raise `RaceError` for a task that overwrites its own input or writes an element twice.

    An operand may have exactly the place of the result.
    """
    bad = _first_overlap(moves)
    if bad >= 0:
        task = plan.task(int(moves.task[bad]))
        raise RaceError(f"{task} overlaps itself: it overwrites what it has yet to read or write")


@compiled
def _first_overlap(moves: Moves) -> Any:
    """Return the first move of a task that overlaps itself, or -1."""
    task, left, right, dest, length = moves
    n = len(task)
    first = 0
    while first < n:
        last = first
        low, high = dest[first], dest[first] + length[first]
        while last < n and task[last] == task[first]:
            low, high = min(low, dest[last]), max(high, dest[last] + length[last])
            last += 1
        if last == first + 1:  # most tasks: nothing to sort
            for place in (left[first], right[first]):
                touches = place >= 0 and place < high and place + length[first] > low
                if touches and place != dest[first]:
                    return first
            first = last
            continue
        order = first + np.argsort(dest[first:last])
        written = dest[order]
        for k in range(1, last - first):
            if dest[order[k]] < dest[order[k - 1]] + length[order[k - 1]]:
                return order[k]
        for i in range(first, last):
            for operand in range(2):
                place = left[i] if operand == 0 else right[i]
                if place < 0 or place >= high or place + length[i] <= low:
                    continue
                # Written blocks are disjoint, so those that reach the operand are neighbors.
                k = np.searchsorted(written, place + length[i]) - 1
                while k >= 0 and dest[order[k]] + length[order[k]] > place:
                    if order[k] != i or place != dest[i]:
                        return i
                    k -= 1
        first = last
    return -1
