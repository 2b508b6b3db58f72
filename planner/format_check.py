"""The O(n) half of `Plan.check_format`: every entry in range, every extent in its buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from planner.errors import PlanFormatError
from planner.plan import INTENT, ON_START, Buffer, Extents, Op, Stage

if TYPE_CHECKING:
    from planner.plan import IntArray, Plan

_MAX_REACH: Final = 2**48
"""Sums of three such numbers stay below 2**63: a wrapped one would pass for a small one."""


def check_entries(plan: Plan) -> None:
    """Raise `PlanFormatError` naming the first malformed entry of `plan`."""
    n, p = plan.n_tasks, plan.n_ranks
    _in_range("op", plan.op, 0, len(Op))
    _in_range("stage", plan.stage, 0, len(Stage))
    _in_range("rank", plan.rank, 0, p)
    _in_range("peer", plan.peer, -1, p)
    _in_range("node", plan.node, 0, plan.n_nodes)
    _in_range("rank_node", plan.rank_node, 0, plan.n_nodes)
    _in_range("phase", plan.phase, 0, len(plan.phases))
    for name in ("tag", "stream", "lane", "rank_lane"):
        _in_range(name, getattr(plan, name), -1, None)
    for name in ("round", "duration_ns", "core", "rank_core", "buffer_sizes", "shared_sizes"):
        _in_range(name, getattr(plan, name), 0, None)
    if plan.buffer_sizes.shape != (p, 3):
        shape = plan.buffer_sizes.shape
        raise PlanFormatError(f"buffer_sizes has shape {shape}, must be ({p}, 3)")
    is_message = plan.op <= Op.RECV
    _where("message without a peer or tag", is_message & ((plan.peer < 0) | (plan.tag < 0)))
    wrong_node = plan.node != plan.rank_node[plan.rank]
    _where("task on another node than its rank", wrong_node)
    _check_dependencies(plan)
    if plan.patterns.ndim != 2 or plan.patterns.shape[1] != 4:
        raise PlanFormatError(f"patterns has shape {plan.patterns.shape}, must be (n, 4)")
    _in_range("patterns", plan.patterns[:, 1::2], 1, None)
    strides, repeats = plan.patterns[:, ::2], plan.patterns[:, 1::2].astype(float)
    reach = np.abs(strides * (repeats - 1)).max(axis=1) + repeats.prod(axis=1)
    if (reach >= _MAX_REACH).any():
        i = int(np.argmax(reach))
        raise PlanFormatError(
            f"patterns[{i}] reaches {reach[i]:.3g} elements, at most 2**48 can be"
        )
    for name, extents in (("reads", plan.reads), ("writes", plan.writes)):
        _check_extents(plan, name, extents)
    _check_operands(plan)
    _check_mirrors(plan)
    _check_foreign(plan)
    if n and plan.only_rank is not None:
        _in_range("only_rank", np.array([plan.only_rank]), 0, p)
        _where(f"task of another rank than {plan.only_rank}", plan.rank != plan.only_rank)


def _check_dependencies(plan: Plan) -> None:
    _check_indptr("deps", plan.deps.indptr)
    _in_range("deps.task", plan.deps.task, 0, plan.n_tasks)
    _in_range("deps.kind", plan.deps.kind, 0, (ON_START | INTENT) + 1)
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before = plan.deps.task
    foreign = plan.rank[before] != plan.rank[after]
    shares = plan.rank_node[plan.rank[before]] == plan.rank_node[plan.rank[after]]
    if (foreign & ~shares).any():
        i = int(np.argmax(foreign & ~shares))
        raise PlanFormatError(
            f"task #{after[i]} of rank {plan.rank[after[i]]} depends on #{before[i]} of rank "
            f"{plan.rank[before[i]]}, which is on another node: only messages cross nodes"
        )


def _check_mirrors(plan: Plan) -> None:
    if plan.mirrors.shape != (plan.n_ranks, 2):
        raise PlanFormatError(
            f"mirrors has shape {plan.mirrors.shape}, must be ({plan.n_ranks}, 2)"
        )
    _in_range("mirrors", plan.mirrors, -1, _MAX_REACH)
    shared = plan.shared_sizes[plan.rank_node]
    # Of a rank's program, the shared buffers of other nodes are nobody's business.
    ends = np.where(plan.mirrors >= 0, plan.mirrors + plan.buffer_sizes[:, :2], 0)
    outside = (ends > shared[:, None]).any(axis=1)
    if outside.any():
        rank = int(np.argmax(outside))
        raise PlanFormatError(
            f"mirrors[{rank}] ends at {ends[rank].max()}, the shared buffer of node "
            f"{plan.rank_node[rank]} has {shared[rank]} elements"
        )


def _check_foreign(plan: Plan) -> None:
    """What a rank's program waits for is in programs of its node."""
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
        _in_range(f"foreign.{name}", values, 0, plan.n_ranks if name == "rank" else None)
    node = plan.rank_node[foreign.rank]
    strange = (node != plan.rank_node[plan.only_rank]) | (foreign.rank == plan.only_rank)
    if strange.any():
        i = int(np.argmax(strange))
        raise PlanFormatError(
            f"foreign.rank[{i}] is {foreign.rank[i]}, must be another rank of node "
            f"{plan.rank_node[plan.only_rank]}, where rank {plan.only_rank} is"
        )
    _in_range("foreign.awaited", foreign.awaited, 0, plan.n_tasks)
    _in_range("foreign.awaited (rises)", np.diff(foreign.awaited), 1, None)


def _check_indptr(name: str, indptr: IntArray) -> None:
    # The range first: differences of numbers far apart wrap.
    _in_range(f"{name}.indptr", indptr, 0, int(indptr[-1]) + 1)
    _in_range(f"{name}.indptr (rises)", np.diff(indptr), 0, None)


def _check_extents(plan: Plan, name: str, extents: Extents) -> None:
    _check_indptr(name, extents.indptr)
    _in_range(f"{name}.buffer", extents.buffer, 0, len(Buffer))
    _in_range(f"{name}.pattern", extents.pattern, 0, len(plan.patterns))
    _in_range(f"{name}.count", extents.count, 0, _MAX_REACH)
    _in_range(f"{name}.offset", extents.offset, 0, _MAX_REACH)
    totals = extents.count * plan.patterns[extents.pattern, 1::2].astype(float).prod(axis=1)
    if (totals >= _MAX_REACH).any():
        i = int(np.argmax(totals))
        raise PlanFormatError(f"{name}[{i}] has {totals[i]:.3g} elements, at most 2**48 can be")
    owner = extents.owner()
    sizes = np.column_stack((plan.buffer_sizes, plan.shared_sizes[plan.rank_node]))
    size = sizes[plan.rank[owner], extents.buffer]
    low, high = extent_bounds(plan.patterns, extents)
    outside = (low < 0) | (high > size)
    if outside.any():
        i = int(np.argmax(outside))
        buffer = Buffer(int(extents.buffer[i])).name.lower()
        raise PlanFormatError(
            f"task #{owner[i]} {name} {buffer}[{low[i]}:{high[i]}] of rank "
            f"{plan.rank[owner[i]]}, whose {buffer} buffer has {size[i]} elements"
        )


def extent_bounds(patterns: IntArray, extents: Extents) -> tuple[IntArray, IntArray]:
    """Return the first element and one past the last that each extent touches."""
    first = patterns[:, 0] * (patterns[:, 1] - 1), patterns[:, 2] * (patterns[:, 3] - 1)
    reach_low = np.minimum(first[0], 0) + np.minimum(first[1], 0)
    reach_high = np.maximum(first[0], 0) + np.maximum(first[1], 0)
    low = extents.offset + reach_low[extents.pattern]
    high = extents.offset + reach_high[extents.pattern] + extents.count
    return low, high


def _check_operands(plan: Plan) -> None:
    """Each task has the operands its op needs, of the size it writes."""
    reads, writes = (
        np.add.reduceat(np.append(extents.elements(plan.patterns), 0), extents.indptr[:-1])
        * (np.diff(extents.indptr) > 0)
        if plan.n_tasks
        else np.zeros(0, dtype=np.int64)
        for extents in (plan.reads, plan.writes)
    )
    op = plan.op
    _where("send that writes", (op == Op.SEND) & (np.diff(plan.writes.indptr) > 0))
    _where("receive that reads", (op == Op.RECV) & (np.diff(plan.reads.indptr) > 0))
    _where("copy of unequal size", (op == Op.COPY) & (reads != writes))
    _where("reduction of unequal operands", (op == Op.REDUCE) & (reads != 2 * writes))


def _in_range(name: str, values: IntArray, low: int, high: int | None) -> None:
    bad = values < low if high is None else (values < low) | (values >= high)
    if bad.any():
        i = int(np.argmax(bad))
        bound = f"at least {low}" if high is None else f"{low} to {high - 1}"
        raise PlanFormatError(f"{name}[{i}] is {values.flat[i]}, must be {bound}")


def _where(problem: str, bad: npt.NDArray[np.bool_]) -> None:
    if bad.any():
        raise PlanFormatError(f"task #{int(np.argmax(bad))}: {problem}")
