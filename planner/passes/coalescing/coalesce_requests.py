"""Coalescing of several messages between the same two ranks into one message."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal, get_args

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.intervals import overlapping
from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.tables import MessageTable
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import MessageGraph, require_all_ranks
from collplan.planner.plan import pieces
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.hazards import stated_edges
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import COLUMNS, NONE, Buffer, Op, Plan
from collplan.planner.rewrite.merge_tasks import join_tasks
from collplan.planner.rewrite.rebuild import become_copies, move_edges, places, rebuild
from collplan.planner.rewrite.remap_buffers import Relocation

Staging = Literal["remap", "pack", "layout"]
"""Ways to send blocks that are not contiguous in memory."""
STAGINGS: Final[tuple[str, ...]] = get_args(Staging)


def _coalesce_exchange(
    blueprint: Blueprint, staging: str = "remap", when: str = "round"
) -> Blueprint | None:
    """Return the blueprint of an exchange with coalesced messages.

    Parameters
    ----------
    blueprint : Blueprint
    staging, when : str
        Options of `coalesce_requests`.

    Returns
    -------
    Blueprint or None
        None if the pass must run on the plan instead: the blueprint is not that of an exchange,
        or these options have no early form.
    """
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
    """Join messages that one rank sends to another at the same time into one message.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of all ranks of some nodes.
    staging : {"remap", "pack", "layout"}
        Way to send blocks that are not contiguous in memory:

        - ``layout``: the message has several extents, for which MPI uses a derived datatype.
        - ``pack``: a copy gathers the blocks in scratch before the send, and another copy
          distributes them after the receive.
        - ``remap``: if the blocks are in one scratch or shared buffer and in no other message,
          the elements of the buffer are permuted, so that each message is one interval. The
          copies that the plan already has then access the new places. Other messages are
          treated as with ``layout``. The blocks of a message keep their order, so copies still
          move whole blocks.
    when : {"round", "ready"}
        Messages of a pair of ranks that are joined: those of the same phase and ``round``, or
        those that are ``ready`` together, which means that the longest chains of messages that
        they wait for have the same length. ``ready`` requires a plan of all ranks, and sorts the
        rows by this length.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if there is nothing to join.

    Raises
    ------
    AlgorithmError
        If `staging` or `when` is unknown; if the plan is a program that shares memory with programs
        of other ranks; if `when` is ``ready`` and the plan does not hold all ranks; or if a task
        waits for one message of a group and another message of the group waits for this task, as
        when receives of one round reuse a buffer.

    References
    ----------
    Tran et al., "OHIO", 2024: request coalescing, and figure 5 for ``remap``.
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
    """Join the messages with equal source, destination, phase and round.

    Parameters
    ----------
    messages : MessageTable

    Returns
    -------
    MessageTable
        One row per joined message, sorted by round. The extents of the messages are concatenated;
        they are neither packed nor sorted.
    """
    keys = (messages.source, messages.dest, messages.phase, messages.round)
    order = np.lexsort(keys)
    bounds = csr.run_bounds(*(key[order] for key in keys))
    merged = messages.take(order[bounds[:-1]])
    for name in ("read", "write", "combine"):
        setattr(merged, name, getattr(messages, name).take(order).merged(bounds))
    return merged.take(np.argsort(merged.round, kind="stable"))


def require_whole_nodes(plan: Plan, name: str) -> None:
    """Check that a plan does not wait for tasks that it does not contain.

    Parameters
    ----------
    plan : Plan
    name : str
        Name of the pass, for the message.

    Raises
    ------
    AlgorithmError
        If the plan is a program that waits for other ranks of its node, or they wait for it.
    """
    if len(plan.foreign) or len(plan.foreign.awaited):
        raise AlgorithmError(
            f"passes.{name}: rank {plan.only_rank}'s program shares memory with others of its "
            "node, which must be seen; compile it from its spec, or restrict the plan of all ranks"
        )


def _groups(plan: Plan) -> tuple[Ints, Ints]:
    """Group the messages of each pair of ranks by phase, round and stage.

    Tags ascend within a group, so that both ends of a message have the same order. Groups are
    sorted by their last rows.

    Returns
    -------
    order : ndarray of int64, shape (n_tasks,)
        Rows of the plan, one group after another.
    bounds : ndarray of int64, shape (n_groups + 1,)
        Group i is ``order[bounds[i]:bounds[i + 1]]``. A task that is not a message is a group.
    """
    n_rounds, n_stages = int(plan.round.max(initial=0)) + 1, int(plan.stage.max(initial=0)) + 1
    when = csr.joint_key(csr.joint_key(plan.phase, plan.round, n_rounds), plan.stage, n_stages)
    return _grouped(plan, _stand_in(plan, when, which=-1))


def _ready_groups(plan: Plan) -> tuple[Ints, Ints]:
    """Group the messages of each pair of ranks that become ready together.

    The level of a message is the length of the longest chain of messages that it waits for. No
    message depends on another one of the same level, so a joined message never waits for itself.
    Groups are sorted by level.

    Returns
    -------
    order, bounds : ndarray of int64
        See `_groups`.
    """
    graph = MessageGraph.of(plan)
    is_message = (plan.op <= Op.RECV).astype(np.int64)
    level = graph.levels(is_message)[graph.node]
    first = _stand_in(plan, level, plan.stage, which=0)
    return _grouped(plan, first, is_message, level)


def _stand_in(plan: Plan, *keys: Ints, which: int) -> Ints:
    """Return the row that represents the group of each task.

    Messages are in one group if they have the same pair of ranks and equal keys. Every other task
    is a group of its own.

    Parameters
    ----------
    plan : Plan
    *keys : ndarray of int64, shape (n_tasks,)
    which : {0, -1}
        0 for the first row of the group, -1 for the last one.

    Returns
    -------
    ndarray of int64, shape (n_tasks,)
    """
    rows = np.flatnonzero(plan.op <= Op.RECV)
    pair = csr.joint_key(plan.rank, plan.peer, plan.n_ranks)
    alike = [key[rows] for key in (*keys, pair, plan.op)]
    order = np.lexsort((rows, *alike))
    starts = csr.run_starts(*(key[order] for key in alike))
    # Within a group, rows are in ascending order.
    ends = np.flatnonzero(starts if which == 0 else np.roll(starts, -1))
    chosen = np.arange(plan.n_tasks)
    chosen[rows[order]] = rows[order[ends]][np.cumsum(starts) - 1]
    return chosen


def _grouped(plan: Plan, group: Ints, *keys: Ints) -> tuple[Ints, Ints]:
    """Return the rows sorted by `keys` (last one first), group and tag, and the group bounds."""
    order = np.lexsort((np.arange(plan.n_tasks), plan.tag, group, *keys))
    return order, csr.run_bounds(group[order])


def remap_messages(plan: Plan, rows: Ints) -> Plan:
    """Permute scratch and shared buffers so that each message is one interval.

    Parameters
    ----------
    plan : Plan
    rows : ndarray of int64, shape (n_messages,)
        Rows of the messages. A message is not changed if it is in a buffer of the caller or in
        several buffers, or if it shares elements with another message.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if no message can be moved.
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
    """Return the pieces that sends read and that receives write."""
    return _choose(plan.op[rows] == Op.SEND, reads.take(rows), writes.take(rows))


def _is_scattered(pieces: Pieces) -> Bools:
    several = np.diff(pieces.indptr) > 1
    several[pieces.owner[np.asarray(pieces.repeat > 1)]] = True
    return several


def _packed(space: AddressSpace, pieces: Pieces, rank: Ints) -> Relocation | None:
    """Return a relocation that makes every row one interval.

    Within a buffer, rows keep the order of their first elements, so that the copies that fill
    them still have constant strides. Elements between the rows move behind them.

    Parameters
    ----------
    space : AddressSpace
    pieces : Pieces
        Pieces of the messages, one row per message.
    rank : ndarray, shape (n_messages,)
        Rank that owns the buffers of each row.

    Returns
    -------
    Relocation or None
        None if no row can be moved.
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
    """Return the gaps between the ascending intervals of each buffer, and their new places.

    Returns
    -------
    low, high, new : ndarray of int64, shape (n_gaps,)
        First address of a gap, the address behind it, and its new first address. Gaps follow the
        intervals of their buffer, in order.
    """
    is_gap = (home[1:] == home[:-1]) & (low[1:] > high[:-1])
    begin, end, where = high[:-1][is_gap], low[1:][is_gap], home[:-1][is_gap]
    first = np.searchsorted(home, where)
    filled = csr.running_total(high - low)
    last = np.searchsorted(home, where, side="right")
    own = csr.group_offsets(where, end - begin)
    return begin, end, low[first] + filled[last] - filled[first] + own


def _is_moved(plan: Plan, moves: Relocation) -> Bools:
    """Return which mirrors contain elements that are moved, shape (n_ranks, 2)."""
    start = moves.space.base[:, [Buffer.SHARED]] + plan.mirrors
    end = start + plan.buffer_sizes[:, [Buffer.SEND, Buffer.RECV]]
    n_before = np.searchsorted(moves.high, start.ravel(), side="right")
    touched = np.searchsorted(moves.low, end.ravel()) > n_before
    return np.asarray((plan.mirrors != NONE) & touched.reshape(start.shape))


def pack_messages(plan: Plan, rows: Ints) -> Plan:
    """Pack messages in scratch before they are sent, and unpack them after they are received.

    Parameters
    ----------
    plan : Plan
    rows : ndarray of int64
        Rows of the sends and receives. Those that access one interval are not changed.

    Returns
    -------
    Plan
        A new plan with additional copies and scratch, or `plan` itself if there is nothing to pack.
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
    # Rows n and above are copies. A copy precedes its send and follows its receive.
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
    """Return the rows of `one` where `mask` is True, and those of `other` elsewhere."""
    index = np.arange(len(mask))
    return pieces.stack((one, other)).take(np.where(mask, index, len(mask) + index))
