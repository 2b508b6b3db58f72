"""Folded plans unfolded task by task, so that changed ones can be judged with all ranks."""

from __future__ import annotations

from functools import lru_cache

from collplan.planner.compiler.compile import compile_plan
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.specs import PlanSpec
from drafts import Draft, Piece, Row

BLOCKS = {
    "allreduce": (Buffer.SEND, Buffer.RECV),
    "allgather": (Buffer.RECV,),
    "alltoall": (Buffer.SEND, Buffer.RECV),
    "reduce_scatter_block": (Buffer.SEND,),
    "barrier": (),
}
"""Buffers with a block for each rank: on other nodes tasks touch other blocks."""


def unfold(plan: Plan) -> Plan:
    """Return the plan of all ranks that a folded plan stands for.

    Its decomposition is flat, or full_lane with a vector, of which each rank of a node has a part
    with a chunk for every node.
    """
    assert plan.folding is not None
    assert plan.spec is not None
    motion, whole = plan.folding.motion, _whole(plan.spec)
    draft = Draft(plan)
    folded, rows = draft.rows, []
    for node in range(motion.n_blocks):
        copies = {id(row): _moved(draft, row, node, motion) for row in folded}
        for row in folded:
            copies[id(row)].waits = [(copies[id(before)], kind) for before, kind in row.waits]
        rows += copies.values()
    draft.rows = rows
    draft.plan = whole
    # Same rounds first, as compiled plans have their rows.
    draft.rows.sort(key=lambda row: row.columns["round"])
    return draft.to_plan()


@lru_cache(maxsize=8)
def _whole(spec: PlanSpec) -> Plan:
    """Return the plan of all ranks; most tests unfold many changed plans of one spec."""
    return compile_plan(spec, is_proved=False)


def _moved(draft: Draft, row: Row, node: int, motion) -> Row:
    columns = dict(row.columns)
    apart = columns.pop("apart")
    columns["apart"] = 0
    columns["rank"] = motion.move(row.rank, node)
    if columns["peer"] != NONE:
        block = motion.block_to(motion.block_to(apart, 0), node)
        if row.op == Op.RECV:
            block = motion.block_to(apart, node)
        columns["peer"] = motion.move(columns["peer"], block)
    pieces = ([part for piece in side for part in _moved_pieces(draft, row, piece, node, motion)]
              for side in (row.reads, row.writes))  # fmt: skip
    return Row(columns, *pieces)


def _moved_pieces(draft: Draft, row: Row, piece: Piece, node: int, motion) -> list[Piece]:
    buffer, offset, count, pattern = piece
    if buffer not in BLOCKS[draft.plan.spec.collective.kind] or not count:
        return [piece]
    spec = draft.plan.spec
    n_slices = next((p.options["slices"] for p in spec.passes if p.name == "slice_vector"), 1)
    n_blocks, n_ranks = motion.size, 1
    if spec.decomposition.name == "full_lane":
        n_slices, n_blocks, n_ranks = motion.step, motion.n_blocks, motion.step
    block_size = draft.size(row, buffer) // (n_slices * n_blocks)
    stride, repeat, outer_stride, outer_repeat = draft.patterns[pattern]
    parts = []
    for outer in range(outer_repeat):
        for inner in range(repeat):
            begin = offset + outer * outer_stride + inner * stride
            end = begin + count
            while begin < end:
                block, place = divmod(begin, block_size)
                n = min(end - begin, block_size - place)
                if 0 <= block < n_slices * n_blocks:
                    first, block = divmod(block, n_blocks)
                    block = first * n_blocks + motion.move(block * n_ranks, node) // n_ranks
                parts.append((buffer, block * block_size + place, n, 0))
                begin += n
    return parts
