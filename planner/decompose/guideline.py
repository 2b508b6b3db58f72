"""Guidelines: compositions that should not be faster than the collective of a library.

References
----------
Träff, Gropp, Thakur, "Self-consistent MPI performance guidelines", IEEE Trans.
Parallel Distrib. Syst. 21, 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from collplan.planner.blueprint.blueprint import GroupTask, Path, Sketch
from collplan.planner.blueprint.regions import Regions
from collplan.planner.errors import AlgorithmError
from collplan.specs.errors import show_value

Form = Callable[[Sketch, Path, GroupTask], None]


def _scatter_allgather(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Bcast: scatter the vector, then allgather it."""
    chunks, home = task.given.cut(task.size), task.output
    sketch.add((*path, 0), replace(task, kind="scatter", input=home, given=chunks))
    sketch.add((*path, 1), replace(task, kind="allgather", input=home, given=chunks, root=0))


def _reduce_scatter_gather(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Reduce: compute a part of the result on every rank, then gather the parts at the root."""
    chunks = task.given.cut(task.size)
    sketch.add((*path, 0), replace(task, kind="reduce_scatter_block", given=chunks, root=0))
    sketch.add((*path, 1), replace(task, kind="gather", input=task.output, given=chunks))


def _reduce_scatter_allgather(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Allreduce: compute a part of the result on every rank, then allgather the parts."""
    chunks = task.given.cut(task.size)
    sketch.add((*path, 0), replace(task, kind="reduce_scatter_block", given=chunks))
    sketch.add((*path, 1), replace(task, kind="allgather", input=task.output, given=chunks))


def _reduce_bcast(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Allreduce: reduce to the first rank, which broadcasts the result."""
    sketch.add((*path, 0), replace(task, kind="reduce"))
    sketch.add((*path, 1), replace(task, kind="bcast", input=task.output))


def _allgather(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Gather: allgather, into scratch on all ranks except the root."""
    at_root = np.arange(sketch.n_ranks) == task.ranks[task.root]
    stage = sketch.scratch((*path, -1), task.ranks)
    # In place, the root's own block is already at its place in the output.
    result = task.output.where(at_root, stage)
    sketch.add((*path, 0), replace(task, kind="allgather", root=0, output=result))


def _bcast(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Scatter: broadcast all blocks; each rank copies its own block."""
    whole = task.given.union([np.arange(task.size)])
    told = replace(task, kind="bcast", output=task.input, given=whole, received=None)
    sketch.add((*path, 0), told)
    sketch.copy(
        (*path, 1), task.role, task.ranks, task.input, task.output, task.given, task.received
    )


def _gather_bcast(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Allgather: gather at the first rank, which broadcasts the blocks."""
    whole = task.given.union([np.arange(task.size)])
    sketch.add((*path, 0), replace(task, kind="gather"))
    sketch.add((*path, 1), replace(task, kind="bcast", input=task.output, given=whole))


def _reduce_scatter(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Reduce-scatter: reduce all blocks to the first rank, which scatters the result."""
    whole = task.given.union([np.arange(task.size)])
    stage = sketch.scratch((*path, -1), task.ranks)
    sketch.add((*path, 0), replace(task, kind="reduce", output=stage, given=whole))
    sketch.add((*path, 1), replace(task, kind="scatter", input=stage))


def _exscan_reduce(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Scan: exscan, then combine its result with the rank's own operand."""
    before = sketch.scratch((*path, -1), task.ranks)
    sketch.add((*path, 0), replace(task, kind="exscan", output=before))
    rows = np.zeros(task.size, dtype=np.int64)
    own = task.given.take(rows)
    sketch.copy((*path, 1), task.role, task.ranks, task.input, task.output, own)
    sketch.reduce(
        (*path, 2), task.role, task.ranks[1:], before, task.output, task.given.take(rows[1:])
    )


def _shift_scan(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Exscan: send each operand to the next rank, then scan."""
    handed = sketch.scratch((*path, -1), task.ranks)
    nothing = Regions.of(task.given.low[:1], np.zeros(1, dtype=np.int64))
    given = Regions.stack([nothing, task.given])
    pairs = np.column_stack((task.ranks[:-1], task.ranks[1:]))
    for pair in pairs[sketch.is_wanted(pairs)]:
        one = GroupTask("scatter", task.role, pair, 0, task.input, handed, given)
        sketch.add((*path, 0), one)
    later = task.ranks[1:]
    if len(later) == 1:
        sketch.copy((*path, 1), task.role, later, handed, task.output, task.given)
    else:
        sketch.add((*path, 1), replace(task, kind="scan", ranks=later, input=handed))


def _allgather_copy(sketch: Sketch, path: Path, task: GroupTask) -> None:
    """Alltoall: allgather all blocks; each rank copies the blocks for itself."""
    assert task.received is not None
    n = task.size
    everything = sketch.scratch((*path, -1), task.ranks)
    counts = task.given.totals
    numbered = Regions.of(np.cumsum(counts) - counts, counts)
    rows = np.arange(n * n).reshape(n, n)
    sketch.add(
        (*path, 0),
        replace(task, kind="allgather", output=everything, given=task.given.union(list(rows)),
                received=numbered.union(list(rows))),
    )  # fmt: skip
    sketch.copy((*path, 1), task.role, task.ranks, everything, task.output,
                numbered.union(list(rows.T)), task.received.union(list(rows.T)))  # fmt: skip


FORMS: dict[str, dict[str, Form]] = {
    "bcast": {"scatter+allgather": _scatter_allgather},
    "gather": {"allgather": _allgather},
    "scatter": {"bcast": _bcast},
    "allgather": {"gather+bcast": _gather_bcast},
    "reduce": {"reduce_scatter+gather": _reduce_scatter_gather},
    "allreduce": {
        "reduce_scatter+allgather": _reduce_scatter_allgather,
        "reduce+bcast": _reduce_bcast,
    },
    "reduce_scatter_block": {"reduce+scatter": _reduce_scatter},
    "scan": {"exscan+reduce": _exscan_reduce},
    "exscan": {"shift+scan": _shift_scan},
    "alltoall": {"allgather": _allgather_copy},
    "barrier": {},
    "neighbor_alltoall": {},
}
"""Compositions of every collective by kind and name; the first one of a kind is the default."""


def find_form(kind: str, name: str | None) -> Form:
    """Return a composition of `kind`.

    Raises
    ------
    AlgorithmError
        If there is no composition of this name.
    """
    forms = FORMS[kind]
    if not forms:
        raise AlgorithmError(
            f"decomposition: a {kind} consists of no other collectives; use flat, full_lane, "
            "hierarchical, multi_leader or mesh"
        )
    chosen = name if name is not None else next(iter(forms))
    if chosen not in forms:
        raise AlgorithmError(
            f"decomposition.form: {kind} has no guideline {show_value(name)}; "
            f"use {' or '.join(forms)}"
        )
    return forms[chosen]
