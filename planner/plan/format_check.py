"""Check of the format of a plan: entries are in range, and extents in their buffers."""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.intervals import hull
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.plan import Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import INTENT, ON_START, Extents
from collplan.specs.collectives.predefined import numpy_dtype

_MAX_REACH: Final = 2**48
"""Limit of numbers of which three can be added without overflow."""


def check_ranges(plan: Plan) -> None:
    """Raise `PlanFormatError` where an entry names a rank, node, task or row that does not exist.

    Compiled kernels do not check this, and would access memory outside of arrays.
    """
    p = plan.n_ranks
    require_range("op", plan.op, 0, len(Op))
    require_range("stage", plan.stage, 0, len(Stage))
    require_range("rank", plan.rank, 0, p)
    require_range("peer", plan.peer, -1, p)
    require_range("rank_node", plan.rank_node, 0, plan.n_nodes)
    require_range("phase", plan.phase, 0, len(plan.phases))
    for name in ("tag", "stream", "lane", "rank_lane"):
        require_range(name, getattr(plan, name), -1, None)
    for name in ("round", "duration_ns", "core", "rank_core", "buffer_sizes", "shared_sizes"):
        require_range(name, getattr(plan, name), 0, None)
    if plan.buffer_sizes.shape != (p, 3):
        shape = plan.buffer_sizes.shape
        raise PlanFormatError(f"buffer_sizes has shape {shape}, must be ({p}, 3)")
    is_message = plan.op <= Op.RECV
    require_range("apart", plan.apart, 0, plan.n_copies)
    _where("task that is no message, but apart", ~is_message & (plan.apart != 0))
    _where("message without a peer or tag", is_message & ((plan.peer < 0) | (plan.tag < 0)))
    _check_indptr("deps", plan.deps.indptr)
    require_range("deps.task", plan.deps.task, 0, plan.n_tasks)
    require_range("deps.kind", plan.deps.kind, 0, (ON_START | INTENT) + 1)
    if plan.patterns.ndim != 2 or plan.patterns.shape[1] != 4:
        raise PlanFormatError(f"patterns has shape {plan.patterns.shape}, must be (n, 4)")
    for name, extents in (("reads", plan.reads), ("writes", plan.writes)):
        _check_indptr(name, extents.indptr)
        require_range(f"{name}.buffer", extents.buffer, 0, len(Buffer))
        require_range(f"{name}.pattern", extents.pattern, 0, len(plan.patterns))
        require_range(f"{name}.count", extents.count, 0, _MAX_REACH)
        require_range(f"{name}.offset", extents.offset, 0, _MAX_REACH)


def check_format(plan: Plan) -> None:
    """Raise `PlanFormatError` naming the first malformed entry of `plan`."""
    check_ranges(plan)
    _check_dependencies(plan)
    n_blocks = _check_patterns(plan.patterns)
    sizes = np.column_stack((plan.buffer_sizes, plan.shared_sizes[plan.rank_node]))
    for name, extents in (("reads", plan.reads), ("writes", plan.writes)):
        _check_extents(plan, name, extents, n_blocks, sizes)
    _check_operands(plan)
    _check_mirrors(plan)
    _check_foreign(plan)
    _check_itemsize(plan)
    if plan.n_tasks and plan.only_rank is not None:
        require_range("only_rank", np.array([plan.only_rank]), 0, plan.n_ranks)
        _where(f"task of another rank than {plan.only_rank}", plan.rank != plan.only_rank)


def _check_itemsize(plan: Plan) -> None:
    """Raise `PlanFormatError` unless elements have the size of the collective's datatype."""
    if plan.origin is None:
        return
    datatype = plan.origin.datatype
    size = numpy_dtype(datatype).itemsize
    if plan.itemsize != size:
        contradict("itemsize", plan.itemsize, "collective.datatype", size)


def contradict(name: str, stored: object, field: str, meant: object) -> NoReturn:
    """Raise `PlanFormatError` for a column that contradicts a field of the spec."""
    raise PlanFormatError(
        f"{name} is {stored}, but {meant} by {field} of the spec stored with the plan; "
        f"compile the spec again"
    )


def _check_patterns(patterns: Ints) -> npt.NDArray[np.float64]:
    """Check that no pattern is too long, and return the number of blocks of each."""
    require_range("patterns", patterns[:, 1::2], 1, None)
    strides, repeats = patterns[:, ::2], patterns[:, 1::2].astype(float)
    n_blocks = repeats.prod(axis=1)
    reach = np.abs(strides * (repeats - 1)).max(axis=1) + n_blocks
    if (reach >= _MAX_REACH).any():
        i = int(np.argmax(reach))
        raise PlanFormatError(
            f"patterns[{i}] reaches {reach[i]:.3g} elements, at most 2**48 can be"
        )
    return np.asarray(n_blocks)


def _check_dependencies(plan: Plan) -> None:
    after, before = plan.deps.owner(), plan.deps.task
    apart = plan.node[before] != plan.node[after]
    if (i := csr.first_true(apart)) >= 0:
        raise PlanFormatError(
            f"task #{after[i]} of rank {plan.rank[after[i]]} depends on #{before[i]} of rank "
            f"{plan.rank[before[i]]}, which is on another node: only messages cross nodes"
        )


def _check_mirrors(plan: Plan) -> None:
    if plan.mirrors.shape != (plan.n_ranks, 2):
        raise PlanFormatError(
            f"mirrors has shape {plan.mirrors.shape}, must be ({plan.n_ranks}, 2)"
        )
    require_range("mirrors", plan.mirrors, -1, _MAX_REACH)
    shared = plan.shared_sizes[plan.rank_node]
    # The program of one rank does not use the shared buffers of other nodes.
    ends = np.where(plan.mirrors >= 0, plan.mirrors + plan.buffer_sizes[:, :2], 0)
    outside = np.asarray((ends > shared[:, None]).any(axis=1))
    if (rank := csr.first_true(outside)) >= 0:
        raise PlanFormatError(
            f"mirrors[{rank}] ends at {ends[rank].max()}, the shared buffer of node "
            f"{plan.rank_node[rank]} has {shared[rank]} elements"
        )


def _check_foreign(plan: Plan) -> None:
    """Check that ranks wait only for tasks of ranks on their own node."""
    foreign = plan.foreign
    _check_indptr("foreign", foreign.indptr)
    if not len(foreign) and not len(foreign.awaited):
        return
    if plan.only_rank is None:
        raise PlanFormatError(
            "foreign waits are for one rank's program; a plan of all ranks has them in deps"
        )
    for name in ("rank", "task", "flag"):
        values = getattr(foreign, name)
        if len(values) != len(foreign):
            raise PlanFormatError(f"foreign.{name} has {len(values)} rows, not {len(foreign)}")
        require_range(f"foreign.{name}", values, 0, plan.n_ranks if name == "rank" else None)
    node = plan.rank_node[foreign.rank]
    strange = (node != plan.rank_node[plan.only_rank]) | (foreign.rank == plan.only_rank)
    if (i := csr.first_true(strange)) >= 0:
        raise PlanFormatError(
            f"foreign.rank[{i}] is {foreign.rank[i]}, must be another rank of node "
            f"{plan.rank_node[plan.only_rank]}, where rank {plan.only_rank} is"
        )
    require_range("foreign.awaited", foreign.awaited, 0, plan.n_tasks)
    require_range("foreign.awaited (rises)", np.diff(foreign.awaited), 1, None)


def _check_indptr(name: str, indptr: Ints) -> None:
    # The range is checked first, as differences of large numbers overflow.
    require_range(f"{name}.indptr", indptr, 0, int(indptr[-1]) + 1)
    require_range(f"{name}.indptr (rises)", csr.lengths_of(indptr), 0, None)


def _check_extents(
    plan: Plan, name: str, extents: Extents, n_blocks: npt.NDArray[np.float64], sizes: Ints
) -> None:
    """Check that extents lie in their buffers. Row i of `sizes` has the sizes of rank i."""
    totals = extents.count * n_blocks[extents.pattern]
    if (totals >= _MAX_REACH).any():
        i = int(np.argmax(totals))
        raise PlanFormatError(f"{name}[{i}] has {totals[i]:.3g} elements, at most 2**48 can be")
    owner = extents.owner()
    size = sizes[plan.rank[owner], extents.buffer]
    low, high = extent_bounds(plan.patterns, extents)
    outside = (low < 0) | (high > size)
    if (i := csr.first_true(outside)) >= 0:
        buffer = Buffer(int(extents.buffer[i])).name.lower()
        raise PlanFormatError(
            f"task #{owner[i]} {name} {buffer}[{low[i]}:{high[i]}] of rank "
            f"{plan.rank[owner[i]]}, whose {buffer} buffer has {size[i]} elements"
        )


def extent_bounds(patterns: Ints, extents: Extents) -> tuple[Ints, Ints]:
    """Return the first element of each extent, and the one past its last."""
    stride, repeat, stride2, repeat2 = patterns.T
    low, high = hull(np.zeros_like(stride), np.zeros_like(stride), stride, repeat)
    low2, high2 = hull(low, high - low, stride2, repeat2)
    offset, number = extents.offset, extents.pattern
    return offset + low2[number], offset + high2[number] + extents.count


def _check_operands(plan: Plan) -> None:
    """Check that each task has the operands of its operation, of the size that it writes."""
    (reads, writes), op = plan.sizes, plan.op
    _where("send that writes", (op == Op.SEND) & (csr.lengths_of(plan.writes.indptr) > 0))
    _where("receive that reads", (op == Op.RECV) & (csr.lengths_of(plan.reads.indptr) > 0))
    _where("copy of unequal size", (op == Op.COPY) & (reads != writes))
    _where("reduction of unequal operands", (op == Op.REDUCE) & (reads != 2 * writes))
    _check_calls(plan)


def _check_calls(plan: Plan) -> None:
    """Check that each call reads and writes at most one contiguous piece, which do not overlap."""
    is_call = plan.op == Op.CALL
    if not is_call.any():
        return
    _where("call without a group", is_call & (plan.tag < 0))
    sides = plan.reads, plan.writes
    for side in sides:
        _where("call of several pieces", is_call & (csr.lengths_of(side.indptr) > 1))
        repeats = np.zeros(plan.n_tasks, dtype=bool)
        repeats[side.owner()[side.pattern > 0]] = True
        _where("call of pieces with gaps", is_call & repeats)
    both = is_call & np.all([csr.lengths_of(side.indptr) == 1 for side in sides], axis=0)
    rows = np.flatnonzero(both)
    read, written = (side.take(rows) for side in sides)
    meet = read.offset < written.offset + written.count
    meet &= written.offset < read.offset + read.count
    overlaps = np.zeros(plan.n_tasks, dtype=bool)
    overlaps[rows] = meet & (read.buffer == written.buffer)
    _where("call that writes what it reads", overlaps)


def require_range(name: str, values: Ints, low: int, high: int | None) -> None:
    """Raise `PlanFormatError` where a column has an entry below `low`, or not below `high`."""
    if values.strides[:1] == (0,):
        values = values[:1]
    if not values.size:
        return
    # This takes half the time of `min` and `max`. Most columns of small plans have one value.
    is_one = values.size == 1
    least = values.item() if is_one else np.minimum.reduce(values, axis=None)
    most = values.item() if is_one else np.maximum.reduce(values, axis=None)
    if least >= low and (high is None or most < high):
        return
    bad = values < low if high is None else (values < low) | (values >= high)
    i = int(np.argmax(bad))
    bound = f"at least {low}" if high is None else f"{low} to {high - 1}"
    raise PlanFormatError(f"{name}[{i}] is {values.flat[i]}, must be {bound}")


def _where(problem: str, bad: npt.NDArray[np.bool_]) -> None:
    if (row := csr.first_true(bad)) >= 0:
        raise PlanFormatError(f"task #{row}: {problem}")
