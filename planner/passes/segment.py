"""Segmentation of messages and local steps, so that they can be pipelined."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.memory import require_memory
from collplan.planner.passes.registry import register_pass
from collplan.planner.plan import pieces
from collplan.planner.plan.hazards import stated_edges
from collplan.planner.plan.pieces import Pieces, slice_blocks
from collplan.planner.plan.plan import COLUMNS, Op, Plan
from collplan.planner.plan.tags import Edges, chain_streams, join_edges, number_messages
from collplan.planner.rewrite.rebuild import rebuild
from collplan.specs.syntax.numbers import PositiveBytes

BYTES_PER_SEGMENT: Final = 250
"""Peak memory of cutting, in bytes per task of the new plan."""


@register_pass(
    "segment",
    level="plan",
    locality="rank",
    takes_calls=True,
    cuts=True,
    needs="messages, copies or reductions longer than max_bytes",
)
def segment(
    plan: Plan, max_bytes: Annotated[PositiveBytes, "{} is not at least 1 byte"] = 64 * 1024
) -> Plan:
    """Cut every message, copy and reduction into segments of at most `max_bytes`.

    Calls of MPI's own collectives are not cut.

    Dependencies are derived anew between segments. Therefore a chain of p ranks and s segments
    takes p - 2 + s steps of 1/s of the vector.

    Parameters
    ----------
    plan : Plan
        Any plan.
    max_bytes : int or str
        Largest size of a segment, in bytes or as a text like ``"64KiB"``. A segment has at least
        one element.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if nothing is longer.

    Raises
    ------
    AlgorithmError
        If `max_bytes` is not a positive size, or the segments do not fit into memory.
    """
    limit = max(1, max_bytes // plan.itemsize)
    elements = plan.elements
    n_segments = np.where(plan.op == Op.CALL, 1, np.maximum(1, -(-elements // limit)))
    if n_segments.max(initial=1) == 1:
        return plan
    require_memory(int(n_segments.sum(dtype=float)) * BYTES_PER_SEGMENT)
    row, number = csr.expand(n_segments)
    columns = {name: getattr(plan, name)[row] for name in COLUMNS}
    # Other rows keep their pieces: what a rank does must not depend on rows of other ranks.
    cut = np.flatnonzero(n_segments[row] > 1)
    whole, written = pieces.pieces_of(plan)
    owner, low = row[cut], number[cut] * limit
    high = np.minimum(low + limit, elements[owner])
    segments = _cut(whole, owner, low, high)
    reduces = plan.op[owner] == Op.REDUCE
    if reduces.any():
        shift = np.where(reduces, elements[owner], 0)
        right = _cut(whole, owner, low + shift, high + shift)
        segments = pieces.join(segments, right.masked(reduces))
    taken = row.copy()
    taken[cut] = len(elements) + np.arange(len(cut))
    reads = pieces.stack((whole, segments)).take(taken)
    writes = pieces.stack((written, _cut(written, owner, low, high))).take(taken)
    _renumber(columns, plan.n_ranks)
    edges = join_edges(
        chain_streams(columns["op"], columns["rank"], columns["peer"], columns["stream"]),
        _spread_intents(plan, n_segments),
    )
    return rebuild(plan, reads, writes, edges, **columns)


def _cut(rows: Pieces, row: Ints, low: Ints, high: Ints) -> Pieces:
    """Return elements ``low:high`` of each of the given rows."""
    owner, buffer, offset, end = rows.blocks()
    indptr = csr.indptr_of(owner, len(rows))
    buffer, offset, count = (
        np.ascontiguousarray(column, dtype=np.int64) for column in (buffer, offset, end - offset)
    )
    indptr, buffer, offset, count = slice_blocks(indptr, buffer, offset, count, row, low, high)
    return pieces.contiguous(indptr, buffer.astype(np.int8), offset, count)


def _renumber(columns: dict[str, Ints], n_ranks: int) -> None:
    """Assign different tags to the segments of every pair of ranks, in row order at both ends."""
    for op in (Op.SEND, Op.RECV):
        rows = np.flatnonzero(columns["op"] == op)
        tag, stream = number_messages(columns["rank"][rows], columns["peer"][rows], n_ranks)
        columns["tag"][rows], columns["stream"][rows] = tag, stream


def _spread_intents(plan: Plan, n_segments: Ints) -> Edges:
    """Return stated edges from all segments of a row to all segments of the dependent row."""
    before, after, kind = stated_edges(plan)
    is_stream = (plan.stream[after] >= 0) & (plan.stream[before] == plan.stream[after])
    before, after, kind = before[~is_stream], after[~is_stream], kind[~is_stream]
    first, n_before = csr.running_total(n_segments), n_segments[before]
    index, turn = csr.expand(n_before * n_segments[after])
    return (
        first[before][index] + turn % n_before[index],
        first[after][index] + turn // n_before[index],
        kind[index],
    )
