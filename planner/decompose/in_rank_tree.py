"""Reductions in the rank tree by alltoalls, which may go through leaders as they combine nothing.

An alltoall brings every part of all vectors to its owner, which combines it in the rank tree. An
allgather, a gather or a second alltoall brings the results to where they belong. Nodes, lanes and
orders of ranks are thus free, and no result depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from collplan.planner.algorithms.building_blocks.rank_tree import joints, prefix_joints
from collplan.planner.arrays import csr
from collplan.planner.blueprint.blueprint import GroupTask, Path, Sketch
from collplan.planner.blueprint.locations import SCRATCH_STRIDE, Home
from collplan.planner.blueprint.regions import Regions
from collplan.planner.errors import AlgorithmError

FORM: Final = "rank_tree"
"""Name of the form through leaders."""
Expand = Callable[[Path, GroupTask], Any]


def reduce_in_rank_tree(sketch: Sketch, path: Path, task: GroupTask, expand: Expand) -> None:
    """State a reduction as an alltoall, combinations at owners, and the way of the results.

    Slot s of an owner's scratch receives the part of position s, `room` elements after slot s - 1.

    Parameters
    ----------
    sketch : Sketch
    path : tuple of int
        Phase of the reduction.
    task : GroupTask
        Reduce, allreduce, reduce_scatter_block, scan or exscan.
    expand : callable
        Function that states an alltoall, an allgather or a gather in a phase, by leaders.

    Raises
    ------
    AlgorithmError
        If the vectors of all ranks together are too large.
    """
    n, has_blocks = task.size, task.traits.has_blocks
    parts = task.given if has_blocks else task.given.cut(n)
    room = int((parts.low + parts.count).max(initial=0))
    if n * room >= SCRATCH_STRIDE // 2:
        raise AlgorithmError(
            f"decomposition.form: {FORM} numbers the elements of all {n} ranks together, which are "
            "too many here; use the algorithm rank_tree"
        )
    slots = sketch.scratch((*path, -1), task.ranks)
    arriving = Regions.stack([parts.shifted(source * room) for source in range(n)])
    sent = Regions.stack([parts] * n)
    to_owners = replace(task, kind="alltoall", root=0, output=slots, given=sent, received=arriving)
    expand((*path, 0), to_owners)
    later = int(task.kind == "exscan")
    order = prefix_joints(n - later) if task.traits.is_prefix else joints(n)
    for number, (left, right, *_) in enumerate(order):
        nearer = slots.shifted((left - right) * room)
        own = parts.shifted(right * room)
        sketch.reduce((*path, 1, number), task.role, task.ranks, nearer, slots, own)
    if task.traits.is_prefix:
        expand((*path, 2), _returned(task, slots, parts, room, later))
        return
    here = slots.shifted((n - 1) * room)
    if has_blocks:
        sketch.copy((*path, 2, 0), task.role, task.ranks, here, task.output, parts)
        return
    kind = "gather" if task.traits.is_rooted else "allgather"
    expand((*path, 2), replace(task, kind=kind, input=here, given=parts, received=None))


def _returned(task: GroupTask, slots: Home, parts: Regions, room: int, later: int) -> GroupTask:
    """Return the alltoall that brings every prefix from its owners to its rank."""
    n = task.size
    owner, dest = np.divmod(np.arange(n * n), n)
    lengths = np.where(dest >= later, csr.lengths_of(parts.indptr)[owner], 0)
    taken = parts.take(owner[dest >= later])
    indptr = csr.running_total(lengths)
    slot = np.repeat(dest - later, lengths)
    given = Regions(indptr, taken.low + slot * room, taken.count)
    received = Regions(indptr, taken.low, taken.count)
    return replace(task, kind="alltoall", root=0, input=slots, given=given, received=received)
