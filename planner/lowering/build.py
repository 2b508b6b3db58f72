"""From messages and local steps to tasks: rows, columns, landing places, dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import joint_key, ranges
from collplan.planner.lowering.bounce import Landing, arrivals, plan_landings
from collplan.planner.lowering.lower import LocalTable, MessageTable, Table
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.hazards import derive_dependencies
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.tags import Edges, chain_streams, join_edges, number_messages

if TYPE_CHECKING:
    from collplan.specs import Machine, PlanSpec


@dataclass(frozen=True)
class Placement:
    """Where ranks live, as arrays by rank."""

    node: Ints
    lane: Ints
    core: Ints
    n_nodes: int

    @classmethod
    def of(cls, machine: Machine) -> Placement:
        """Return the placement a machine spec describes."""
        return cls(
            node=np.array(machine.rank_to_node, dtype=np.int32),
            lane=np.array(machine.rank_to_lane, dtype=np.int16),
            core=np.array(machine.rank_to_core, dtype=np.int32),
            n_nodes=machine.nodes,
        )


@dataclass
class TaskTable(Table):
    """Tasks in any order, one row each.

    `order` sorts rows within a round: sends, receives and what follows from
    their arrival, then local steps. `ordered` marks messages whose sends wait for
    what their rank received in earlier rounds.
    """

    op: Ints
    order: Ints
    phase: Ints
    round: Ints
    rank: Ints
    peer: Ints
    tag: Ints
    stream: Ints
    ordered: Bools
    reads: Pieces
    writes: Pieces

    @classmethod
    def stack(cls, tables: list[TaskTable]) -> TaskTable:
        """Return the rows of all tables, one table after another."""
        stacked: dict[str, Any] = {}
        for name in vars(tables[0]):
            parts: list[Any] = [getattr(table, name) for table in tables]
            is_pieces = isinstance(parts[0], Pieces)
            stacked[name] = csr.stack(parts) if is_pieces else np.concatenate(parts)
        return cls(**stacked)


def build(
    messages: MessageTable,
    steps: LocalTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec,
    phases: Sequence[str],
    only_rank: int | None = None,
    only_node: int | None = None,
    shared_sizes: Ints | None = None,
) -> Plan:
    """Build the plan of lowered components.

    Rows are ordered by round; within a round all sends, then all receives,
    then local steps. A message that would overwrite what its receiver still
    sends or combines in the same round lands in scratch. A rank that only
    receives makes do with a few landing slots: its later receives come after
    the combinations that empty them.

    Parameters
    ----------
    messages, steps : MessageTable, LocalTable
        What `lower` returned.
    placement : Placement
        Where ranks live.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements of the buffers; scratch grows by the landing slots.
    spec : PlanSpec
        Kept with the plan.
    phases : sequence of str
        What the components are called in pictures and dumps.
    only_rank : int, optional
        Build this rank's rows only.
    only_node : int, optional
        Build the rows of this node's ranks only.
    shared_sizes : ndarray of int64, shape (n_nodes,), optional
        Elements of the nodes' shared buffers, where `messages` or `steps` touch them.
    """
    landing = plan_landings(messages, buffer_sizes)
    arrived = arrivals(messages, landing)
    tables = [
        *_message_tasks(messages, landing, len(placement.node)),
        _local_tasks(arrived, landing.arrival_order),
        _local_tasks(steps, np.full(len(steps.rank), landing.last_order)),
    ]
    if only_rank is not None:
        tables = [table.select(table.rank == only_rank) for table in tables]
    elif only_node is not None:
        tables = [table.select(placement.node[table.rank] == only_node) for table in tables]
    tasks = TaskTable.stack(tables)
    del tables, arrived  # millions of rows each: their room is needed now
    position = joint_key(tasks.round, tasks.order, landing.last_order + 1)
    tasks = tasks.take(np.argsort(position, kind="stable"))
    del position
    plan = _assemble(tasks, placement, landing.buffer_sizes, spec, phases, only_rank)
    return plan if shared_sizes is None else plan.replace(shared_sizes=shared_sizes)


def _assemble(
    tasks: TaskTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec,
    phases: Sequence[str],
    only_rank: int | None,
) -> Plan:
    """Give tasks in row order their places, lanes, priorities and dependencies."""
    is_message = tasks.op <= Op.RECV
    peer = np.where(is_message, tasks.peer, tasks.rank)
    dest = np.where(tasks.op == Op.SEND, peer, tasks.rank)
    crosses = placement.node[tasks.rank] != placement.node[peer]
    chains = chain_streams(tasks.op, tasks.rank, tasks.peer, tasks.stream)
    edges = join_edges(chains, _ordered_after(tasks))
    reads, writes, patterns = csr.to_extents(tasks.reads, tasks.writes)
    n = len(tasks.op)
    return Plan(
        op=tasks.op,
        rank=tasks.rank,
        peer=tasks.peer,
        tag=tasks.tag,
        node=placement.node[tasks.rank],
        lane=np.where(crosses, placement.lane[dest], NONE),
        core=placement.core[tasks.rank],
        phase=tasks.phase,
        round=tasks.round,
        stream=tasks.stream,
        priority=np.where(crosses, 0, 1),
        stage=np.ones(n, dtype=np.int8),
        duration_ns=np.zeros(n, dtype=np.int64),
        reads=reads,
        writes=writes,
        deps=derive_dependencies(tasks.rank, tasks.reads, tasks.writes, placement.node, edges),
        patterns=patterns,
        buffer_sizes=buffer_sizes,
        shared_sizes=np.zeros(placement.n_nodes, dtype=np.int64),
        rank_node=placement.node,
        rank_lane=placement.lane,
        rank_core=placement.core,
        itemsize=spec.collective.itemsize,
        spec=spec,
        only_rank=only_rank,
        phases=tuple(phases),
    )


def _message_tasks(
    messages: MessageTable, landing: Landing, n_ranks: int
) -> tuple[TaskTable, TaskTable]:
    """Return the sends and the receives of all messages."""
    tag, stream = number_messages(messages.source, messages.dest, n_ranks)
    n = len(tag)
    columns: dict[str, Any] = {name: getattr(messages, name) for name in _SHARED_COLUMNS}
    columns |= {"tag": tag, "stream": stream}
    sends = TaskTable(
        **columns,
        op=np.full(n, Op.SEND, dtype=np.int8),
        order=np.zeros(n, dtype=landing.recv_order.dtype),
        rank=messages.source,
        peer=messages.dest,
        reads=messages.read,
        writes=csr.empty(n),
    )
    recvs = TaskTable(
        **columns,
        op=np.full(n, Op.RECV, dtype=np.int8),
        order=landing.recv_order,
        rank=messages.dest,
        peer=messages.source,
        reads=csr.empty(n),
        writes=landing.received,
    )
    return sends, recvs


_SHARED_COLUMNS: Final = ("phase", "round", "ordered")
"""Columns of messages that their tasks have, too."""


def _local_tasks(steps: LocalTable, order: Ints) -> TaskTable:
    none = np.full(len(steps.rank), NONE, dtype=np.int32)
    return TaskTable(
        op=steps.op,
        order=order,
        phase=steps.phase,
        round=steps.round,
        rank=steps.rank,
        peer=none,
        tag=none,
        stream=none,
        ordered=np.zeros(len(none), dtype=bool),
        reads=steps.read,
        writes=steps.write,
    )


def _ordered_after(tasks: TaskTable) -> Edges:
    """Make every ordered send wait for what its rank received in earlier rounds."""
    sends = np.flatnonzero(tasks.ordered & (tasks.op == Op.SEND))
    recvs = np.flatnonzero(tasks.ordered & (tasks.op == Op.RECV))
    n_rounds = int(tasks.round.max(initial=0)) + 1
    arrival = joint_key(tasks.rank[recvs], tasks.round[recvs], n_rounds)
    order = np.argsort(arrival, kind="stable")
    rank = joint_key(tasks.rank[sends], np.zeros_like(sends), n_rounds)
    first = np.searchsorted(arrival[order], rank)
    n = np.searchsorted(arrival[order], rank + tasks.round[sends]) - first
    before, after = recvs[order[ranges(first, n)]], np.repeat(sends, n)
    return before, after, np.zeros(len(before), dtype=np.int8)
