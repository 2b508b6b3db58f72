"""Make one message of several that travel together."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal, get_args

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import overlapping
from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.tables import MessageTable
from collplan.planner.passes.rebuild import become_copies, move_edges, places, rebuild
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import MessageGraph, require_all_ranks
from collplan.planner.plan import pieces
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import stated_edges
from collplan.planner.plan.merge_tasks import join_tasks
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, NONE, Buffer, Op, Plan
from collplan.planner.plan.remap_buffers import Relocation

Staging = Literal["remap", "pack", "layout"]
"""Ways to treat blocks that lie apart."""
STAGINGS: Final[tuple[str, ...]] = get_args(Staging)


def _coalesce_exchange(
    blueprint: Blueprint, staging: str = "remap", when: str = "round"
) -> Blueprint | None:
    """Return the blueprint of an exchange with the messages that the pass would make."""
    if blueprint.exchange is None or staging not in ("remap", "layout") or when != "round":
        return None
    return replace(blueprint, exchange=blueprint.exchange.coalesced(staging))


@register_pass(
    "coalesce_requests",
    level="plan",
    locality="node",
    early=_coalesce_exchange,
    when="ready",
    needs="ranks that send another rank several messages together, "
    "as in an alltoall with decomposition: hierarchical and transport: shared",
)
def coalesce_requests(
    plan: Plan,
    staging: Annotated[Staging, "{} is none; use remap, pack, layout"] = "remap",
    when: Annotated[Literal["round", "ready"], "{} is neither; use round or ready"] = "round",
) -> Plan:
    """Make one message of those with one source and destination that travel together.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of those of some nodes.
    staging : str
        What becomes of blocks that lie apart. ``layout``: the message has
        several extents, under MPI a derived datatype. ``pack``: a copy puts
        them together in scratch before the send, another takes them apart
        after the receive. ``remap``: where they lie in one scratch or shared
        buffer, and in no other message, the buffer is permuted so that each
        message is one interval, and the copies there are do the rearranging;
        elsewhere as ``layout``. Within a message blocks keep their order, so
        copies move runs as long as the blocks were.
    when : str
        Which messages of a pair of ranks travel together: those of one phase and
        ``round``, or all that are ``ready`` together, that is after as many
        messages, one after the other, from the start. The latter needs a plan of
        all ranks; rows are put in the order in which they become ready.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where every message travels alone.

    Raises
    ------
    AlgorithmError
        If `staging` or `when` is unknown; if the plan is a program that waits
        for others, or with ``ready`` any rank's alone; or if something between
        two such messages waits for the first, as where landing slots are used
        again within a round.

    References
    ----------
    Tran et al., "OHIO", 2024: request coalescing, and its figure 5 for ``remap``.
    """
    require_whole_nodes(plan, "coalesce_requests")
    if when == "ready":
        require_all_ranks(plan, "coalesce_requests")
    order, bounds = _groups(plan) if when == "round" else _ready_groups(plan)
    lengths = np.diff(bounds)
    if (lengths == 1).all():
        return plan
    merged = join_tasks(plan, order, bounds, "coalesce_requests")
    rows = np.flatnonzero(lengths > 1)
    if staging == "layout":
        return merged
    return remap_messages(merged, rows) if staging == "remap" else pack_messages(merged, rows)


def coalesce_table(messages: MessageTable) -> MessageTable:
    """Return messages of one source, destination, phase and round as one, as the pass does.

    What they read and write is neither packed nor put in order.
    """
    keys = (messages.source, messages.dest, messages.phase, messages.round)
    order = np.lexsort(keys)
    bounds = csr.run_bounds(*(key[order] for key in keys))
    merged = messages.take(order[bounds[:-1]])
    for name in ("read", "write", "combine"):
        setattr(merged, name, getattr(messages, name).take(order).merged(bounds))
    return merged.take(np.argsort(merged.round, kind="stable"))


def require_whole_nodes(plan: Plan, name: str) -> None:
    """Raise `AlgorithmError` where pass `name` is given a program that waits for others."""
    if len(plan.foreign) or len(plan.foreign.awaited):
        raise AlgorithmError(
            f"passes.{name}: rank {plan.only_rank}'s program shares memory with others of its "
            "node, which must be seen; compile it from its spec, or restrict the plan of all ranks"
        )


def _groups(plan: Plan) -> tuple[Ints, Ints]:
    """Return rows in an order that keeps messages that become one together, and the groups' bounds.

    Within a group tags ascend, as they do at both ends; groups are in the
    order of their last rows.
    """
    n_rounds, n_stages = int(plan.round.max(initial=0)) + 1, int(plan.stage.max(initial=0)) + 1
    when = csr.joint_key(csr.joint_key(plan.phase, plan.round, n_rounds), plan.stage, n_stages)
    return _grouped(plan, _stand_in(plan, when, which=-1))


def _ready_groups(plan: Plan) -> tuple[Ints, Ints]:
    """Return the same for messages that are ready together; rows by when they are ready.

    No message leads to another of the same level, so none waits for itself
    as part of a greater one.
    """
    graph = MessageGraph.of(plan)
    is_message = (plan.op <= Op.RECV).astype(np.int64)
    level = graph.levels(is_message)[graph.node]
    first = _stand_in(plan, level, plan.stage, which=0)
    return _grouped(plan, first, is_message, level)


def _stand_in(plan: Plan, *keys: Ints, which: int) -> Ints:
    """Return a row for each group of messages that have one pair of ranks and equal keys.

    It is the first of them (`which` 0) or the last (-1); other tasks stand for themselves.
    """
    rows = np.flatnonzero(plan.op <= Op.RECV)
    pair = csr.joint_key(plan.rank, plan.peer, plan.n_ranks)
    alike = [key[rows] for key in (*keys, pair, plan.op)]
    order = np.lexsort((rows, *alike))
    starts = csr.run_starts(*(key[order] for key in alike))
    # Rows ascend within a group.
    ends = np.flatnonzero(starts if which == 0 else np.roll(starts, -1))
    chosen = np.arange(plan.n_tasks)
    chosen[rows[order]] = rows[order[ends]][np.cumsum(starts) - 1]
    return chosen


def _grouped(plan: Plan, group: Ints, *keys: Ints) -> tuple[Ints, Ints]:
    """Return rows by keys, group and tag, and the bounds of groups."""
    order = np.lexsort((np.arange(plan.n_tasks), plan.tag, group, *keys))
    return order, csr.run_bounds(group[order])


def remap_messages(plan: Plan, rows: Ints) -> Plan:
    """Permute scratch and shared buffers so that messages lie in one interval each.

    Parameters
    ----------
    plan : Plan
    rows : ndarray of int64
        The messages. Those in a caller's buffer, in several buffers, or that
        have elements in common stay as they are.
    """
    space = AddressSpace.of_plan(plan)
    reads, writes = pieces.pieces_of(plan)
    moves = _packed(space, _message_pieces(plan, reads, writes, rows), plan.rank[rows])
    if moves is None:
        return plan
    reads, writes = (moves.apply(side, plan.rank) for side in (reads, writes))
    mirrors = np.where(_is_moved(plan, moves), NONE, plan.mirrors)
    return pieces.with_pieces(plan, reads, writes, mirrors=mirrors)


def _message_pieces(plan: Plan, reads: Pieces, writes: Pieces, rows: Ints) -> Pieces:
    """Return what messages read where they are sent, and write where they are received."""
    return _choose(plan.op[rows] == Op.SEND, reads.take(rows), writes.take(rows))


def _is_scattered(pieces: Pieces) -> Bools:
    several = np.diff(pieces.indptr) > 1
    several[pieces.owner[np.asarray(pieces.repeat > 1)]] = True
    return several


def _packed(space: AddressSpace, pieces: Pieces, rank: Ints) -> Relocation | None:
    """Return the move that makes every row one interval; None where there is none to make.

    Rows are laid down in the order in which they began, so that what staged
    them finds them at even distances; what lies between them comes behind.
    """
    scattered = np.flatnonzero(_is_scattered(pieces))
    row, buffer, low, high = pieces.take(scattered).blocks()
    home = np.where(buffer < Buffer.SCRATCH, NONE, space.number(rank[scattered][row], buffer))
    base = space.base[rank[scattered][row], buffer]
    low, high = base + low, base + high
    n = len(scattered)
    least, most = np.full(n, len(space.start)), np.full(n, NONE)
    np.minimum.at(least, row, home)
    np.maximum.at(most, row, home)
    stays = (least == NONE) | (least != most)
    stays[row[overlapping(low, high)]] = True
    kept = ~stays[row]
    row, home, low, high = row[kept], home[kept], low[kept], high[kept]
    if not len(row):
        return None
    begin = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(begin, row, low)
    order = np.lexsort((np.arange(len(row)), begin[row], home))
    by_low = np.argsort(low, kind="stable")
    new = low[by_low][np.searchsorted(home[by_low], home)]
    new[order] += csr.group_offsets(home[order], (high - low)[order])
    gaps = _gaps(home[by_low], low[by_low], high[by_low])
    all_low = np.concatenate((low, gaps[0]))
    all_high = np.concatenate((high, gaps[1]))
    return Relocation.of(space, all_low, all_high, np.concatenate((new, gaps[2])))


def _gaps(home: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Return what lies between ascending intervals of a home, and where it goes: behind them."""
    is_gap = (home[1:] == home[:-1]) & (low[1:] > high[:-1])
    begin, end, where = high[:-1][is_gap], low[1:][is_gap], home[:-1][is_gap]
    first = np.searchsorted(home, where)
    filled = csr.running_total(high - low)
    last = np.searchsorted(home, where, side="right")
    own = csr.group_offsets(where, end - begin)
    return begin, end, low[first] + filled[last] - filled[first] + own


def _is_moved(plan: Plan, moves: Relocation) -> Bools:
    """Mark mirrors of which something has moved."""
    start = moves.space.base[:, [Buffer.SHARED]] + plan.mirrors
    end = start + plan.buffer_sizes[:, [Buffer.SEND, Buffer.RECV]]
    n_before = np.searchsorted(moves.high, start.ravel(), side="right")
    touched = np.searchsorted(moves.low, end.ravel()) > n_before
    return np.asarray((plan.mirrors != NONE) & touched.reshape(start.shape))


def pack_messages(plan: Plan, rows: Ints) -> Plan:
    """Copy what messages carry together in scratch before they are sent, and apart afterwards.

    Parameters
    ----------
    plan : Plan
    rows : ndarray of int64
        The messages; ends that are one interval stay as they are.
    """
    reads, writes = pieces.pieces_of(plan)
    carried = _message_pieces(plan, reads, writes, rows)
    scattered = _is_scattered(carried)
    rows, carried = rows[scattered], carried.take(np.flatnonzero(scattered))
    if not len(rows):
        return plan
    n, rank = plan.n_tasks, plan.rank[rows]
    sizes = carried.elements
    offset = plan.buffer_sizes[rank, Buffer.SCRATCH] + csr.group_offsets(rank, sizes)
    packed = pieces.one_each(Buffer.SCRATCH, offset, sizes)
    is_send = plan.op[rows] == Op.SEND
    # Rows n and above are copies: before their send, or behind their receive.
    order = np.argsort(np.concatenate((2 * np.arange(n), 2 * rows + np.where(is_send, -1, 1))))
    source = np.concatenate((np.arange(n), rows))[order]
    columns = {name: getattr(plan, name)[source] for name in COLUMNS}
    is_copy = order >= n
    become_copies(columns, is_copy)
    sent, received = (mask.nonzero()[0] for mask in (is_send, ~is_send))
    new_reads = pieces.stack(
        (pieces.replaced(reads, rows[sent], packed.take(sent)), _choose(is_send, carried, packed))
    )
    new_writes = pieces.stack(
        (
            pieces.replaced(writes, rows[received], packed.take(received)),
            _choose(is_send, packed, carried),
        )
    )
    scratch = np.array(plan.buffer_sizes)
    scratch[:, Buffer.SCRATCH] += np.bincount(rank, sizes, plan.n_ranks).astype(np.int64)
    return rebuild(
        plan,
        new_reads.take(order),
        new_writes.take(order),
        move_edges(stated_edges(plan), places(order, len(order))),
        **columns,
        buffer_sizes=scratch,
        foreign=None,
    )


def _choose(mask: Bools, one: Pieces, other: Pieces) -> Pieces:
    """Return rows of `one` where `mask` says so, of `other` elsewhere."""
    index = np.arange(len(mask))
    return pieces.stack((one, other)).take(np.where(mask, index, len(mask) + index))
